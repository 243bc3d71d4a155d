"""Merges: one row in the auto-commit view against its statement, a job against a job that merges nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from time import perf_counter

import pyarrow as pa

from benchmarks.measuring import Contender, Measurement, Scale, compare
from structable.spi import Field, Storage, TableSpecification, WriteMode

from .database import AREA, Connection, Database

__all__ = ["measure"]

_KEYS = 1_000
_FIELDS = [Field.long("k"), Field.long("total"), Field.long("times")]
_SUMS = TableSpecification(
    "sums",
    _FIELDS,
    ["k"],
    options={"merge-engine": "aggregation", "fields.default-aggregate-function": "sum"},
)
_PLAIN = TableSpecification("plain", _FIELDS, ["k"])
_BY_HAND = (
    b"INSERT INTO totals AS t VALUES (%s, %s, 1) ON CONFLICT (k) "
    b"DO UPDATE SET total = t.total + excluded.total, times = t.times + 1"
)


def measure(database: Database, scale: Scale) -> Iterator[Measurement]:
    """Measure merges."""
    with database.storage() as storage, database.connection() as raw:
        storage.admin.create(_SUMS)
        storage.admin.create(_PLAIN)
        raw.execute(b"CREATE TABLE totals (k bigint PRIMARY KEY, total bigint, times bigint)")
        with database.on_separate_cores(), database.storage() as near, database.connection() as near_raw:
            yield from _rows(near, near_raw, scale)
        yield from _jobs(storage, scale)


def _rows(storage: Storage, raw: Connection, scale: Scale) -> list[Measurement]:
    table = storage.table("sums")
    count = max(scale.samples // 20, 10)

    def floor() -> float:
        begin = perf_counter()
        for place in range(count):
            raw.execute(_BY_HAND, (place % _KEYS, place), prepare=True)
        return (perf_counter() - begin) / count

    def ours() -> float:
        begin = perf_counter()
        for place in range(count):
            table.upsert({"k": place % _KEYS, "total": place, "times": 1})
        return (perf_counter() - begin) / count

    against = "psycopg: INSERT ... ON CONFLICT DO UPDATE"
    return compare(AREA, against, floor, [Contender("merge of a row, auto-commit", ours, 1.2)], scale.rounds)


def _jobs(storage: Storage, scale: Scale) -> list[Measurement]:
    """Half of the rows already exist."""
    columns: list[pa.Array[pa.Int64Scalar]] = [pa.array(range(scale.rows), pa.int64())] * 3
    rows = pa.record_batch(columns, [field.name for field in _FIELDS])

    def job(spec: TableSpecification) -> float:
        storage.admin.drop(spec.name)
        storage.admin.create(spec)
        _write(storage, spec, [rows.slice(0, scale.rows // 2)])
        begin = perf_counter()
        _write(storage, spec, [rows])
        return (perf_counter() - begin) / scale.rows

    merging = Contender("write job that merges", lambda: job(_SUMS), 1.4)
    return compare(AREA, "a job in mode upsert of a table without an engine", lambda: job(_PLAIN), [merging], 3)


def _write(storage: Storage, spec: TableSpecification, batches: list[pa.RecordBatch]) -> None:
    job = storage.begin_write(spec.name, mode=WriteMode.UPSERT, job_id=f"job-{os.urandom(8).hex()}")
    storage.commit_write(job, [storage.stage(job, 0, 0, batches)])
