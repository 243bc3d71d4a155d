"""Decimals that travel to the JVM as integers: it makes its own of them much faster than of Arrow's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from structable.spi import FieldType, TableSpecification

from .types import spark_schema

__all__ = ["scaled_schema", "unscaled_batch"]


def scaled_schema(spec: TableSpecification, schema: StructType) -> StructType:
    """Return a schema with the decimals of a table in place of the longs that stand for them."""
    fields = [
        spark_schema(spec, [field.name]).fields[0] if spec.field(field.name).type is FieldType.DECIMAL else field
        for field in schema.fields
    ]
    return StructType(fields)


def unscaled_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch in a schema that has longs for decimals of at most 18 digits."""
    columns = [
        _unscaled(column) if pa.types.is_decimal(column.type) and pa.types.is_int64(wanted.type) else column
        for column, wanted in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _unscaled(column: pa.Array[Any]) -> pa.Array[Any]:
    data: Any = column.buffers()[1]
    # Of 16 bytes, little-endian, the lower half.
    words = np.frombuffer(data, np.int64)[2 * column.offset : 2 * (column.offset + len(column)) : 2]
    nulls = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    integers: pa.Array[Any] = pa.array(np.ascontiguousarray(words), mask=nulls)
    return integers
