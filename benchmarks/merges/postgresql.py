"""PostgreSQL: a write job that merges against one of plain upserts; auto-commit merges against hand-written SQL."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from time import perf_counter

import pyarrow as pa

from benchmarks.measuring import Contender, Measurement, Scale, compare
from benchmarks.postgresql.database import Connection, Database
from benchmarks.rows import Row, batches
from structable.spi import Storage, TableSpecification, WriteMode
from structable.spi.arrow import arrow_schema

from .counters import AREA, COUNTERS, PLAIN, make_counters

_BATCH = 10_000
_TABLE = """
CREATE TABLE counters (
    host text COLLATE "C" NOT NULL, started bigint NOT NULL, bytes bigint, attempts integer, cost double precision,
    done boolean, PRIMARY KEY (host, started)
)
"""
_NAMES = ", ".join(PLAIN.field_names)
_MERGE = f"""
INSERT INTO counters AS t ({_NAMES}) VALUES (%s, %s, %s, 1, %s, %s) ON CONFLICT (host, started) DO UPDATE SET
    bytes = coalesce(t.bytes + excluded.bytes, t.bytes, excluded.bytes), attempts = coalesce(t.attempts, 0) + 1,
    cost = greatest(t.cost, excluded.cost), done = coalesce(t.done OR excluded.done, t.done, excluded.done)
""".encode()


def measure(database: Database, scale: Scale) -> Iterator[Measurement]:
    """Measure both."""
    with database.storage() as storage:
        yield from _jobs(database, storage, scale)
    with database.on_separate_cores(), database.connection() as raw, database.storage() as storage:
        yield from _single(database, raw, storage, scale)


def _jobs(database: Database, storage: Storage, scale: Scale) -> list[Measurement]:
    """Half of the rows already exist."""
    rows = list(make_counters(scale.rows))

    def arrow(spec: TableSpecification, given: list[Row]) -> list[pa.RecordBatch]:
        return pa.Table.from_pylist(given, schema=arrow_schema(spec)).to_batches(max_chunksize=_BATCH)

    def job_of(spec: TableSpecification) -> float:
        storage.admin.drop(spec.name)
        storage.admin.create(spec)
        load = storage.begin_write(spec.name, mode=WriteMode.INSERT, job_id=f"load-{os.urandom(8).hex()}")
        storage.commit_write(load, [storage.stage(load, 0, 0, arrow(spec, rows[::2]))])
        with database.connection() as raw:
            database.vacuum(raw, database.ours)
        parts = [arrow(spec, rows[: len(rows) // 2]), arrow(spec, rows[len(rows) // 2 :])]
        begin = perf_counter()
        job = storage.begin_write(spec.name, mode=WriteMode.UPSERT, job_id=f"job-{os.urandom(8).hex()}")
        storage.commit_write(job, [storage.stage(job, number, 0, part) for number, part in enumerate(parts)])
        return (perf_counter() - begin) / len(rows)

    return compare(
        AREA,
        "the same job of plain upserts, PostgreSQL",
        lambda: job_of(PLAIN),
        [Contender("write job that merges", lambda: job_of(COUNTERS), 1.4)],
        max(scale.rounds - 2, 2),
    )


def _single(database: Database, raw: Connection, storage: Storage, scale: Scale) -> list[Measurement]:
    rows = list(make_counters(scale.rows // 10))
    raw.execute(b"DROP TABLE IF EXISTS counters")
    raw.execute(_TABLE.encode())
    storage.admin.drop(COUNTERS.name)
    storage.admin.create(COUNTERS)
    with raw.transaction():
        raw.cursor().executemany(_MERGE, [_values(row) for row in rows])
    for batch in batches(rows):
        storage.table(COUNTERS.name).upsert_many(batch)
    for schema in (database.raw, database.ours):
        database.vacuum(raw, schema)
    table, chosen = storage.table(COUNTERS.name), random.Random(7)
    picked: list[Row] = []

    def floor() -> float:
        picked[:] = chosen.sample(rows, max(scale.samples // 40, 20))
        begin = perf_counter()
        for row in picked:
            raw.execute(_MERGE, _values(row), prepare=True)
        return (perf_counter() - begin) / len(picked)

    def ours() -> float:
        begin = perf_counter()
        for row in picked:
            table.upsert(row)
        return (perf_counter() - begin) / len(picked)

    against = "psycopg insert ... on conflict do update, PostgreSQL"
    return compare(AREA, against, floor, [Contender("auto-commit merge of one row", ours, 1.2)], scale.rounds)


def _values(row: Row) -> tuple[object, ...]:
    return row["host"], row["started"], row["bytes"], row["cost"], row["done"]
