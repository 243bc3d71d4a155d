"""A whole scan to Arrow, planning included, and to rows."""

from __future__ import annotations

from time import perf_counter

from benchmarks.measuring import Contender, Measurement, Scale, compare
from benchmarks.rows import TABLE

from .database import AREA, COLUMNS, Database

_COPY = f"COPY (SELECT {', '.join(COLUMNS)} FROM {TABLE}) TO STDOUT (FORMAT BINARY)".encode()


def measure(database: Database, scale: Scale) -> list[Measurement]:
    """Measure scans."""
    database.make(scale.rows)
    with database.connection() as raw, database.storage() as storage:

        def floor() -> float:
            size = 0
            begin = perf_counter()
            with raw.cursor().copy(_COPY) as copy:
                for block in copy:
                    size += len(block)
            return (perf_counter() - begin) / scale.rows

        def to_arrow() -> float:
            rows = 0
            begin = perf_counter()
            with storage.plan_scan(TABLE) as plan:
                for split in plan.splits:
                    for batch in storage.read_split(split):
                        rows += batch.num_rows
            seconds = perf_counter() - begin
            assert rows == scale.rows
            return seconds / rows

        def to_rows() -> float:
            rows = 0
            begin = perf_counter()
            for row in storage.table(TABLE).scan():
                if row.attempts is not None:
                    rows += 1
            seconds = perf_counter() - begin
            assert rows == scale.rows
            return seconds / rows

        return compare(
            AREA,
            "psycopg COPY out, binary, not decoded",
            floor,
            [Contender("scan to Arrow", to_arrow, 1.1), Contender("scan to rows", to_rows)],
            scale.rounds,
        )
