"""Numbers in the server's binary form, converted to Arrow's."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from structable.backends.base.field_types import FIELD_TYPES
from structable.backends.postgresql.sql.types import NUMPY_CODES, SHIFTS
from structable.spi import DataCorruptionError, Field, FieldType

__all__ = ["arrow_numbers", "sent_type"]

_BOUNDS = {
    kind: (FIELD_TYPES[kind].least - shift, FIELD_TYPES[kind].greatest - shift) for kind, shift in SHIFTS.items()
}
_BOUNDS[FieldType.BYTE] = (-128, 127)
"""Bounds of the contract, where the server's type is wider: SQL from outside structable may exceed them."""

Numbers = npt.NDArray[Any]


def sent_type(field: Field) -> np.dtype[Any]:
    """Return the NumPy type that the server sends for a value of fixed width."""
    return np.dtype(NUMPY_CODES.get(field.type, "?"))


def arrow_numbers(field: Field, sent: Numbers) -> Numbers:
    """Return Arrow's numbers for numbers from the server; rejects those that would turn into other values."""
    kind = field.type
    bounds = _BOUNDS.get(kind)
    if bounds is not None and len(sent):
        low, high = int(sent.min()), int(sent.max())
        if low < bounds[0] or high > bounds[1]:
            found = low if low < bounds[0] else high
            unit = {FieldType.BYTE: "", FieldType.DATE: " days since 2000"}.get(kind, " microseconds since 2000")
            raise DataCorruptionError(
                f"field {field.name!r} holds {found}{unit}, outside the range of {kind.value}: it was not written by "
                "structable"
            )
    numbers: Numbers = sent.astype("i1" if kind is FieldType.BYTE else sent.dtype.newbyteorder("="))
    if kind in SHIFTS:
        numbers += SHIFTS[kind]
    return numbers
