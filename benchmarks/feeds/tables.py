"""The table without a feed and the one with, and what is measured of both on every store."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from time import perf_counter

import pyarrow as pa

from benchmarks.measuring import Contender, Measurement, Scale, compare
from benchmarks.rows import Row, batches, make_rows, row_key, specification
from structable.spi import FEED_COLUMNS, ScanSplit, Storage

AREA = "feeds"
PLAIN = specification().evolve(name="plain")
FED = PLAIN.evolve(name="fed", options={"changelog-producer": "lookup"})


def fill(storage: Storage, table: str, rows: Iterable[Row]) -> None:
    """Put rows, 1,000 a transaction."""
    for batch in batches(rows):
        storage.table(table).upsert_many(batch)


def upsert_batches(storage: Storage, table: str, given: Sequence[list[Row]]) -> float:
    """Return the seconds per row of transactions of one batch each."""
    begin = perf_counter()
    for batch in given:
        with storage.transaction() as tx:
            tx.table(table).upsert_many(batch)
    return (perf_counter() - begin) / sum(map(len, given))


def read_and_write(storage: Storage, table: str, rows: Sequence[Row]) -> float:
    """Return the seconds per transaction that reads a row and changes a field of it."""
    salt = random.getrandbits(40)
    begin = perf_counter()
    for row in rows:
        with storage.transaction() as tx:
            view = tx.table(table)
            found = view.read(row_key(row))
            assert found is not None
            view.upsert({**found, "bytes": salt})
    return (perf_counter() - begin) / len(rows)


def reading(storage: Storage, store: str, scale: Scale, goal: float) -> list[Measurement]:
    """Measure the feed of new rows as Arrow batches, compared with a scan of as many rows."""
    for spec in (PLAIN, FED):
        storage.admin.drop(spec.name)
        storage.admin.create(spec)
        fill(storage, spec.name, make_rows(scale.rows))
    feed = storage.changes(FED.name)

    def read(splits: Iterable[ScanSplit], columns: int) -> float:
        begin, count = perf_counter(), 0
        for split in splits:
            for batch in storage.read_split(split):
                assert isinstance(batch, pa.RecordBatch)
                assert batch.num_columns == columns
                count += batch.num_rows
        assert count == scale.rows
        return (perf_counter() - begin) / count

    def scanned() -> float:
        with storage.plan_scan(PLAIN.name) as plan:
            return read(plan.splits, len(PLAIN.fields))

    def changes() -> float:
        return read(feed.plan().splits, len(PLAIN.fields) + len(FEED_COLUMNS))

    contender = Contender("changes to Arrow, per image", changes, goal)
    return compare(AREA, f"scan to Arrow, per row, {store}", scanned, [contender], scale.rounds)
