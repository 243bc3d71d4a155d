"""Four busy processes on one database: the transactions of each, and of all together."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from math import nan
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.measuring import Contender, Measurement, Scale, compare
from benchmarks.rows import TABLE, make_rows, row_key
from structable.spi import Range, Storage, Value, connect

from .stores import load, url_of

AREA = "shares"
PROCESSES = 4
_SECONDS = 1.0
_SPAWN = multiprocessing.get_context("spawn")
_STARTED = 60.0


def _work(pipe: Connection, url: str, keys: list[tuple[Value, ...]]) -> None:
    with connect(url) as storage:
        pipe.send("ready")
        try:
            while True:
                seconds = pipe.recv()
                pipe.send(_transactions(storage, keys, seconds))
        except EOFError:
            return


def _transactions(storage: Storage, keys: list[tuple[Value, ...]], seconds: float) -> int:
    """Read rows, scan a few, and change two, again and again for some seconds."""
    done = 0
    end = perf_counter() + seconds
    while perf_counter() < end:
        some = random.sample(keys, 4)
        with storage.transaction() as tx:
            table = tx.table(TABLE)
            for key in some[:2]:
                row = table.read(key)
                assert row is not None
                table.upsert({"host": key[0], "started": key[1], "attempts": row.attempts ^ 1})
            table.multi_read(some)
            assert len(list(table.scan(Range.at_least(some[3]), limit=5))) > 0
        done += 1
    return done


class Crew:
    """Four processes that have a store open; the first owns the database."""

    def __init__(self, pipes: list[Connection]) -> None:
        self._pipes = pipes

    def work(self, seconds: float, processes: int = PROCESSES) -> list[int]:
        """Let some of them work at the same time, and return how many transactions each has made."""
        for pipe in self._pipes[:processes]:
            pipe.send(seconds)
        return [pipe.recv() for pipe in self._pipes[:processes]]


@contextmanager
def crew(url: str, keys: list[tuple[Value, ...]]) -> Iterator[Crew]:
    """Start the processes, one after the other, each with keys of its own."""
    with ExitStack() as stack:
        pipes = []
        for number in range(PROCESSES):
            here, there = _SPAWN.Pipe()
            process = _SPAWN.Process(target=_work, args=(there, url, keys[number::PROCESSES]), daemon=True)
            process.start()
            there.close()
            stack.callback(process.join, _STARTED)
            stack.callback(here.close)
            if not here.poll(_STARTED):
                raise TimeoutError(f"a process did not open the store within {_STARTED:.0f} s")
            here.recv()
            pipes.append(here)
        yield Crew(pipes)


def measure(folder: Path, scale: Scale) -> list[Measurement]:
    """Measure the shares of four processes, and their sum."""
    load(folder, scale.rows)
    keys = [row_key(row) for row in make_rows(scale.rows)]
    seconds = _SECONDS if scale.rounds > 2 else _SECONDS / 10
    with crew(url_of(folder / "ours"), keys) as processes:
        shares: list[float] = []

        def floor() -> float:
            [done] = processes.work(seconds, 1)
            return seconds / done

        def ours() -> float:
            done = processes.work(seconds)
            shares.append(max(done) / min(done))
            return seconds / sum(done)

        measured = compare(
            AREA,
            "the same in the owner alone",
            floor,
            [Contender("transactions of four processes on one database, each", ours)],
            scale.rounds,
        )
    ratios = sorted(shares[1:])
    middle = median(ratios)
    spread = (ratios[-1] - ratios[0]) / middle
    name = "the most transactions of a process, to the fewest"
    return [*measured, Measurement(AREA, name, nan, middle, middle, 2.0, spread, "", "times")]
