"""Data of other libraries as Arrow: frames of pandas and Polars, DuckDB's relations, tables. Imports pyarrow.

Objects that export Arrow's C interface are read through it, without their library. Only pandas needs code of its own,
for its missing values and its index.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ._error_texts import shown
from ._errors import InvalidFieldError

_NEEDED = (
    "a DataFrame of pandas or Polars, a relation of DuckDB, a pyarrow Table, RecordBatch or RecordBatchReader, "
    "or another object with __arrow_c_stream__ is needed"
)
_COLUMN = re.compile(r"Conversion failed for column (.*) with type")
_NOT_ARROW = ("Object", "Int128", "UInt128")
"""Polars' types that pyarrow cannot read; Polars exports Python objects as their addresses in memory."""


def schema_of(table: str, given: object) -> pa.Schema:
    """Return the given schema, or else the schema of the data."""
    if isinstance(given, pa.Schema):
        return given
    if hasattr(given, "__arrow_c_schema__") and not _is_pandas(given):
        return pa.schema(given)  # type: ignore[arg-type]  # the stubs do not know the interface
    with reader_of(table, given) as reader:
        return reader.schema


def record_batches(table: str, given: object) -> Iterable[pa.RecordBatch]:
    """Return the batches of data that `stage` takes: a table, a batch, a stream, or an iterable of batches."""
    if isinstance(given, pa.Table):
        return given.to_batches()
    if isinstance(given, pa.RecordBatch):
        return (given,)
    if _is_pandas(given):
        return _table_of_pandas(table, given, True).to_batches()
    if hasattr(given, "__arrow_c_stream__") and not isinstance(given, pa.RecordBatchReader):
        return _stream(table, given)
    return given  # type: ignore[return-value]  # an iterable of batches; anything else is rejected later


@contextlib.contextmanager
def reader_of(table: str, data: object, *, nan_is_null: bool | None = None) -> Iterator[pa.RecordBatchReader]:
    """Yield the batches of data, which are consumed once, and close their stream in the end.

    DuckDB's connection runs no other query until the stream is read or closed. A reader that is given stays open.

    Parameters
    ----------
    table : str
        The table's name, for messages.
    data : object
        As `Storage.load` takes it.
    nan_is_null : bool, optional
        Whether a NaN is a missing value; in a frame of pandas, if not given.

    Raises
    ------
    InvalidFieldError
        If pandas or Polars has a column that Arrow has no type for, or pandas two of one name.
    TypeError
        If the data are of another kind.
    """
    if nan_is_null is None:
        nan_is_null = _is_pandas(data)
    if _is_pandas(data):
        reader = _table_of_pandas(table, data, nan_is_null).to_reader()
    elif isinstance(data, pa.RecordBatchReader):
        reader = data
    elif isinstance(data, pa.Table):
        reader = data.to_reader()
    elif hasattr(data, "__arrow_c_stream__"):
        reader = _stream(table, data)
    elif hasattr(data, "__arrow_c_array__"):
        with _columns_needed(data):
            batch = pa.record_batch(data)
        reader = pa.RecordBatchReader.from_batches(batch.schema, [batch])
    else:
        raise _other_kind(data)
    with contextlib.nullcontext() if reader is data else reader:
        if nan_is_null:
            reader = pa.RecordBatchReader.from_batches(reader.schema, map(_without_nan, reader))
        yield reader


def _stream(table: str, data: Any) -> pa.RecordBatchReader:  # noqa: ANN401 - of any library
    if type(data).__module__.partition(".")[0] == "polars" and hasattr(data, "schema"):
        for column, kind in data.schema.items():
            if str(kind) in _NOT_ARROW:
                reason = f"is of the Polars type {kind}, which pyarrow cannot read; cast it before"
                raise InvalidFieldError(table, column, reason)
    with _columns_needed(data):
        return pa.RecordBatchReader.from_stream(data)


@contextlib.contextmanager
def _columns_needed(data: object) -> Iterator[None]:
    try:
        yield
    except pa.ArrowInvalid as error:  # for a single array, for example
        raise _other_kind(data, f" ({error})") from error


def _other_kind(data: object, fault: str = "") -> TypeError:
    return TypeError(f"{shown(data)} is of type {type(data).__name__}{fault}; {_NEEDED}{_hint(data)}")


def _hint(data: object) -> str:
    if hasattr(data, "collect"):  # lazy frames
        return "; call collect() first"
    if isinstance(data, Mapping | Iterable | Iterator):
        return "; rows as mappings are written by upsert_many"
    return ""


def _is_pandas(data: object) -> bool:
    # A subclass is one, too.
    kinds = [one.__name__ for one in type(data).__mro__ if one.__module__.partition(".")[0] == "pandas"]
    return "DataFrame" in kinds or "Series" in kinds


def _table_of_pandas(table: str, frame: Any, nan_is_null: bool) -> pa.Table:  # noqa: ANN401 - of pandas, if it is there
    if hasattr(type(frame), "to_frame"):
        frame = frame.to_frame()
    try:
        # A named index is a column; one without a name only counts rows, or remembers a selection.
        named = [name for name in frame.index.names if name is not None]
        frame = frame.reset_index(level=named) if named else frame
        found = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        # Its text ends with the column, in which an object is of another type than those before it.
        text = " ".join(str(part) for part in error.args)
        column = _COLUMN.search(text)
        raise InvalidFieldError(table, column[1] if column else "data", f"Arrow rejects it: {text}") from error
    if nan_is_null:
        return found
    for place in range(found.num_columns):
        values = frame.iloc[:, place]
        # An extension type knows its missing values itself, and a NaN from them.
        if pa.types.is_floating(found.schema.types[place]) and type(values.dtype).__module__.startswith("numpy"):
            kept = pa.array(values.to_numpy(), from_pandas=False)
            found = found.set_column(place, found.schema.field(place), [kept.cast(found.schema.types[place])])
    return found


def _without_nan(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns: list[Any] = []
    for column in batch.columns:
        plain: Any = column
        if pa.types.is_floating(column.type):
            plain = pc.if_else(pc.is_nan(plain), pa.scalar(None, column.type), plain)
        columns.append(plain)
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
