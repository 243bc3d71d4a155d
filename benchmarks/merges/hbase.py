"""HBase: four processes that merge into one row, compared with four that increment it."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from time import perf_counter

from benchmarks.hbase.database import Database
from benchmarks.measuring import Measurement, Scale
from structable.spi import StructuredTable, TransactionConflictError, connect

from .counters import AREA, COUNTERS

_PROCESSES = 4
_STARTED = 60.0
_SPAWN = multiprocessing.get_context("spawn")
_HOT = ("hot", 0)


def measure(database: Database, scale: Scale) -> Iterator[Measurement]:
    """Measure both, alternately; neither has a goal."""
    each = max(scale.samples // 200, 10)
    with database.storage() as storage, ExitStack() as stack:
        storage.admin.create(COUNTERS)
        pipes = [stack.enter_context(_client(database)) for _ in range(_PROCESSES)]
        seconds: dict[str, float] = {"increment": 0.0, "merge": 0.0}
        attempts = dict.fromkeys(seconds, 0)
        for _ in range(max(scale.rounds // 2, 1)):
            for name in seconds:
                begin = perf_counter()
                for pipe in pipes:
                    pipe.send((name, each))
                attempts[name] += sum(pipe.recv() for pipe in pipes)
                seconds[name] += perf_counter() - begin
        done = max(scale.rounds // 2, 1) * each * _PROCESSES
        row = storage.table(COUNTERS.name).read(_HOT)
    assert row is not None
    assert row.bytes == 2 * done, f"the sum is {row.bytes} instead of {2 * done}"
    for name, plural in (("increment", "increments"), ("merge", "merges")):
        rate, tries = done / seconds[name], attempts[name] / done
        yield Measurement(AREA, f"{plural} of one row by 4 processes, HBase", math.nan, rate, rate, None, 0.0, "", "/s")
        yield Measurement(AREA, f"attempts at each of these {plural}", math.nan, tries, tries, None, 0.0, "", "")


@contextmanager
def _client(database: Database) -> Iterator[Connection]:
    here, there = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_serve, args=(there, database.url), daemon=True)
    process.start()
    there.close()
    try:
        if not here.poll(_STARTED):
            raise TimeoutError(f"a client did not start within {_STARTED:.0f} s")
        here.recv()
        yield here
    finally:
        here.close()
        process.join(_STARTED)


def _serve(pipe: Connection, url: str) -> None:
    with connect(url) as storage:
        storage.table(COUNTERS.name).read(_HOT)
        pipe.send("ready")
        try:
            while True:
                name, amount = pipe.recv()
                attempts = done = 0
                while done < amount:
                    attempts += 1
                    try:
                        with storage.transaction() as tx:
                            _add(tx.table(COUNTERS.name), name)
                        done += 1
                    except TransactionConflictError:
                        continue
                pipe.send(attempts)
        except EOFError:
            return


def _add(table: StructuredTable, name: str) -> None:
    if name == "merge":
        table.upsert({"host": _HOT[0], "started": _HOT[1], "bytes": 1})
    else:
        table.increment(_HOT, "bytes")
