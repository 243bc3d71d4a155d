"""Rows of a query as Arrow batches: the server sends them by COPY, and NumPy cuts a column from many rows at a time.

In COPY's binary format a row is the number of its columns, then each value after its length. The offsets of values are
computed for all rows of a batch at once, column by column; Arrow then cuts out texts and bytes. Groups come in the same
way, with sums as texts of any number of digits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from psycopg.abc import Buffer

from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.sql.types import stored_type
from structable.spi import AggregateFunction, Aggregation, DataCorruptionError, Field, FieldType
from structable.spi.arrow import aggregate_schema, arrow_type, fitting_batches
from structable.spi.authors import result_fields

from .split_state import SplitState

UNSYNCHRONISED = "set local synchronize_seqscans = off"
"""The command that makes a scan begin at its first page instead of joining another: splits gain nothing by it."""
_BATCH_BYTES = 1 << 20
"""Approximate size of a batch."""
_MOST_ROWS = 20_000
_COLUMN_BYTES = 32 << 10
"""The minimum number of bytes of a column in a very wide batch, so that the fixed cost of batch and column pays off."""
_MOST_BYTES = 16 << 20
_COUNT_WIDTH = 2
_LENGTH = np.dtype(">i4")
_TEXTS = (FieldType.STRING, FieldType.BYTES, FieldType.DECIMAL)
_WIDEST = 76
"""The digits of Arrow's widest decimals, more than any sum over a table has."""

Array = Any
"""A pyarrow.Array."""
Numbers = npt.NDArray[Any]


def read_rows(connection: ServerConnection, state: SplitState, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split, in no order; if they are not read to their end, the connection is closed.

    The connection is in a transaction of the plan's snapshot, after `UNSYNCHRONISED`.
    """
    fields = [state.spec.field(name) for name in state.columns]
    for arrays in copied_arrays(connection, state.whole_query, fields):
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def read_groups(connection: ServerConnection, state: SplitState, aggregation: Aggregation) -> Iterator[pa.RecordBatch]:
    """Yield the groups of a split, in no order; if they are not read to their end, the connection is closed.

    The connection is in a transaction of the plan's snapshot, after `UNSYNCHRONISED`.
    """
    fields = result_fields(state.spec, aggregation)
    sums = {str(one) for one in aggregation.functions if one.function is AggregateFunction.SUM}
    sent = [Field.string(field.name) if field.name in sums else field for field in fields]
    schema = aggregate_schema(state.spec, aggregation)
    for arrays in copied_arrays(connection, state.whole_query, sent):
        columns = [
            array.cast(pa.decimal256(_WIDEST, field.scale or 0)) if field.name in sums else array
            for array, field in zip(arrays, fields, strict=True)
        ]
        yield from fitting_batches(aggregation, pa.table(columns, names=schema.names), schema)


def copied_arrays(connection: ServerConnection, query: str, fields: Sequence[Field]) -> Iterator[list[Array]]:
    """Yield the columns of a query's rows, some at a time; if they are not read to their end, closes the connection."""
    size = max(_BATCH_BYTES, min(_COLUMN_BYTES * len(fields), _MOST_BYTES))
    for rows in connection.copy_out(f"copy ({_texted(query, fields)}) to stdout (format binary)", size, _MOST_ROWS):
        yield _arrays(rows, fields)


def _texted(query: str, fields: Sequence[Field]) -> str:
    """Return a query with decimals as texts."""
    if all(field.type is not FieldType.DECIMAL for field in fields):
        return query
    names = [f"c{place}" for place in range(len(fields))]
    wanted = [
        f"{name}::text" if field.type is FieldType.DECIMAL else name for name, field in zip(names, fields, strict=True)
    ]
    return f"select {', '.join(wanted)} from ({query}) as found ({', '.join(names)})"


def _arrays(rows: list[Buffer], fields: Sequence[Field]) -> list[Array]:
    """Return the columns of rows in COPY's form."""
    count = len(rows)
    lengths = np.fromiter(map(len, rows), np.int64, count)
    data = np.frombuffer(b"".join(rows), np.uint8)
    places = np.cumsum(lengths) - lengths + _COUNT_WIDTH
    every_second = pa.array(np.arange(0, 2 * count, 2))
    arrays = []
    for field in fields:
        sizes = _gathered(data, places, _LENGTH).astype(np.int64)
        places += _LENGTH.itemsize
        valid: Numbers | None = None
        if sizes.min() < 0:
            valid = sizes >= 0
            sizes[~valid] = 0
        if field.type in _TEXTS:
            arrays.append(_texts(field, data, places, sizes, valid, every_second))
        else:
            arrays.append(_numbers(field, data, places, valid))
        places += sizes
    return arrays


def _gathered(data: Numbers, places: Numbers, kind: np.dtype[Any]) -> Numbers:
    width = kind.itemsize
    windows = np.lib.stride_tricks.sliding_window_view(data, width)
    return windows[places].view(kind).reshape(len(places))


def _numbers(field: Field, data: Numbers, places: Numbers, valid: Numbers | None) -> Array:
    kind: Any = arrow_type(field)
    sent = np.dtype(stored_type(field).numpy)
    validity = None
    if valid is None:
        numbers = _gathered(data, places, sent)
    elif valid.any():
        numbers = np.zeros(len(places), sent)
        numbers[valid] = _gathered(data, places[valid], sent)
        flags: Any = np.packbits(valid, bitorder="little")
        validity = pa.py_buffer(flags)
    else:
        return pa.nulls(len(places), kind)
    numbers = arrow_numbers(field, numbers)
    content: Any = np.packbits(numbers, bitorder="little") if field.type is FieldType.BOOLEAN else numbers
    return pa.Array.from_buffers(kind, len(places), [validity, pa.py_buffer(content)])


def _texts(
    field: Field, data: Numbers, places: Numbers, sizes: Numbers, valid: Numbers | None, every_second: Array
) -> Array:
    """Return the array of variable-length values: every second element between `places` and their ends."""
    count = len(places)
    bounds: Any = np.empty(2 * count + 1, np.int32)
    bounds[0:-1:2] = places
    bounds[1::2] = places + sizes
    bounds[-1] = bounds[-2]
    kind: Any = pa.binary() if field.type is FieldType.BYTES else pa.string()
    content: Any = data
    between: Array = pa.Array.from_buffers(kind, 2 * count, [None, pa.py_buffer(bounds), pa.py_buffer(content)])
    wanted = every_second if valid is None else pa.array(np.arange(0, 2 * count, 2), mask=~valid)
    found: Array = between.take(wanted)
    return found.cast(arrow_type(field)) if field.type is FieldType.DECIMAL else found


def arrow_numbers(field: Field, sent: Numbers) -> Numbers:
    """Return Arrow's numbers for numbers from the server; rejects numbers that would turn into other values."""
    kind, stored = field.type, stored_type(field)
    if stored.bounds is not None and len(sent):
        (least, greatest), low, high = stored.bounds, int(sent.min()), int(sent.max())
        if low < least or high > greatest:
            found = low if low < least else high
            unit = f" {'days' if kind is FieldType.DATE else 'microseconds'} since 2000" if stored.shift else ""
            raise DataCorruptionError(
                f"field {field.name!r} holds {found}{unit}, outside the range of {kind.value}: it was not written by "
                "structable"
            )
    numbers: Numbers = sent.astype("i1" if kind is FieldType.BYTE else sent.dtype.newbyteorder("="))
    if stored.shift:
        numbers += stored.shift
    return numbers
