"""The errors of writes whose result does not fit, from the server's refusals."""

from __future__ import annotations

import re
from collections.abc import Sequence

from structable.backends.postgresql.driver.errors import StatementRefusedError
from structable.backends.postgresql.driver.sqlstates import NUMERIC_VALUE_OUT_OF_RANGE
from structable.spi import FieldSizeLimitError, InvalidFieldError, StructableError
from structable.spi.values import MAX_KEY_AND_INDEX_SIZE, MAX_KEY_SIZE, MAX_ROW_SIZE

from .binding import TableBinding
from .row_sizes import TOO_LARGE, TOO_LARGE_VALUE

__all__ = ["merge_refusal", "size_refusal"]

_SIZE = re.compile(f"{TOO_LARGE}([0-9]+)")
_VALUE_SIZE = re.compile(f"{TOO_LARGE_VALUE}([A-Za-z0-9_]+) ([0-9]+)")


def size_refusal(binding: TableBinding, error: StatementRefusedError) -> StructableError | None:
    """Return the error of a write that would make a row too large; None if that was not the reason."""
    found = _SIZE.search(error.message)
    return None if found is None else FieldSizeLimitError(binding.spec.name, "row", int(found[1]), MAX_ROW_SIZE)


def merge_refusal(binding: TableBinding, names: Sequence[str], error: StatementRefusedError) -> StructableError | None:
    """Return the error of a merge whose result does not fit; None if the server refused it for another reason."""
    table = binding.spec.name
    if error.state == NUMERIC_VALUE_OUT_OF_RANGE:
        values = ", ".join(name for name in names if name not in binding.spec.primary_key)
        return InvalidFieldError(table, values, f"merged, a value does not fit its field: {error.message}")
    if found := _VALUE_SIZE.search(error.message):
        size = int(found[2])
        if size > MAX_KEY_SIZE:
            return FieldSizeLimitError(table, found[1], size, MAX_KEY_SIZE)
        return FieldSizeLimitError(table, f"primary key with {found[1]}", size, MAX_KEY_AND_INDEX_SIZE)
    return size_refusal(binding, error)
