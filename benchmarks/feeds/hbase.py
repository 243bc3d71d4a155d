"""HBase: transactions of 50 rows with and without a feed, the rows read before or not."""

from __future__ import annotations

import random
from collections.abc import Iterator
from time import perf_counter

from benchmarks.hbase.database import Database
from benchmarks.measuring import Contender, Measurement, Scale, compare
from benchmarks.rows import Row, make_rows, row_key
from structable.spi import Storage

from .tables import AREA, FED, PLAIN, fill, reading

_ROWS = 50


def measure(database: Database, scale: Scale) -> Iterator[Measurement]:
    """Measure both, and reading the feed."""
    rows = list(make_rows(max(scale.rows // 20, 1_000)))
    with database.storage() as storage:
        for spec in (PLAIN, FED):
            storage.admin.create(spec)
            fill(storage, spec.name, rows)
        for reads, goal in ((True, 1.3), (False, 1.6)):
            yield from _of_fifty(storage, rows, scale, goal, reads=reads)
        small = Scale(max(scale.rows // 10, 1_000), rounds=max(scale.rounds // 2, 2))
        yield from reading(storage, "HBase", small, 1.3)


def _of_fifty(storage: Storage, rows: list[Row], scale: Scale, goal: float, *, reads: bool) -> list[Measurement]:
    chosen = random.Random(7)
    parts: list[list[Row]] = []

    def write(table: str) -> float:
        begin = perf_counter()
        for part in parts:
            with storage.transaction() as tx:
                view = tx.table(table)
                if reads:
                    assert len(view.multi_read([row_key(row) for row in part])) == len(part)
                view.upsert_many(part)
        return (perf_counter() - begin) / len(parts)

    def floor() -> float:
        salt = random.getrandbits(40)
        number = max(scale.samples // 500, 2)
        parts[:] = [[{**row, "bytes": salt} for row in chosen.sample(rows, _ROWS)] for _ in range(number)]
        return write(PLAIN.name)

    name = f"{_ROWS} rows, {'read before' if reads else 'not read'}, lookup"
    contender = Contender(name, lambda: write(FED.name), goal)
    return compare(AREA, "the same without a feed, HBase", floor, [contender], scale.rounds)
