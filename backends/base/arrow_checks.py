"""Checks of the Arrow batches staged for a write job, a column at a time; every store rejects the same rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from structable.spi import Field, FieldType, InvalidFieldError, TableSpecification
from structable.spi.authors import MAX_KEY_AND_INDEX_SIZE, MAX_KEY_SIZE, MAX_ROW_SIZE, check_row

from .field_types import FIELD_TYPES

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def valid_chunks(table: str, batch: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts of at most `most_bytes` bytes, at least one row each; rejects invalid Arrow data."""
    if batch.nbytes > most_bytes and batch.num_rows > 1:
        half = batch.num_rows // 2
        yield from valid_chunks(table, batch.slice(0, half), most_bytes)
        yield from valid_chunks(table, batch.slice(half), most_bytes)
    elif batch.num_rows:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            try:
                column.validate(full=True)
            except pa.ArrowInvalid as error:
                raise InvalidFieldError(table, name, f"the Arrow data are not valid: {error}") from error
        yield batch


def read_numbers(table: str, field: Field, array: pa.Array[Any]) -> npt.NDArray[Any]:
    """Return the numbers of a fixed-width column other than DECIMAL, see `FIELD_TYPES`; a null is 0.

    Rejects a date or time outside of the years 1 to 9999.
    """
    form = FIELD_TYPES[field.type]
    if form.unit:
        array = array.view(pa.from_numpy_dtype(np.dtype(form.numpy)))
    if array.null_count:
        array = array.fill_null(False if field.type is FieldType.BOOLEAN else 0)
    numbers: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    if form.unit:
        bad = (numbers < form.least) | (numbers > form.greatest)
        if bad.any():
            unit: Any = form.unit
            first = np.datetime64(int(numbers[np.argmax(bad)]), unit)
            raise InvalidFieldError(table, field.name, f"{first} is outside of the years 1 to 9999")
    return numbers


def over_limits(spec: TableSpecification, sizes: Mapping[str, Integers]) -> tuple[Flags, Integers]:
    """Return a mask of the rows whose key, indexed value or size is over the limits, and the size of each row.

    `spec` has every index that the rows must fit; `sizes` has the size of each value, for all key columns.
    """
    key: Integers = np.sum([sizes[name] for name in spec.primary_key], axis=0)
    total: Integers = np.sum(list(sizes.values()), axis=0)
    bad: Flags = (key > MAX_KEY_SIZE) | (total > MAX_ROW_SIZE)
    for name in set(spec.indexes) & sizes.keys():
        bad |= (sizes[name] > MAX_KEY_SIZE) | (key + sizes[name] > MAX_KEY_AND_INDEX_SIZE)
    return bad, total


def refuse_first(spec: TableSpecification, batch: pa.RecordBatch, bad: Flags) -> None:
    """Raise as `check_row` does for the first invalid row, if there is one."""
    if bad.any():
        [row] = batch.slice(int(np.argmax(bad)), 1).to_pylist()
        check_row(spec, row)
