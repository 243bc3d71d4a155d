"""LevelDB: transactions with and without a feed, threads, and the newest changes of small and large feeds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from threading import Barrier, Thread
from time import perf_counter

from benchmarks.leveldb.stores import open_raw, url_of
from benchmarks.measuring import Contender, Measurement, Scale, compare
from benchmarks.merges.counters import COUNTERS, make_counters
from benchmarks.rows import Row, batches, make_rows, raw_key
from structable.spi import Storage, connect

from .tables import AREA, FED, PLAIN, fill, read_and_write, reading, upsert_batches

_THREADS = 8
_NEWEST = 1_000


def measure(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure all."""
    with connect(url_of(folder / "writes")) as storage:
        yield from _writes(storage, scale)
    with connect(url_of(folder / "durable", durability="machine")) as storage:
        yield from _threads(storage, folder, scale)
    with connect(url_of(folder / "reading")) as storage:
        yield from reading(storage, "LevelDB", scale, 1.6)
        yield from _growth(storage, scale)


def _writes(storage: Storage, scale: Scale) -> Iterator[Measurement]:
    rows = list(make_rows(scale.rows // 4))
    for spec in (PLAIN, FED):
        storage.admin.create(spec)
        fill(storage, spec.name, rows)
    chosen = random.Random(7)
    picked: list[Row] = []

    def floor() -> float:
        picked[:] = chosen.sample(rows, max(scale.samples // 10, 20))
        return read_and_write(storage, PLAIN.name, picked)

    contender = Contender("read and write a row, lookup", lambda: read_and_write(storage, FED.name, picked), 1.5)
    yield from compare(AREA, "the same without a feed, LevelDB", floor, [contender], scale.rounds)

    number = count(1)
    new: list[list[Row]] = []

    def floor_of_new() -> float:
        shift = next(number) << 41
        some = rows[: max(scale.rows // 20, 1_000)]
        new[:] = batches({**row, "started": int(str(row["started"])) + shift} for row in some)
        return upsert_batches(storage, PLAIN.name, new)

    contender = Contender("upsert_many of 1,000 new rows, lookup", lambda: upsert_batches(storage, FED.name, new), 2.3)
    yield from compare(AREA, "the same without a feed, LevelDB", floor_of_new, [contender], scale.rounds)


def _threads(storage: Storage, folder: Path, scale: Scale) -> Iterator[Measurement]:
    each = max(scale.samples // 200, 10)
    rows = list(make_rows(_THREADS * each))
    hot = COUNTERS.evolve(options={**COUNTERS.options, "changelog-producer": "lookup"})
    for spec in (PLAIN, FED, hot):
        storage.admin.create(spec)
    raw = open_raw(folder / "synced")

    def commits(table: str) -> float:
        def commit(part: list[Row]) -> None:
            for row in part:
                with storage.transaction() as tx:
                    tx.table(table).upsert({**row, "bytes": random.getrandbits(40)})

        return _in_threads([partial(commit, rows[number::_THREADS]) for number in range(_THREADS)], len(rows))

    def adds() -> float:
        row = next(iter(make_counters(1)))
        change = {"host": row["host"], "started": row["started"], "bytes": 1}

        def add() -> None:
            for _ in range(each):
                with storage.transaction() as tx:
                    tx.table(hot.name).upsert(change)

        return _in_threads([add] * _THREADS, len(rows))

    def synced() -> float:
        begin = perf_counter()
        for row in rows:
            raw.put(raw_key(row), bytes(30), sync=True)
        return (perf_counter() - begin) / len(rows)

    try:
        contender = Contender("durable commits of 8 threads, lookup", lambda: commits(FED.name), 1.2)
        floor = "the same without a feed, LevelDB"
        yield from compare(AREA, floor, lambda: commits(PLAIN.name), [contender], scale.rounds)
        contender = Contender("durable merges of one row by 8 threads, lookup", adds, 0.5)
        yield from compare(AREA, "plyvel put, synced, one after the other", synced, [contender], scale.rounds)
    finally:
        raw.close()


def _in_threads(works: list[Callable[[], None]], operations: int) -> float:
    start = Barrier(len(works) + 1)

    def run(work: Callable[[], None]) -> None:
        start.wait()
        work()

    workers = [Thread(target=run, args=(work,)) for work in works]
    for worker in workers:
        worker.start()
    start.wait()
    begin = perf_counter()
    for worker in workers:
        worker.join()
    return (perf_counter() - begin) / operations


def _growth(storage: Storage, scale: Scale) -> list[Measurement]:
    """Read the newest changes of feeds of very different length."""
    small, large = FED.evolve(name="small"), FED.evolve(name="large")
    few, many = max(scale.many_rows // 200, _NEWEST), scale.many_rows // 2
    for spec, rows in ((small, few), (large, many)):
        storage.admin.create(spec)
        fill(storage, spec.name, make_rows(rows))
    since = {}
    for spec in (small, large):
        since[spec.name] = storage.changes(spec.name).latest()
        storage.table(spec.name).upsert_many([{**row, "bytes": -1} for row in make_rows(_NEWEST // 2)])

    def newest(table: str) -> float:
        begin = perf_counter()
        found = sum(1 for _ in storage.changes(table).read(since[table]))
        assert found == 2 * (_NEWEST // 2)
        return perf_counter() - begin

    against = f"of a feed of {few:,}, LevelDB"
    contender = Contender(f"the newest 1,000 of {many:,} changes", lambda: newest(large.name), 1.5)
    return compare(AREA, against, lambda: newest(small.name), [contender], scale.rounds)
