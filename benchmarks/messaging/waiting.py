"""How long after a commit of another process a listener wakes that waits for it."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median, quantiles

from benchmarks.measuring import Measurement, Scale, measured
from benchmarks.postgresql.database import Database
from structable.spi import Field, TableSpecification, connect

_FED = TableSpecification(
    "fed", [Field.long("id"), Field.string("text")], ["id"], options={"changelog-producer": "input"}
)
_LONGEST = 30.0
_MILLISECONDS = 1_000
_APART = 0.03, 0.04
"""Seconds between two commits: signals of one channel within 20 ms may go together."""


def measure_leveldb(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure the delay of signals that the owner of the database counts in shared memory."""
    rounds = _delays(f"leveldb://{folder}/signals", scale)
    name, against = "commit to a waiting listener, LevelDB", "the goal itself"
    middles = [median(one) for one in rounds]
    yield measured("messaging", f"{name}, p50", against, None, middles, 10 * _MILLISECONDS)
    tails = [quantiles(one, n=100)[-1] for one in rounds]
    yield measured("messaging", f"{name}, p99", against, None, tails, 30 * _MILLISECONDS)


def measure_postgresql(database: Database, scale: Scale) -> Iterator[Measurement]:
    """Measure the delay of signals by NOTIFY."""
    rounds = _delays(database.ours.url, scale)
    floors = []
    with database.connection() as raw:
        for _ in rounds:
            trips = []
            for _ in range(max(scale.samples // 20, 10)):
                begun = time.perf_counter()
                raw.execute(b"select 1")
                trips.append(time.perf_counter() - begun)
            floors.append(5 * median(trips) * 1e6 + 5 * _MILLISECONDS)
    tails = ", ".join(f"{quantiles(one, n=100)[-1]:,.0f}" for one in rounds)
    yield measured(
        "messaging",
        "commit to a waiting listener, PostgreSQL, p50",
        "5 round trips and 5 ms",
        floors,
        [median(one) for one in rounds],
        1.0,
        note=f"p99 {tails}",
    )


def _delays(url: str, scale: Scale) -> list[list[float]]:
    """Return the microseconds from the return of each commit to the wake, by rounds."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    with connect(url) as storage:
        storage.admin.create(_FED)
        committing = context.Process(target=_commit, args=(url, theirs))
        committing.start()
        assert ours.recv() == "ready"
        with storage.listen([f"feed/{_FED.name}"]) as listener:
            dice = random.Random(7)

            def delay(number: int) -> float:
                time.sleep(dice.uniform(*_APART))
                while listener.wait(0):
                    continue
                ours.send(number)
                assert listener.wait(_LONGEST)
                woken = time.monotonic()
                committed: float = ours.recv()
                return max(0.0, woken - committed) * 1e6

            samples = max(scale.samples // 100, 10)
            delay(-1)
            rounds = [[delay(turn * samples + one) for one in range(samples)] for turn in range(scale.rounds)]
        ours.send(None)
        committing.join()
    return rounds


def _commit(url: str, orders: Connection) -> None:
    """Commit a row on each order, and answer with the time at which the commit returned."""
    with connect(url) as storage:
        table = storage.table(_FED.name)
        orders.send("ready")
        while (number := orders.recv()) is not None:
            table.upsert({"id": number, "text": "text"})
            orders.send(time.monotonic())
