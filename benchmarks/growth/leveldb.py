"""LevelDB's tables, and plyvel on files with the very same bytes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path

from benchmarks.leveldb.stores import open_raw, url_of
from benchmarks.measuring import Measurement, Scale
from benchmarks.workloads.programs import Action
from structable.backends.leveldb.native.checkpoint import copy_checkpoint
from structable.backends.ordered.table import OrderedTable
from structable.spi import connect

from .contest import Place, Store, compete
from .programs import GrowthProgram, SpiProgram
from .tables import ALIKE, GROWN, load

_FLOORS = {
    "read": "plyvel get",
    "update": "plyvel get and put",
    "read_and_write": "plyvel get and put",
    "scan": "plyvel iterate",
    "look_up": "plyvel iterate, and a get each",
    "multi_read": "plyvel get of each",
    "commit": "plyvel get of each, and a batch",
}
_GOALS = {"read": 2.5, "update": 1.3, "scan": 1.4, "look_up": 1.6}


def measure_leveldb(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure LevelDB, in a new folder."""
    most = scale.rows * 50
    sizes = (max(most // 1_000, 1_000), most // 10, most * 2 // 5, most)
    yield from compete(Store("LevelDB", _FLOORS, partial(_place, folder), sizes, _GOALS, sizes[2]), scale)


@contextmanager
def _place(folder: Path, rows: int) -> Iterator[Place]:
    ours, floor = folder / f"ours-{rows}", folder / f"floor-{rows}"
    with connect(url_of(ours)) as storage:
        load(storage, rows)
    floor.mkdir()
    copy_checkpoint(ours / "database", floor / "database")
    size = sum(file.stat().st_size for file in (ours / "database").iterdir())
    try:
        yield Place(partial(SpiProgram, rows, url_of(ours)), partial(PlyvelProgram, rows, floor), size)
    finally:
        for made in (ours, floor):
            shutil.rmtree(made)


class PlyvelProgram(GrowthProgram):
    """The operations by hand, which decode nothing."""

    def __init__(self, rows: int, folder: Path, *, client: int, clients: int) -> None:
        super().__init__(rows)
        with connect(url_of(folder)) as storage, storage.transaction(read_only=True) as tx:
            table = tx.table(GROWN.name)
            assert isinstance(table, OrderedTable)
            self._binding = table.binding
        self._database = open_raw(folder / "database")

    @property
    def actions(self) -> Mapping[str, Action]:
        return {name: getattr(self, name) for name in _FLOORS}

    def _key(self, key: int) -> bytes:
        return self._binding.raw_key((key,))

    def read(self, key: int) -> int:
        return self._database.get(self._key(key)) is not None

    def update(self, key: int) -> int:
        raw = self._key(key)
        self._database.put(raw, self._database.get(raw))
        return 1

    read_and_write = update

    def scan(self, key: int) -> int:
        with self._database.iterator(start=self._key(key), verify_checksums=True) as pairs:
            return sum(1 for _ in islice(pairs, ALIKE))

    def look_up(self, group: int) -> int:
        [index] = self._binding.maintained
        prefix = index.entry(group, b"")
        with self._database.iterator(prefix=prefix, include_value=False, verify_checksums=True) as entries:
            return sum(self._database.get(index.row_key(entry)) is not None for entry in entries)

    def multi_read(self, keys: Sequence[int]) -> int:
        return sum(self._database.get(self._key(key)) is not None for key in keys)

    def commit(self, keys: Sequence[int]) -> int:
        get = self._database.get
        with self._database.write_batch() as batch:
            for key in keys:
                raw = self._key(key)
                batch.put(raw, get(raw))
        return len(keys)

    def close(self) -> None:
        self._database.close()
