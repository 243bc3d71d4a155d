"""Reads, scans and writes of records of eight fields, compared with rows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Annotated, TypeVar

from benchmarks.measuring import Contender, Measurement, Round, Scale, compare
from benchmarks.rows import TABLE, Row, make_rows
from structable.datasets import Int, Record, RecordTable
from structable.spi import Storage

T = TypeVar("T")

_AREA = "datasets"


class _Run(Record):
    host: str
    started: int
    status: str | None
    path: str | None
    bytes: int | None
    attempts: Annotated[int, Int] | None
    cost: float | None
    done: bool | None


_RUNS = RecordTable(_Run, TABLE, key=("host", "started"))


def measure_leveldb(storage: Storage, scale: Scale) -> Iterator[Measurement]:
    """Measure reads, scans and writes."""
    rows = list(make_rows(scale.rows))
    yield from _reads(storage, "LevelDB", rows, scale, scale.samples, 1.15)
    with storage.transaction() as tx:
        table, runs = tx.table(TABLE), _RUNS(tx)

        def scan_rows() -> float:
            begun = perf_counter()
            with table.scan() as found:
                for _ in found:
                    pass
            return (perf_counter() - begun) / len(rows)

        def scan_records() -> float:
            begun = perf_counter()
            with runs.scan() as found:
                for _ in found:
                    pass
            return (perf_counter() - begun) / len(rows)

        contender = Contender("scan of records, per record, LevelDB", scan_records, 1.25)
        yield from compare(_AREA, "table.scan, per row, LevelDB", scan_rows, [contender], scale.rounds)
    some = random.Random(5).sample(rows, min(scale.samples // 10, len(rows)))
    records = [_Run(**row) for row in some]  # type: ignore[arg-type] # of the field's types
    table, runs = storage.table(TABLE), _RUNS(storage)
    contender = Contender("put, LevelDB", _each(runs.put, records), 1.2)
    yield from compare(_AREA, "table.replace, LevelDB", _each(table.replace, some), [contender], 2 * scale.rounds)


def measure_postgresql(storage: Storage, scale: Scale) -> Iterator[Measurement]:
    """Measure reads."""
    yield from _reads(storage, "PostgreSQL", list(make_rows(scale.rows)), scale, min(scale.samples, 2_000), 1.03)


def _reads(
    storage: Storage, store: str, rows: Sequence[Row], scale: Scale, samples: int, goal: float
) -> Iterator[Measurement]:
    some = random.Random(3).sample(rows, min(samples, len(rows)))
    keys = [(row["host"], row["started"]) for row in some]
    with storage.transaction() as tx:
        table, runs = tx.table(TABLE), _RUNS(tx)

        def get() -> float:
            begun = perf_counter()
            for host, started in keys:
                runs.get(host, started)
            return (perf_counter() - begun) / len(keys)

        contender = Contender(f"get of 8 fields, {store}", get, goal)
        floor = _each(table.read, keys)
        yield from compare(_AREA, f"table.read, {store}", floor, [contender], 2 * scale.rounds)


def _each(work: Callable[[T], object], arguments: Sequence[T]) -> Round:
    def once() -> float:
        begun = perf_counter()
        for one in arguments:
            work(one)
        return (perf_counter() - begun) / len(arguments)

    return once
