"""Tasks that stage rows: batches in the types of a table, and the report of a task of `mapInArrow` to the driver."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from structable.spark_bridge.base.time_zones import midnights, time_zone
from structable.spi import InvalidFieldError, StagedWrite, Storage, TableSpecification, WriteJob
from structable.spi.arrow import arrow_schema
from structable.spi.authors import shown

_ZONE = "spark.sql.session.timeZone"

Counted = TypeVar("Counted")


@dataclass(frozen=True, slots=True)
class StagingReport(Generic[Counted]):
    """The rows that a task staged, None if there were none, and its counts."""

    staged: StagedWrite | None
    counts: Counted


def stage_task(storage: Storage, job: WriteJob, batches: Iterable[pa.RecordBatch]) -> StagedWrite:
    """Stage the rows of the task that runs here."""
    task = TaskContext.get()
    assert task is not None
    return storage.stage(job, task.partitionId(), task.attemptNumber(), batches)


def report_batch(report: StagingReport[Any] | Exception) -> pa.RecordBatch:
    """Return a batch for `collect_reports` with the report of a task, or the error that rejects its rows."""
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(report)], pa.binary())], names=["report"])


def collect_reports(
    frame: DataFrame, staging: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
) -> list[StagingReport[Any]]:
    """Stage rows in Spark's tasks and return the reports; raise the first refusal."""
    reports = [pickle.loads(row["report"]) for row in frame.mapInArrow(staging, "report binary").collect()]
    for report in reports:
        if isinstance(report, Exception):
            raise report
    return reports


def typed_batches(
    spec: TableSpecification, batches: Iterable[pa.RecordBatch], zone: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield batches with the table's types; columns that are not fields keep theirs.

    The types of a DataFrame are checked before its tasks run, so that only `castable` ones come here. Dates become
    midnights of the session's time zone, which is `zone` if the task does not know of another.

    Raises
    ------
    InvalidFieldError
        For a date that cannot be a timestamp because it is further away than 290,000 years.
    """
    # Spark also writes timestamps in the session's time zone, a null literal as a column of nulls, and large strings
    # if it is so configured; nothing else is copied.
    schema: pa.Schema | None = None
    for batch in batches:
        if schema is None:
            schema = _schema(spec, batch.schema)
        yield batch if batch.schema.equals(schema) else _cast(spec, batch, schema, zone)


def _schema(spec: TableSpecification, given: pa.Schema) -> pa.Schema:
    own = {field.name: field for field in arrow_schema(spec, [name for name in given.names if name in spec])}
    return pa.schema([own.get(field.name, field).with_nullable(True) for field in given])


def _cast(spec: TableSpecification, batch: pa.RecordBatch, schema: pa.Schema, zone: str | None) -> pa.RecordBatch:
    columns: list[pa.Array[Any]] = []
    for column, field in zip(batch.columns, schema, strict=True):
        try:
            if pa.types.is_date(column.type) and pa.types.is_timestamp(field.type) and field.type.tz is not None:
                columns.append(midnights(column, time_zone(_task_zone() or zone)))
            else:
                columns.append(column.cast(field.type))
        except (pa.ArrowInvalid, ValueError) as error:
            raise InvalidFieldError(spec.name, field.name, f"cannot be cast: {shown(str(error))}") from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _task_zone() -> str | None:
    """Return the time zone that the session of the running task was given; None if it has the driver's."""
    task = TaskContext.get()
    return None if task is None else task.getLocalProperty(_ZONE)
