"""The latency of a service's point updates during a throttled fill of a table, compared with an idle store."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from benchmarks.measuring import Measurement, Scale, measured
from structable.migrations import Migrator, Throttle
from structable.spi import Storage, connect

from .tables import AREA, TABLE, make, revision

__all__ = ["measure"]

_RATE = 2_000


def measure(url: str, folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure the 99th percentile of updates by key, alternately without and with a fill of 2,000 rows a second."""
    revisions = revision(folder)
    idle: list[float] = []
    busy: list[float] = []
    with connect(url) as storage, connect(url) as filling:
        for turn in range(-1, scale.rounds):
            make(storage, scale.rows)
            quiet = _percentile(storage, scale)
            background = Migrator(filling, revisions).up(background=True, throttle=Throttle(rows_per_second=_RATE))
            assert background is not None
            loud = _percentile(storage, scale)
            background.stop()
            if turn >= 0:
                idle.append(quiet)
                busy.append(loud)
    yield measured(AREA, "p99 of updates during a fill of 2,000 rows a second, PostgreSQL", "idle", idle, busy, 1.5)


def _percentile(storage: Storage, scale: Scale) -> float:
    """Return the 99th percentile of the updates of some rows, in microseconds."""
    table, dice = storage.table(TABLE.name), random.Random(7)
    seconds: list[float] = []
    for _ in range(max(100, scale.samples // 4)):
        row = {"id": dice.randrange(scale.rows), "hits": dice.randrange(1000)}
        begun = perf_counter()
        table.update(row)
        seconds.append(perf_counter() - begun)
    return sorted(seconds)[len(seconds) * 99 // 100] * 1e6
