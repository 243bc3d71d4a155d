"""A whole scan to rows, and to Arrow, planning included."""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter

from benchmarks.measuring import Contender, Measurement, Scale, compare
from benchmarks.rows import TABLE

from .database import AREA, VALUE, Database

_PAGE = 2_000  # rows: the largest page that structable requests


def measure(database: Database, scale: Scale) -> Iterable[Measurement]:
    """Measure scans of the same cells."""
    expected = len(database.cells)
    with database.connection() as connection, database.storage() as storage:
        raw = connection.table(database.name)

        def floor() -> float:
            rows = 0
            begin = perf_counter()
            for _key, columns in raw.scan(row_start=b"\1", columns=[b"x"], batch_size=_PAGE):
                if columns[VALUE]:
                    rows += 1
            seconds = perf_counter() - begin
            assert rows == expected
            return seconds / rows

        def to_rows() -> float:
            rows = 0
            begin = perf_counter()
            for row in storage.table(TABLE).scan():
                if row.attempts is not None:
                    rows += 1
            seconds = perf_counter() - begin
            assert rows == expected
            return seconds / rows

        def to_arrow() -> float:
            rows = 0
            begin = perf_counter()
            with storage.plan_scan(TABLE) as plan:
                for split in plan.splits:
                    for batch in storage.read_split(split):
                        rows += batch.num_rows
            seconds = perf_counter() - begin
            assert rows == expected
            return seconds / rows

        return compare(
            AREA,
            "Table.scan of the same cells, values not decoded",
            floor,
            [Contender("scan to rows", to_rows, 1.5), Contender("scan to Arrow", to_arrow, 1.3)],
            scale.rounds,
        )
