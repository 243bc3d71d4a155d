"""Partial aggregates in the types of a schema: a sum that exceeds its type is given in several rows. Imports pyarrow.

Each of these rows is a partial result, so that the caller adds the parts as it adds those of splits, and meets an
overflow of its own type in its own way.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from itertools import islice
from typing import Any

import pyarrow as pa

from .aggregates import Aggregation
from .exact_decimals import EXACT
from .table_options import AggregateFunction

__all__ = ["fitting_batches"]

_ROWS = 10_000
_COUNT, _SUM = AggregateFunction.COUNT, AggregateFunction.SUM


def fitting_batches(aggregation: Aggregation, groups: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield partial aggregates, with the columns of an aggregation, as batches of exactly the given schema.

    A sum becomes a number of the schema's type: an integer of 64 bits, or a decimal of the same scale or a larger one.
    """
    try:
        columns: list[Any] = [column.cast(field.type) for column, field in zip(groups.columns, schema, strict=True)]
        fitting = pa.Table.from_arrays(columns, schema=schema)
    except pa.ArrowInvalid:
        rows = _rows(aggregation, groups, schema)
        while part := list(islice(rows, _ROWS)):
            parts = zip(zip(*part, strict=True), groups.schema, schema, strict=True)
            arrays = [pa.array(values, was.type).cast(now.type) for values, was, now in parts]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        return
    for batch in fitting.combine_chunks().to_batches():
        if batch.num_rows:
            yield batch


def _rows(aggregation: Aggregation, groups: pa.Table, schema: pa.Schema) -> Iterator[tuple[object, ...]]:
    """Yield each group, then what its sums exceed their types by."""
    keys = len(aggregation.group_by)
    sums = [keys + place for place, one in enumerate(aggregation.functions) if one.function is _SUM]
    counts = [keys + place for place, one in enumerate(aggregation.functions) if one.function is _COUNT]
    largest = {place: _largest(schema.field(place).type, groups.field(place).type) for place in sums}
    for group in zip(*(column.to_pylist() for column in groups.columns), strict=True):
        row: list[Any] = list(group)
        left = {place: row[place] for place in sums}
        while True:
            for place, value in left.items():
                if value is not None:
                    row[place] = max(EXACT.minus(largest[place]), min(value, largest[place]))
                    left[place] = EXACT.subtract(value, row[place])
            yield tuple(row)
            left = {place: value for place, value in left.items() if value}
            if not left:
                break
            row = [*row[:keys], *[None] * len(aggregation.functions)]
            for place in counts:
                row[place] = 0


def _largest(kind: Any, own: Any) -> Decimal:  # noqa: ANN401 - types of numbers
    """Return the largest number of a type, integers or decimals, that has no more digits after the point than `own`."""
    if pa.types.is_int64(kind):
        return Decimal(2**63 - 1)
    unscaled = (10**kind.precision - 1) // 10 ** max(kind.scale - own.scale, 0)
    return Decimal(unscaled).scaleb(-min(kind.scale, own.scale), EXACT)
