"""Four client processes at once: commits of separate rows, and increments of one shared row."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks.measuring import Contender, Measurement, Scale, compare
from benchmarks.rows import TABLE, Row, make_rows
from structable.spi import Storage, TransactionConflictError, connect

from .database import AREA, Database

if TYPE_CHECKING:
    import happybase

_PROCESSES = 4
_HOT = ("hot", 0)
_STARTED = 60.0
_SPAWN = multiprocessing.get_context("spawn")

Work = Callable[[int], int]
"""Does the given number of operations, and returns the number of attempts they took."""


def measure(database: Database, scale: Scale) -> Iterator[Measurement]:
    """Measure commits and increments."""
    count = max(scale.samples // 200, 10)
    with database.storage() as storage:
        host, started = _HOT
        values: Row = {"status": "", "path": "", "bytes": 0, "attempts": 0, "cost": 0.0, "done": False}
        storage.table(TABLE).upsert({"host": host, "started": started, **values})
    with ExitStack() as stack:
        pipes = [stack.enter_context(_client(database, number, count * _PROCESSES)) for number in range(_PROCESSES)]

        def all_of(name: str, clients: list[Connection], each: int) -> float:
            return _seconds(clients, name, each)[0] / (each * len(clients))

        yield from compare(
            AREA,
            "the same by one process",
            lambda: all_of("commit", pipes[:1], count * 2),
            [Contender("transaction of one row, 4 processes", lambda: all_of("commit", pipes, count), 0.5)],
            scale.rounds,
        )
        yield from compare(
            AREA,
            "atomicIncrement of one cell, 4 processes",
            lambda: all_of("tick", pipes, count),
            [Contender("transaction of one row, 4 processes", lambda: all_of("commit", pipes, count))],
            scale.rounds,
        )
        yield from _hot(database, pipes, count)


def _hot(database: Database, pipes: list[Connection], count: int) -> Iterator[Measurement]:
    seconds, attempts = _seconds(pipes, "increment", count)
    with database.storage() as storage:
        row = storage.table(TABLE).read(_HOT)
    done = count * len(pipes)
    assert row is not None
    assert row.bytes == done, f"{row.bytes} increments are there instead of {done}"
    for name, figure, unit in (
        ("increments of one row by 4 processes", done / seconds, "/s"),
        ("attempts at them", attempts / done, "each"),
    ):
        yield Measurement(AREA, name, math.nan, figure, figure, None, 0.0, "", unit)


def _seconds(pipes: list[Connection], name: str, count: int) -> tuple[float, int]:
    """Let each client do the given number of operations; return their elapsed times, and the attempts made."""
    begin = perf_counter()
    for pipe in pipes:
        pipe.send((name, count))
    attempts = sum(pipe.recv() for pipe in pipes)
    return perf_counter() - begin, attempts


@contextmanager
def _client(database: Database, number: int, count: int) -> Iterator[Connection]:
    here, there = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_serve, args=(there, database.elsewhere, number, count), daemon=True)
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


def _serve(pipe: Connection, database: Database, number: int, count: int) -> None:
    with connect(database.url) as storage, database.connection() as raw:
        works = {
            "commit": _commits(storage, number, count),
            "increment": _increments(storage),
            "tick": _ticks(raw, database),
        }
        works["commit"](1)
        works["tick"](1)
        pipe.send("ready")
        try:
            while True:
                name, amount = pipe.recv()
                pipe.send(works[name](amount))
        except EOFError:
            return


def _commits(storage: Storage, number: int, count: int) -> Work:
    rows = [{**row, "host": f"client-{number}"} for row in make_rows(count)]
    done = 0

    def work(amount: int) -> int:
        nonlocal done
        for _ in range(amount):
            with storage.transaction() as tx:
                tx.table(TABLE).upsert(rows[done % count])
            done += 1
        return amount

    return work


def _ticks(raw: happybase.Connection, database: Database) -> Work:
    table = raw.table(database.raw_name)

    def work(amount: int) -> int:
        for _ in range(amount):
            table.counter_inc(b"counter", b"x:n")
        return amount

    return work


def _increments(storage: Storage) -> Work:
    def work(amount: int) -> int:
        attempts = done = 0
        while done < amount:
            attempts += 1
            try:
                with storage.transaction() as tx:
                    tx.table(TABLE).increment(_HOT, "bytes")
                done += 1
            except TransactionConflictError:
                continue
        return attempts

    return work
