"""Single rows: a read in the auto-commit view, and in a separate transaction."""

from __future__ import annotations

import random
from collections.abc import Iterable
from time import perf_counter

from benchmarks.measuring import Contender, Measurement, Scale, compare
from benchmarks.rows import TABLE, make_rows, row_key

from .database import AREA, Database


def measure(database: Database, scale: Scale) -> Iterable[Measurement]:
    """Measure reads, all from the table that structable has written."""
    keys = [(raw, row_key(row)) for (raw, _), row in zip(database.cells, make_rows(len(database.cells)), strict=True)]
    count = max(scale.samples // 40, 10)
    chosen = keys[:count]
    with database.connection() as connection, database.storage() as storage:
        raw, table = connection.table(database.name), storage.table(TABLE)

        def floor() -> float:
            chosen[:] = random.sample(keys, count)
            size = 0
            begin = perf_counter()
            for key, _ in chosen:
                size += len(raw.row(key))
            seconds = perf_counter() - begin
            assert size == count
            return seconds / count

        def ours() -> float:
            total = 0
            begin = perf_counter()
            for _, key in chosen:
                row = table.read(key)
                if row is not None and row.done:
                    total += row.attempts
            return (perf_counter() - begin) / count

        def in_transaction() -> float:
            begin = perf_counter()
            for _, key in chosen:
                with storage.transaction() as tx:
                    row = tx.table(TABLE).read(key)
                assert row is not None
            return (perf_counter() - begin) / count

        return compare(
            AREA,
            "Table.row of the same cell",
            floor,
            [Contender("read, auto-commit view", ours, 1.3), Contender("read in its own transaction", in_transaction)],
            scale.rounds,
        )
