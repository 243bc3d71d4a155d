"""Transactions of many rows, each against one `mutateRows` of the same rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from time import perf_counter

from benchmarks.measuring import Contender, Measurement, Scale, compare
from benchmarks.rows import TABLE, make_rows

from .database import AREA, VALUE, Database, settle

__all__ = ["measure"]

_COUNTER = b"x:n"


def measure(database: Database, scale: Scale) -> Iterator[Measurement]:
    """Measure transactions, of rows that are there already, picked at random and replaced."""
    yield from _of_rows(database, 50, max(scale.samples // 500, 5), scale, 4.5)
    yield from _of_rows(database, 500, max(scale.samples // 2_000, 2), scale, 3.0)
    yield from _of_one(database, max(scale.samples // 100, 10), scale)


def _of_rows(database: Database, size: int, count: int, scale: Scale, goal: float) -> list[Measurement]:
    pairs = list(zip(database.cells, make_rows(len(database.cells)), strict=True))
    chosen = [pairs[:size]]
    with database.connection() as connection, database.storage() as storage:
        raw = connection.table(database.raw_name)

        def floor() -> float:
            chosen[:] = [random.sample(pairs, size) for _ in range(count)]
            begin = perf_counter()
            for some in chosen:
                batch = raw.batch()
                for (key, value), _ in some:
                    batch.put(key, {VALUE: value})
                batch.send()
            return (perf_counter() - begin) / count

        def ours() -> float:
            seconds = 0.0
            for some in chosen:
                rows = [row for _, row in some]
                begin = perf_counter()
                with storage.transaction() as tx:
                    tx.table(TABLE).upsert_many(rows)
                seconds += perf_counter() - begin
                settle(storage)
            return seconds / count

        def in_a_row() -> float:
            given = [[row for _, row in some] for some in chosen]
            begin = perf_counter()
            for rows in given:
                with storage.transaction() as tx:
                    tx.table(TABLE).upsert_many(rows)
            settle(storage)
            return (perf_counter() - begin) / count

        return compare(
            AREA,
            f"mutateRows of the same {size} rows, one cell each",
            floor,
            [
                Contender(f"transaction of {size} rows, until it is committed", ours, goal),
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
