"""A point read on LevelDB in a program without an OpenTelemetry SDK, compared with the backend's own storage."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from time import perf_counter

from benchmarks.measuring import Contender, Measurement, Round, Scale, compare
from benchmarks.rows import TABLE, make_rows, row_key
from structable.backends.leveldb import LevelDBBackend
from structable.spi import Storage, StorageUrl, Value, connect
from structable.spi.authors import parse_options

from .programs import AREA

Key = tuple[Value, ...]


def measure(url: str, scale: Scale) -> Iterator[Measurement]:
    """Measure reads in the auto-commit view: both storages are open on one database."""
    keys = [row_key(row) for row in make_rows(scale.rows)]
    some: list[Key] = []

    def reads(storage: Storage) -> Round:
        table = storage.table(TABLE)

        def work() -> float:
            total = 0
            begin = perf_counter()
            for key in some:
                row = table.read(key)
                if row is not None and row.done:
                    total += row.attempts
            return (perf_counter() - begin) / len(some)

        return work

    with ExitStack() as stack:
        backend = LevelDBBackend()
        parsed = StorageUrl.parse(url)
        bare = reads(stack.enter_context(backend.connect(parsed, parse_options(backend, parsed, {}))))
        ours = reads(stack.enter_context(connect(url)))

        def floor() -> float:
            some[:] = random.sample(keys, min(scale.samples, len(keys)))
            return bare()

        contender = Contender("read, metrics without an SDK, LevelDB", ours, 1.02)
        yield from compare(AREA, "read of the backend's own storage", floor, [contender], 3 * scale.rounds)
