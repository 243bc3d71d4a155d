"""The tables of a comparison: structable's with one prefix, and one used by happybase alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.rows import TABLE, batches, make_rows, specification
from structable.backends.hbase.engine import HBaseEngine
from structable.backends.ordered.storage import OrderedStorage
from structable.spi import Storage, connect
from tests.hbase.support.shared import Place, Sweeper, fresh_prefix, shared_server

if TYPE_CHECKING:
    import happybase

AREA = "hbase"
VALUE = b"x:v"
"""The column in which structable stores a row; happybase uses it here, too."""


@dataclass(slots=True)
class Database:
    """The tables of structable and of happybase, all of one prefix."""

    place: Place
    prefix: str
    cells: list[tuple[bytes, bytes]] = field(default_factory=list)  # row and value stored by structable, in key order

    @property
    def elsewhere(self) -> Database:
        """A copy that can be sent to another process."""
        return Database(Place(self.place.address), self.prefix)

    @property
    def url(self) -> str:
        """The URL for structable."""
        return self.place.url(self.prefix)

    @property
    def raw_name(self) -> str:
        """The table used by happybase alone."""
        return f"{self.prefix}_raw"

    @property
    def name(self) -> str:
        """The table in which structable stores the rows."""
        with self.connection() as connection:
            names: list[str] = sorted(name.decode() for name in connection.tables())
        return next(name for name in reversed(names) if re.fullmatch(rf"{self.prefix}_\d+", name))

    @contextmanager
    def connection(self) -> Iterator[happybase.Connection]:
        """Connect happybase, the floor."""
        with closing(self.place.connection()) as connection:
            yield connection

    @contextmanager
    def storage(self) -> Iterator[Storage]:
        """Connect structable."""
        with connect(self.url) as storage:
            yield storage

    def load(self, count: int) -> None:
        """Create the tables, with `count` of the benchmarks' rows in both, and compact them."""
        with self.storage() as storage, self.connection() as raw:
            storage.admin.create(specification())
            for batch in batches(make_rows(count)):
                storage.table(TABLE).upsert_many(batch)
        with self.connection() as raw:
            settings = {"max_versions": 2**31 - 1, "bloom_filter_type": "ROW", "block_cache_enabled": True}
            raw.create_table(self.raw_name, {"x": settings})
            found = raw.table(self.name).scan(row_start=b"\1", columns=[VALUE])
            self.cells = [(row, columns[VALUE]) for row, columns in found]
            assert len(self.cells) == count
            with raw.table(self.raw_name).batch(batch_size=1_000) as batch:
                for row, value in self.cells:
                    batch.put(row, {VALUE: value})
        if self.place.server is not None:
            for table in (self.name, self.raw_name):
                self.place.server.flush(table)
                self.place.server.compact(table)


def settle(storage: Storage) -> None:
    """Wait until all committed rows are finalised, so that this work does not slow down the next floor."""
    assert isinstance(storage, OrderedStorage)
    engine = storage.engine
    assert isinstance(engine, HBaseEngine)
    assert engine.transactions.finaliser.drain(60.0)


@contextmanager
def database(folder: Path) -> Iterator[Database]:
    """Yield the tables of a comparison; afterwards they, and a server started for them, are gone."""
    with shared_server(folder) as place, Sweeper(place) as sweeper, fresh_prefix(sweeper) as prefix:
        yield Database(place, prefix)
