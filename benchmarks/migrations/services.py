"""The latency of a service's point updates during a throttled fill of a table, compared with an idle store."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, sleep

from benchmarks.measuring import Measurement, Scale, measured
from structable.migrations import Migrator
from structable.spi import Storage, connect

from .tables import AREA, TABLE, make, revision

_RATE = 2_000


def measure(url: str, folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure the 99th percentile of updates by key, alternately without and with a fill of 2,000 rows a second."""
    revisions = revision(folder)
    idle: list[float] = []
    busy: list[float] = []
    with connect(url) as storage:
        for turn in range(-1, scale.rounds):
            make(storage, scale.rows)
            quiet = _percentile(storage, scale)
            with _filling(storage, url, revisions):
                loud = _percentile(storage, scale)
            if turn >= 0:
                idle.append(quiet)
                busy.append(loud)
    yield measured(AREA, "p99 of updates during a fill of 2,000 rows a second, PostgreSQL", "idle", idle, busy, 1.5)


@contextmanager
def _filling(storage: Storage, url: str, revisions: Path) -> Iterator[None]:
    """Let `structable migrate up` fill the table while the block runs: a process of its own, as operators run it.

    The schema change is over when the block begins.
    """
    command = [sys.executable, "-m", "structable.cli", "migrate", "up", url, "--folder", str(revisions)]
    runner = subprocess.Popen(
        [*command, "--rows-per-second", str(_RATE)], text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        while not any(one.changed for one in Migrator(storage, revisions).status()):
            if runner.poll() is not None:
                raise RuntimeError(f"the runner has ended: {runner.communicate()[1]}")
            sleep(0.05)
        yield
    finally:
        runner.send_signal(signal.SIGINT)
        runner.communicate()


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
