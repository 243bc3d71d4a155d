"""Batches as Spark hands them to a task, in the types of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from structable.spi import TableSpecification
from structable.spi.arrow import arrow_schema

__all__ = ["typed_batches"]


def typed_batches(spec: TableSpecification, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches with the table's types; columns that are no fields keep theirs."""
    # Spark writes timestamps in the session's time zone, a null literal as a column of nulls, and large strings if
    # it is so configured. The types of a DataFrame are checked before its tasks run, so that this copies nothing else.
    schema: pa.Schema | None = None
    for batch in batches:
        if schema is None:
            schema = _schema(spec, batch.schema)
        yield batch if batch.schema.equals(schema) else batch.cast(schema)


def _schema(spec: TableSpecification, given: pa.Schema) -> pa.Schema:
    own = {field.name: field for field in arrow_schema(spec, [name for name in given.names if name in spec])}
    return pa.schema([own.get(field.name, field).with_nullable(True) for field in given])
