"""HBase's tables, and happybase on a table of the very same cells."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path

from benchmarks.hbase.database import VALUE, Database, database
from benchmarks.measuring import Measurement, Scale
from benchmarks.workloads.programs import Action
from structable.backends.hbase.layout import Layout
from structable.backends.ordered.engine import SPACE_BYTES
from structable.backends.ordered.table import OrderedTable
from structable.spi import connect
from tests.hbase.support.shared import Place as Gateway
from tests.hbase.support.shared import Sweeper, fresh_prefix
from tests.servers.availability import NoServerError

from .contest import Place, Store, compete
from .programs import GrowthProgram, SpiProgram
from .tables import ALIKE, GROWN, load

_FLOORS = {
    "read": "happybase row",
    "update": "happybase row and put",
    "read_and_write": "happybase row and put",
    "scan": "happybase scan",
    "look_up": "happybase scan, and rows",
    "multi_read": "happybase rows",
    "commit": "happybase rows, and a batch",
}


def measure_hbase(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure HBase, if there is a server, with a tenth of the rows and of the samples."""
    folder.mkdir()
    most = scale.rows * 5
    with ExitStack() as stack:
        try:
            found = stack.enter_context(database(folder))
        except NoServerError as error:
            print(f"HBase's growth is not measured: {error}", file=sys.stderr)
            return
        sweeper = stack.enter_context(Sweeper(found.place))
        sizes = (max(most // 10, 1_000), most)
        few = Scale(samples=scale.samples // 10, rounds=scale.rounds)
        yield from compete(Store("HBase", _FLOORS, partial(_place, found.place, sweeper), sizes, {}), few)


@contextmanager
def _place(gateway: Gateway, sweeper: Sweeper, rows: int) -> Iterator[Place]:
    with fresh_prefix(sweeper) as prefix:
        made = Database(gateway, prefix)
        with connect(made.url) as storage:
            load(storage, rows)
        table = _stored(made)[1]
        with made.connection() as connection, made.connection() as elsewhere:
            settings = {"max_versions": 2**31 - 1, "bloom_filter_type": "ROW", "block_cache_enabled": True}
            connection.create_table(made.raw_name, {"x": settings})
            size = 0
            with elsewhere.table(made.raw_name).batch(batch_size=2_000) as batch:
                for row, cells in connection.table(table).scan(columns=[VALUE], batch_size=2_000):
                    batch.put(row, {VALUE: cells[VALUE]})
                    size += len(row) + len(cells[VALUE])
        if gateway.server is not None:
            for name in (table, made.raw_name):
                gateway.server.flush(name)
                gateway.server.compact(name)
        yield Place(partial(SpiProgram, rows, made.url), partial(HappybaseProgram, rows, made.elsewhere), size)


class HappybaseProgram(GrowthProgram):
    """The operations by hand, which decode nothing."""

    def __init__(self, rows: int, place: Database, *, client: int, clients: int) -> None:
        super().__init__(rows)
        self._stack = ExitStack()
        self._binding = _stored(place)[0].binding
        self._table = self._stack.enter_context(place.connection()).table(place.raw_name)

    @property
    def actions(self) -> Mapping[str, Action]:
        return {name: getattr(self, name) for name in _FLOORS}

    def _key(self, key: int) -> bytes:
        return self._binding.raw_key((key,))[SPACE_BYTES:]

    def read(self, key: int) -> int:
        return len(self._table.row(self._key(key)))

    def update(self, key: int) -> int:
        row = self._key(key)
        self._table.put(row, self._table.row(row))
        return 1

    read_and_write = update

    def scan(self, key: int) -> int:
        return sum(1 for _ in islice(self._table.scan(row_start=self._key(key), batch_size=ALIKE), ALIKE))

    def look_up(self, group: int) -> int:
        [index] = self._binding.maintained
        prefix = index.entry(group, b"")
        found = self._table.scan(row_prefix=prefix[SPACE_BYTES:], batch_size=2 * ALIKE)
        return len(self._table.rows([index.row_key(prefix[:SPACE_BYTES] + row)[SPACE_BYTES:] for row, _ in found]))

    def multi_read(self, keys: Sequence[int]) -> int:
        return len(self._table.rows([self._key(key) for key in keys]))

    def commit(self, keys: Sequence[int]) -> int:
        with self._table.batch() as batch:
            for row, cells in self._table.rows([self._key(key) for key in keys]):
                batch.put(row, cells)
        return len(keys)

    def close(self) -> None:
        self._stack.close()


def _stored(place: Database) -> tuple[OrderedTable, str]:
    """Return the grown table, and the name of the HBase table in which it is stored."""
    with connect(place.url) as storage, storage.transaction(read_only=True) as tx:
        table = tx.table(GROWN.name)
        assert isinstance(table, OrderedTable)
    return table, Layout(place.prefix).table(table.binding.raw_key((0,))[:SPACE_BYTES])
