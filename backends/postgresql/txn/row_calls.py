"""Writes of one row, as calls that are made again for another version of its table."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from structable.backends.postgresql.driver.statement import Call
from structable.backends.postgresql.sql import statements
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.row_codec import Pieces
from structable.spi import Value
from structable.spi.values import MAX_ROW_SIZE

from .seen_rows import ABSENT

__all__ = ["most_bytes", "row_call", "surely_fits"]


def row_call(
    first: TableBinding,
    names: tuple[str, ...],
    row: Mapping[str, Value],
    pieces: Pieces | None,
    *,
    there: bool,
    whole: bool = False,
    checked: bool = False,
) -> Callable[[TableBinding], Call]:
    """Return what makes an UPDATE if the row is `there`, an upsert otherwise.

    `pieces` are the values for the `first` version of the table, if they are encoded already. A `whole` row has nulls
    for all other fields; if it is `checked`, the server refuses it if the row gets too large.
    """
    kind = statements.change if there else statements.put

    def build(binding: TableBinding) -> Call:
        if pieces is not None and binding is first:
            return kind(binding, names, checked=checked).call(pieces)
        given = {**dict.fromkeys(binding.spec.field_names), **row} if whole else row
        statement = kind(binding, binding.ordered(given), checked=checked)
        return statement.call(binding.encoder(tuple(given)).pieces(given))

    return build


def most_bytes(others: int | None, size: int, seen: int | None) -> int | None:
    """Return the maximum size of a row after an upsert of fields that have at most `size` bytes; None if unknown.

    `others` is the maximum size of all other fields, None if there is none; `seen` is what is known of the row.
    """
    if others == 0 or seen == ABSENT:
        return size
    if seen is None or (others is not None and others < seen):
        seen = others
    return None if seen is None else seen + size


def surely_fits(most: int | None, size: int) -> bool:
    """Tell whether a row of at most so many bytes is within the limit; one of the checked fields alone always is."""
    return most is not None and (most <= MAX_ROW_SIZE or most == size)
