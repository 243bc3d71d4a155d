"""Writes that the server refuses because they do not fit their row: at the commit, or at a read that sees them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from structable.backends.postgresql.driver.errors import StatementRefusedError
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.row_sizes import TOO_LARGE, TOO_LARGE_VALUE
from structable.spi import FieldSizeLimitError, InvalidFieldError, StructableError
from structable.spi.values import MAX_KEY_AND_INDEX_SIZE, MAX_KEY_SIZE, MAX_ROW_SIZE

from .bound_table import Refusal

__all__ = ["CHECKED_SIZE", "merge_refusal", "refusal_of_increments", "refusal_of_merges", "refusal_of_sizes"]

CHECKED_SIZE = 64 << 10
"""The maximum size of a write that the server checks when it runs. A larger one is checked when it is called."""

_OVERFLOW = "22003"
_SIZE = re.compile(f"{TOO_LARGE}([0-9]+)")
_VALUE_SIZE = re.compile(f"{TOO_LARGE_VALUE}([A-Za-z0-9_]+) ([0-9]+)")


def refusal_of_sizes(binding: TableBinding) -> Refusal:
    """Return the explanation of writes that may make a row too large."""

    def explain(error: StatementRefusedError) -> StructableError | None:
        found = _SIZE.search(error.message)
        return None if found is None else FieldSizeLimitError(binding.spec.name, "row", int(found[1]), MAX_ROW_SIZE)

    return explain


def refusal_of_increments(binding: TableBinding, names: Sequence[str]) -> Refusal:
    """Return the explanation of increments of some fields."""
    sizes = refusal_of_sizes(binding)

    def explain(error: StatementRefusedError) -> StructableError | None:
        if error.state != _OVERFLOW:
            return sizes(error)
        bits = " or ".join(dict.fromkeys(str(binding.spec.field(name).type.integer_bits) for name in names))
        return InvalidFieldError(binding.spec.name, ", ".join(names), f"incremented, the value overflows {bits} bits")

    return explain


def refusal_of_merges(binding: TableBinding, names: Sequence[str]) -> Refusal:
    """Return the explanation of merges of rows that name some fields."""
    return lambda error: merge_refusal(binding, names, error)


def merge_refusal(binding: TableBinding, names: Sequence[str], error: StatementRefusedError) -> StructableError | None:
    """Return the error of a merge whose result does not fit; None if the server refused it for another reason."""
    table = binding.spec.name
    if error.state == _OVERFLOW:
        values = ", ".join(name for name in names if name not in binding.spec.primary_key)
        return InvalidFieldError(table, values, f"merged, a value does not fit its field: {error.message}")
    if found := _VALUE_SIZE.search(error.message):
        size = int(found[2])
        if size > MAX_KEY_SIZE:
            return FieldSizeLimitError(table, found[1], size, MAX_KEY_SIZE)
        return FieldSizeLimitError(table, f"primary key with {found[1]}", size, MAX_KEY_AND_INDEX_SIZE)
    return refusal_of_sizes(binding)(error)
