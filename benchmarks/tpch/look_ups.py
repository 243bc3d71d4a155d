"""Joins of few keys with a large table by looking them up, compared with Spark's join that reads the whole table."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from time import perf_counter
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks.measuring import Contender, Measurement, Scale, compare
from structable.spark_bridge import TableRef, lookup_join
from structable.spi import Field, TableSpecification, connect
from structable.spi.arrow import arrow_schema

from .contests import AREA

_SPEC = TableSpecification("looked_up", [Field.long("id"), Field.double("cost"), Field.string("note")], ["id"])
_BATCH = 50_000
_SHARE = 100
"""One row in this number is looked up; a separate query plans a hundredth of these."""
_RUNTIME_FILTERS = "spark.sql.optimizer.dynamicPartitionPruning.enabled"


def look_up_join(store: str, session: SparkSession, url: str, scale: Scale, rounds: int) -> Iterator[Measurement]:
    """Measure the look-up of 1 % of a table's keys, 10,000 of 1,000,000 at full scale, and a runtime filter of 100."""
    records = 10 * scale.records
    _load(url, records)
    keys, few = session.range(0, records, _SHARE), session.range(0, records, _SHARE * _SHARE)
    table = session.read.format("structable").option("url", url).option("table", _SPEC.name).load()
    ref = TableRef(url, _SPEC.name)
    wanted = records // _SHARE

    def plain(side: DataFrame = keys, rows: int = wanted) -> float:
        session.conf.set(_RUNTIME_FILTERS, "false")
        try:
            return _timed(side.join(table, "id"), rows)
        finally:
            session.conf.unset(_RUNTIME_FILTERS)

    def planned(side: DataFrame, rows: int) -> float:
        return _timed(side.join(table, "id"), rows)

    def ours() -> float:
        return _timed(lookup_join(keys, ref, "id", ["cost", "note"]), wanted)

    against = "Spark's join of the same, which reads all rows"
    name = f"look-up join of {wanted:,} keys with {records:,} rows, {store}"
    filtered = Contender(f"plain join of the same with a runtime filter, {store}", partial(planned, keys, wanted))
    yield from compare(AREA, against, plain, [Contender(name, ours, 0.2), filtered], rounds)
    least = len(range(0, records, _SHARE * _SHARE))
    name = f"plain join of {least:,} keys with {records:,} rows with a runtime filter, {store}"
    contenders = [Contender(name, partial(planned, few, least))]
    yield from compare(AREA, against, partial(plain, few, least), contenders, rounds)


def _load(url: str, records: int) -> None:
    with connect(url) as storage:
        storage.admin.create(_SPEC)
        job = storage.begin_write(_SPEC.name, mode="insert", job_id="looked up")
        storage.commit_write(job, [storage.stage(job, 0, 0, _batches(records))])


def _batches(records: int) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(_SPEC)
    for begin in range(0, records, _BATCH):
        ids = range(begin, min(begin + _BATCH, records))
        rows: dict[str, list[Any]] = {
            "id": list(ids),
            "cost": [n / 4 for n in ids],
            "note": [f"note {n % 97}" for n in ids],
        }
        yield pa.RecordBatch.from_pydict(rows, schema=schema)


def _timed(frame: DataFrame, rows: int) -> float:
    """Plan and compute a frame, and return the seconds that took."""
    begin = perf_counter()
    found = frame.selectExpr("sum(cost)", "count(note)").collect()[0][1]
    assert found == rows
    return perf_counter() - begin
