"""Transactions of many rows, each against one `mutateRows` of the same rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from time import perf_counter

from benchmarks.measuring import Contender, Measurement, Scale, compare
from benchmarks.rows import TABLE, Row, make_rows

from .database import AREA, VALUE, Database, settle

_COUNTER = b"x:n"
_SIZES = ((50, 500, 4.5), (500, 2_000, 3.0))
"""Rows of a transaction, the share of the samples that a round runs as transactions, and the goal."""


Entry = tuple[Row, bytes, bytes]
"""A row, and its row key and value in HBase."""


def measure(database: Database, scale: Scale) -> Iterator[Measurement]:
    """Measure transactions that replace random existing rows, and transactions of new rows."""
    for size, share, goal in _SIZES:
        count = max(scale.samples // share, 2)
        yield from _of_rows(database, _present(database), f"{size} rows", size, count, scale, goal)
        yield from _of_rows(database, _new(database), f"{size} new rows", size, count, scale, goal)
    yield from _of_one(database, max(scale.samples // 100, 10), scale)


def _present(database: Database) -> Iterator[Entry]:
    """Yield random existing rows."""
    entries = [(row, *cell) for row, cell in zip(make_rows(len(database.cells)), database.cells, strict=True)]
    while True:
        yield from random.sample(entries, len(entries))


def _new(database: Database) -> Iterator[Entry]:
    """Yield new rows at random positions between the others, with keys and values of the same length."""
    used: set[int] = set()
    for row, key, value in _present(database):
        started = random.getrandbits(40)
        if started not in used:
            used.add(started)
            yield {**row, "started": started}, key[:-8] + started.to_bytes(8, "big"), value


def _of_rows(
    database: Database,
    entries: Iterator[Entry],
    what: str,
    size: int,
    count: int,
    scale: Scale,
    goal: float | None = None,
) -> list[Measurement]:
    chosen: list[list[Entry]] = []
    with database.connection() as connection, database.storage() as storage:
        raw = connection.table(database.raw_name)

        def floor() -> float:
            chosen[:] = [list({entry[1]: entry for entry in islice(entries, size)}.values()) for _ in range(count)]
            begin = perf_counter()
            for some in chosen:
                batch = raw.batch()
                for _, key, value in some:
                    batch.put(key, {VALUE: value})
                batch.send()
            return (perf_counter() - begin) / count

        def ours() -> float:
            seconds = 0.0
            for some in chosen:
                rows = [row for row, *_ in some]
                begin = perf_counter()
                with storage.transaction() as tx:
                    tx.table(TABLE).upsert_many(rows)
                seconds += perf_counter() - begin
                settle(storage)
            return seconds / count

        def in_a_row() -> float:
            given = [[row for row, *_ in some] for some in chosen]
            begin = perf_counter()
            for rows in given:
                with storage.transaction() as tx:
                    tx.table(TABLE).upsert_many(rows)
            settle(storage)
            return (perf_counter() - begin) / count

        return compare(
            AREA,
            f"mutateRows of the same {what}, one cell each",
            floor,
            [
                Contender(f"transaction of {what}, until it is committed", ours, goal),
                Contender("one after the other, until all are finalised", in_a_row),
            ],
            scale.rounds,
        )


def _of_one(database: Database, count: int, scale: Scale) -> list[Measurement]:
    rows = list(make_rows(len(database.cells)))
    with database.connection() as connection, database.storage() as storage:
        raw = connection.table(database.raw_name)

        def floor() -> float:
            begin = perf_counter()
            for _ in range(count):
                raw.counter_inc(b"counter", _COUNTER)
            return (perf_counter() - begin) / count

        def ours() -> float:
            chosen = random.sample(rows, count)
            begin = perf_counter()
            for row in chosen:
                with storage.transaction() as tx:
                    tx.table(TABLE).upsert(row)
            seconds = perf_counter() - begin
            settle(storage)
            return seconds / count

        return compare(
            AREA, "atomicIncrement of one cell", floor, [Contender("transaction of one row", ours)], scale.rounds
        )
