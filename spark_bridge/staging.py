"""Batches as Spark hands them to a task, in the types of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from structable.spi import InvalidFieldError, TableSpecification
from structable.spi.arrow import arrow_schema
from structable.spi.showing import shown

from .time_zones import midnights, time_zone

__all__ = ["typed_batches"]

_ZONE = "spark.sql.session.timeZone"


def typed_batches(
    spec: TableSpecification, batches: Iterable[pa.RecordBatch], zone: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield batches with the table's types; columns that are no fields keep theirs.

    The types of a DataFrame are checked before its tasks run, so that only `castable` ones come here. Dates become
    midnights of the session's time zone, which is `zone` if the task does not know of another.

    Raises
    ------
    InvalidFieldError
        For a date that is no timestamp, as it is further away than 290,000 years.
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
