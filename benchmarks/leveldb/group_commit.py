"""Durable commits of many threads: they share syncs of the log.

The floor is the time of as many commits one after the other, each synced separately: plyvel puts with `sync=True` in
one thread, each of which ends with LevelDB's fdatasync of its log. Ours is the wall time of eight threads that commit
transactions of one row each, divided by the number of all commits.
"""

from __future__ import annotations

from pathlib import Path
from threading import Barrier, Thread
from time import perf_counter

from benchmarks.measuring import Contender, Measurement, Scale, compare
from benchmarks.rows import TABLE, make_rows, raw_key, raw_value, specification
from structable.spi import connect

from .stores import open_raw, url_of

AREA = "group_commit"
_THREADS = 8


def measure(folder: Path, scale: Scale) -> list[Measurement]:
    """Measure durable commits."""
    each = scale.samples // 200
    rows = list(make_rows(_THREADS * each))
    encoded = [(raw_key(row), raw_value(row)) for row in rows]
    raw = open_raw(folder / "raw")
    storage = connect(url_of(folder / "ours", durability="machine"))
    storage.admin.create(specification())

    def floor() -> float:
        begin = perf_counter()
        for key, value in encoded:
            raw.put(key, value, sync=True)
        return (perf_counter() - begin) / len(encoded)

    def commit(start: Barrier, number: int) -> None:
        start.wait()
        for row in rows[number::_THREADS]:
            with storage.transaction() as tx:
                tx.table(TABLE).upsert(row)

    def ours(threads: int) -> float:
        start = Barrier(threads + 1)
        workers = [Thread(target=commit, args=(start, number)) for number in range(threads)]
        for worker in workers:
            worker.start()
        start.wait()
        begin = perf_counter()
        for worker in workers:
            worker.join()
        return (perf_counter() - begin) / (threads * each)

    try:
        return compare(
            AREA,
            "plyvel put, synced, one after the other",
            floor,
            [
                Contender("durable commits of 8 threads", lambda: ours(_THREADS), 0.35),
                Contender("durable commits of 1 thread", lambda: ours(1)),
            ],
            scale.rounds,
        )
    finally:
        raw.close()
        storage.close()
