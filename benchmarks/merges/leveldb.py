"""LevelDB: merges of single rows and of 50 in a transaction, against increments; and threads that add to one row."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Barrier, Thread
from time import perf_counter

from benchmarks.leveldb.stores import open_raw, url_of
from benchmarks.measuring import Contender, Measurement, Scale, compare
from benchmarks.rows import Row, batches, raw_key, row_key
from structable.spi import Storage, StructuredTable, connect

from .counters import AREA, COUNTERS, make_counters

_MANY = 50
_THREADS = 8

Write = Callable[[StructuredTable, Sequence[Row]], object]


def measure(folder: Path, scale: Scale) -> list[Measurement]:
    """Measure merges against increments, and merges by threads against synced puts."""
    return [*_beside_increments(folder, scale), *_of_threads(folder, scale)]


def _beside_increments(folder: Path, scale: Scale) -> list[Measurement]:
    rows = list(make_counters(scale.rows // 4))
    chosen = random.Random(7)
    found: list[Measurement] = []
    with connect(url_of(folder / "counters")) as storage:
        storage.admin.create(COUNTERS)
        for batch in batches(rows):
            storage.table(COUNTERS.name).upsert_many(batch)
        for size, increment, merges in (
            (1, _increment, {"merge of one row": _merge, "merge of one row, all its fields": _merge_all}),
            (_MANY, _increment_many, {f"merges of {_MANY} rows, upsert_many": _merge_many}),
            (_MANY, _increment_each, {f"merges of {_MANY} rows, one by one": _merge_each}),
        ):
            parts: list[list[Row]] = []

            def timed(write: Write, parts: list[list[Row]] = parts) -> float:
                begin = perf_counter()
                for part in parts:
                    with storage.transaction() as tx:
                        write(tx.table(COUNTERS.name), part)
                return (perf_counter() - begin) / len(parts)

            def floor(write: Write = increment, size: int = size, parts: list[list[Row]] = parts) -> float:
                parts[:] = [chosen.sample(rows, size) for _ in range(max(scale.samples // 4 // size, 2))]
                return timed(write, parts)

            contenders = [
                Contender(name, lambda write=write, parts=parts: timed(write, parts), 1.3)  # type: ignore[misc]
                for name, write in merges.items()
            ]
            against = "increment" if size == 1 else increment.__name__.lstrip("_").replace("_each", ", one by one")
            found += compare(AREA, f"{against}, LevelDB", floor, contenders, scale.rounds)
    return found


def _increment(table: StructuredTable, rows: Sequence[Row]) -> None:
    table.increment(row_key(rows[0]), "bytes", 1)


def _increment_many(table: StructuredTable, rows: Sequence[Row]) -> None:
    table.increment_many([(row_key(row), "bytes", 1) for row in rows])


def _increment_each(table: StructuredTable, rows: Sequence[Row]) -> None:
    for row in rows:
        table.increment(row_key(row), "bytes", 1)


def _merge(table: StructuredTable, rows: Sequence[Row]) -> None:
    table.upsert({"host": rows[0]["host"], "started": rows[0]["started"], "bytes": 1})


def _merge_all(table: StructuredTable, rows: Sequence[Row]) -> None:
    table.upsert(rows[0])


def _merge_many(table: StructuredTable, rows: Sequence[Row]) -> None:
    table.upsert_many([{"host": row["host"], "started": row["started"], "bytes": 1} for row in rows])


def _merge_each(table: StructuredTable, rows: Sequence[Row]) -> None:
    for row in rows:
        table.upsert({"host": row["host"], "started": row["started"], "bytes": 1})


def _of_threads(folder: Path, scale: Scale) -> list[Measurement]:
    each = scale.samples // 200
    rows = list(make_counters(_THREADS * each))
    raw = open_raw(folder / "synced")
    storage = connect(url_of(folder / "hot", durability="machine"))
    storage.admin.create(COUNTERS)

    def floor() -> float:
        begin = perf_counter()
        for row in rows:
            raw.put(raw_key(row), bytes(30), sync=True)
        return (perf_counter() - begin) / len(rows)

    try:
        return compare(
            AREA,
            "plyvel put, synced, one after the other",
            floor,
            [Contender("durable merges of one row by 8 threads", lambda: _hot(storage, rows[0], each), 0.5)],
            scale.rounds,
        )
    finally:
        raw.close()
        storage.close()


def _hot(storage: Storage, row: Row, each: int) -> float:
    start = Barrier(_THREADS + 1)
    before = storage.table(COUNTERS.name).read(row_key(row))

    def work() -> None:
        start.wait()
        for _ in range(each):
            with storage.transaction() as tx:
                tx.table(COUNTERS.name).upsert(row)

    threads = [Thread(target=work) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    start.wait()
    begin = perf_counter()
    for thread in threads:
        thread.join()
    seconds = perf_counter() - begin
    after = storage.table(COUNTERS.name).read(row_key(row))
    assert after is not None
    assert after.attempts - (before.attempts if before else 0) == _THREADS * each, "a merge was lost or aborted"
    return seconds / (_THREADS * each)
