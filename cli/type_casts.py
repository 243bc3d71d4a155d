"""Casts batches of other programs' files to the table's types if no value changes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from structable.spi import Field, FieldType, TableSpecification
from structable.spi.arrow import arrow_type, conform_batch

__all__ = ["cast_batch"]


def cast_batch(spec: TableSpecification, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with the Arrow types of the table, for its own columns in its own order.

    Integers may have another width, floats another precision, decimals another precision and scale, timestamps another
    unit or zone. FLOAT takes 64-bit floats and rounds them, as the contract does. Texts stay texts. Raises
    `InvalidFieldError` for a column, and pyarrow.ArrowInvalid for a value that the cast would change.
    """
    columns = [
        _cast(spec.field(name), column) if name in spec else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return conform_batch(spec, pa.RecordBatch.from_arrays(columns, batch.schema.names))


def _cast(field: Field, column: pa.Array[Any]) -> pa.Array[Any]:
    wanted = arrow_type(field)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    given = column.type
    if given == wanted or not _related(field, given):
        return column
    if field.type is FieldType.FLOAT:
        cast = column.cast(wanted, safe=False)
        overflown = pc.and_(pc.is_inf(cast), pc.is_finite(column.cast(pa.float64())))
        if pc.any(overflown).as_py():
            raise pa.ArrowInvalid(f"field {field.name!r}: a value is beyond a 32-bit float")
        return cast
    return column.cast(wanted)


def _related(field: Field, given: pa.DataType) -> bool:
    kind = field.type
    if kind.integer_bits:
        return pa.types.is_integer(given)
    match kind:
        case FieldType.FLOAT | FieldType.DOUBLE:
            return pa.types.is_floating(given) or pa.types.is_integer(given)
        case FieldType.DECIMAL:
            return pa.types.is_decimal(given)
        case FieldType.DATE:
            return pa.types.is_date64(given)
        case FieldType.TIMESTAMP:
            return pa.types.is_timestamp(given) and given.tz is not None
        case FieldType.TIMESTAMP_NTZ:
            return pa.types.is_timestamp(given) and given.tz is None
    return False
