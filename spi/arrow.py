"""Tables as Arrow: the schema of a specification, and rows to and from record batches. Imports pyarrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from .changes import FEED_COLUMNS
from .errors import InvalidFieldError
from .fields import Field, FieldType
from .rules.fields import check_field
from .specification import TableSpecification
from .values import Value

__all__ = ["arrow_schema", "arrow_type", "conform_batch", "feed_schema", "rows_to_batches"]

_TYPES: dict[FieldType, pa.DataType] = {
    FieldType.BOOLEAN: pa.bool_(),
    FieldType.BYTE: pa.int8(),
    FieldType.SHORT: pa.int16(),
    FieldType.INT: pa.int32(),
    FieldType.LONG: pa.int64(),
    FieldType.FLOAT: pa.float32(),
    FieldType.DOUBLE: pa.float64(),
    FieldType.STRING: pa.string(),
    FieldType.BYTES: pa.binary(),
    FieldType.DATE: pa.date32(),
    FieldType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    FieldType.TIMESTAMP_NTZ: pa.timestamp("us"),
}


def arrow_type(field: Field) -> pa.DataType:
    """Return the Arrow type of a field."""
    if field.type is FieldType.DECIMAL:
        return pa.decimal128(field.precision or 0, field.scale or 0)
    return _TYPES[field.type]


def arrow_schema(spec: TableSpecification, columns: Sequence[str] | None = None) -> pa.Schema:
    """Return the Arrow schema of a table's columns, in the given order; key fields are not nullable.

    Parameters
    ----------
    spec : TableSpecification
        The table.
    columns : sequence of str, optional
        Which columns; all, in the table's order, if not given.
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

    Other encodings of the same type (large or view strings, dictionaries, another spelling of UTC) are cast, and so are
    narrower numbers, which a program stages that knows the table from before it was widened. Other types are rejected,
    as the contract coerces nothing.

    Raises
    ------
    InvalidFieldError
        For an unknown or repeated column, a wrong type, or damaged data of another encoding.
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
    wanted = arrow_schema(spec, names)
    arrays = [_conformed(spec, field, column) for field, column in zip(wanted, batch.columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([field.with_nullable(True) for field in wanted]))


def _conformed(spec: TableSpecification, wanted: pa.Field[Any], column: pa.Array[Any]) -> pa.Array[Any]:
    if column.type == wanted.type:
        return column
    if _plain(column.type) == wanted.type or pa.types.is_null(column.type) or _widens(column.type, wanted.type):
        try:
            column.validate(full=True)  # a cast of damaged data may read beyond them
        except pa.ArrowException as error:
            raise InvalidFieldError(spec.name, wanted.name, f"the Arrow data are not valid: {error}") from error
        return column.cast(wanted.type)
    raise InvalidFieldError(spec.name, wanted.name, f"is of the Arrow type {column.type}; {wanted.type} is needed")


def _widens(given: pa.DataType, wanted: pa.DataType) -> bool:
    kinds = (pa.types.is_signed_integer, pa.types.is_floating)
    return any(kind(given) and kind(wanted) and given.bit_width < wanted.bit_width for kind in kinds)


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_large_string(kind) or kind == pa.string_view():
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind) or kind == pa.binary_view():
        return pa.binary()
    if pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz in ("Etc/UTC", "+00:00", "Z", "GMT"):
        return pa.timestamp("us", tz="UTC")
    return kind
