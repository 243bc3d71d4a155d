"""Writes that the server refuses because they do not fit their row: at the commit, or at a read that sees them."""

from __future__ import annotations

from collections.abc import Sequence

from structable.backends.postgresql.driver.errors import StatementRefusedError
from structable.backends.postgresql.driver.sqlstates import NUMERIC_VALUE_OUT_OF_RANGE
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.merge_refusals import merge_refusal, size_refusal
from structable.spi import InvalidFieldError, StructableError

from .bound_table import Refusal

__all__ = ["CHECKED_SIZE", "refusal_of_increments", "refusal_of_merges", "refusal_of_sizes"]

CHECKED_SIZE = 64 << 10
"""The maximum size of a write that the server checks when it runs. A larger one is checked when it is called."""


def refusal_of_sizes(binding: TableBinding) -> Refusal:
    """Return the explanation of writes that may make a row too large."""
    return lambda error: size_refusal(binding, error)


def refusal_of_increments(binding: TableBinding, names: Sequence[str]) -> Refusal:
    """Return the explanation of increments of some fields."""
    sizes = refusal_of_sizes(binding)

    def explain(error: StatementRefusedError) -> StructableError | None:
        if error.state != NUMERIC_VALUE_OUT_OF_RANGE:
            return sizes(error)
        bits = " or ".join(dict.fromkeys(str(binding.spec.field(name).type.integer_bits) for name in names))
        return InvalidFieldError(binding.spec.name, ", ".join(names), f"incremented, the value overflows {bits} bits")

    return explain


def refusal_of_merges(binding: TableBinding, names: Sequence[str]) -> Refusal:
    """Return the explanation of merges of rows that name some fields."""
    return lambda error: merge_refusal(binding, names, error)
