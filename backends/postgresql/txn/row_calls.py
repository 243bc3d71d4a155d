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

__all__ = ["most_bytes", "row_call"]


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


def most_bytes(binding: TableBinding, names: tuple[str, ...], size: int, seen: int | None) -> int | None:
    """Return the maximum size of a row after an upsert of some fields, which have at most `size` bytes.

    None if it may be more than a row can have. `seen` is what is known of the row.
    """
    others = binding.width_without(names)
    if others == 0 or seen == ABSENT:
        return size
    if seen is None:
        seen = others
    return None if seen is None or seen + size > MAX_ROW_SIZE else seen + size
