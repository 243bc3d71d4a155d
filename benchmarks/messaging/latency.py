"""How long it takes from a commit to the handler of a consumer that waits in another process."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from statistics import quantiles

from benchmarks.measuring import Measurement, Scale, measured
from benchmarks.postgresql.database import Database
from structable.datasets import SystemData
from structable.spi import Storage, connect

from .topics import AREA, EVENTS, Event, prepared

_ROUND_TRIPS = 5
_ALLOWED = 5_000.0
"""Microseconds in addition to the round trips."""


def measure_postgresql(database: Database, scale: Scale) -> Iterator[Measurement]:
    """Measure the half against five round trips and five milliseconds."""
    with database.connection() as raw, database.storage() as storage:
        prepared(storage)
        floors: list[float] = []
        for _ in range(scale.rounds * 10):
            begun = time.perf_counter()
            raw.execute(b"SELECT 1", prepare=True)
            floors.append((time.perf_counter() - begun) * 1e6)
        found = _latencies(storage, database.ours.url, scale)
        middle = quantiles(floors, n=2)[0] * _ROUND_TRIPS + _ALLOWED
        halves = [quantiles(some, n=2)[0] for some in found]
        yield measured(
            AREA, "commit to handler, half, PostgreSQL", "5 round trips and 5 ms", [middle] * len(halves), halves, 1.0
        )


def measure_leveldb(storage: Storage, url: str, scale: Scale) -> Iterator[Measurement]:
    """Measure the half, and 99 of 100."""
    prepared(storage)
    found = _latencies(storage, url, scale)
    halves = [quantiles(some, n=2)[0] for some in found]
    nearly_all = [quantiles(some, n=100)[-1] for some in found]
    yield measured(AREA, "commit to handler, half, LevelDB", "", None, halves, 10_000.0)
    yield measured(AREA, "commit to handler, 99 of 100, LevelDB", "", None, nearly_all, 30_000.0)


def _latencies(storage: Storage, url: str, scale: Scale) -> list[list[float]]:
    """Return microseconds of single messages, in rounds."""
    system, samples = SystemData(storage), max(scale.samples // 200, 10)
    with _waiting(url) as handled:

        def once() -> float:
            time.sleep(0.02)  # so that the consumer waits
            system.run(lambda s: s.publish(EVENTS, Event(order=1, to="ada")))
            begun = time.monotonic()
            return float(handled.recv() - begun) * 1e6

        once()
        return [[once() for _ in range(samples)] for _ in range(max(1, scale.rounds))]


@contextmanager
def _waiting(url: str) -> Iterator[Connection]:
    """Yield the times at which a consumer in another process handles messages."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_wait, args=(url, theirs), daemon=True)
    process.start()
    assert ours.recv() == "ready"
    try:
        yield ours
    finally:
        process.kill()
        process.join()


def _wait(url: str, handled: Connection) -> None:
    with connect(url) as storage, SystemData.open(storage).consumer(EVENTS, group="waiting", start="end") as consumer:
        consumer.poll(wait=0)
        handled.send("ready")
        while True:
            consumer.process(lambda s, messages: handled.send(time.monotonic()), wait=60)
