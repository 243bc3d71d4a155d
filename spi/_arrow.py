"""Tables as Arrow: the schema of a specification, and rows to and from record batches. Imports pyarrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ._arrow_columns import CastError, arrow_type, cast_column
from ._changes import FEED_COLUMNS
from ._errors import InvalidFieldError
from ._fields import Field
from ._rules.arguments import check_field
from ._specification import TableSpecification
from ._values import Value

__all__ = ["arrow_schema", "arrow_type", "conform_batch", "conform_column", "feed_schema", "rows_to_batches"]


def arrow_schema(spec: TableSpecification, columns: Sequence[str] | None = None) -> pa.Schema:
    """Return the Arrow schema of a table's columns, in the given order; key fields are not nullable.

    Parameters
    ----------
    spec : TableSpecification
        The table.
    columns : sequence of str, optional
        The columns; all, in the table's order, if not given.
    """
    names = spec.field_names if columns is None else columns
    return pa.schema(
        [pa.field(name, arrow_type(spec.field(name)), nullable=name not in spec.primary_key) for name in names]
    )


def feed_schema(spec: TableSpecification, columns: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of changes of a table: `arrow_schema`, then the columns of a change feed."""
    kinds = (pa.string(), pa.int64(), pa.timestamp("us", tz="UTC"))
    added = [pa.field(name, kind, nullable=False) for name, kind in zip(FEED_COLUMNS, kinds, strict=True)]
    return pa.schema([*arrow_schema(spec, columns), *added])


def rows_to_batches(
    spec: TableSpecification,
    rows: Iterable[Mapping[str, Value]],
    columns: Sequence[str] | None = None,
    *,
    batch_size: int = 1024,
) -> Iterator[pa.RecordBatch]:
    """Yield rows as record batches of at most `batch_size` rows; a missing column is null."""
    schema = arrow_schema(spec, columns)
    chunk: list[Mapping[str, Value]] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == batch_size:
            yield _batch(schema, chunk)
            chunk = []
    if chunk:
        yield _batch(schema, chunk)


def _batch(schema: pa.Schema, rows: list[Mapping[str, Value]]) -> pa.RecordBatch:
    arrays = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def conform_batch(spec: TableSpecification, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with exactly the types of `arrow_schema`, for its own columns in its own order.

    Columns of other types are cast if no value changes; docs/spi.md has the table of the types that a field takes.

    Raises
    ------
    InvalidFieldError
        For an unknown or repeated column, a type that its field does not take, a value that does not fit, or damaged
        data.
    """
    if not isinstance(batch, pa.RecordBatch):
        raise InvalidFieldError(
            spec.name, "batches", f"a {type(batch).__name__} was given; a pyarrow.RecordBatch is needed"
        )
    if spec.keyless and not batch.schema.names:  # a batch built without columns would have no rows
        nulls: list[None] = [None] * batch.num_rows
        batch = batch.append_column(spec.fields[0].name, pa.array(nulls, arrow_type(spec.fields[0])))
    names = batch.schema.names
    for name in names:
        check_field(spec, name)
        if names.count(name) > 1:
            raise InvalidFieldError(spec.name, name, "appears twice in the batch; name each column once")
    arrays = [
        conform_column(spec.name, spec.field(name), column) for name, column in zip(names, batch.columns, strict=True)
    ]
    wanted = arrow_schema(spec, names)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([field.with_nullable(True) for field in wanted]))


def conform_column(table: str, field: Field, column: pa.Array[Any]) -> pa.Array[Any]:
    """Return a column of a batch in the Arrow type of a field; raises `InvalidFieldError` as `conform_batch` does."""
    try:
        return cast_column(field, column)
    except CastError as error:
        row = "" if error.position is None else f"row {error.position + 1} of the batch: "
        raise InvalidFieldError(table, field.name, f"{row}{error}") from error
