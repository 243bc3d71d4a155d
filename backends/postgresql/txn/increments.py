"""Increments: sent blindly, with the next statement that may see them or with the commit.

The server adds, and refuses an overflow, as it refuses a row that gets too large by its first value of a field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from structable.backends.postgresql.driver.statement import Call
from structable.backends.postgresql.sql import batches, statements
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.row_codec import Pieces, at_most
from structable.backends.postgresql.sql.types import encode_value
from structable.spi import Field, Value
from structable.spi.rules.changes import check_increment

from .bound_table import BoundTable
from .refusals import refusal_of_increments
from .row_arrays import SINGLE, arrays_by_key, portions
from .server_transaction import ServerTransaction

__all__ = ["defer_increment", "defer_increments", "increment_of"]


Key = tuple[Value, ...]
Amounts = dict[str, int]


class Increment(NamedTuple):
    """What is added to some fields of a row, and the row's key with it in one version of the table."""

    key: Key
    amounts: Amounts
    pieces: Pieces


def increment_of(binding: TableBinding, key: object, name: object, amount: object) -> tuple[tuple[str, ...], Increment]:
    """Check an increment of one field; return the names of the key and the field with it.

    Raises the errors of `check_key` and `check_increment`.
    """
    checked, pieces = binding.encoded_key(key)
    field, number = check_increment(binding.spec, name, amount)
    names = (*binding.spec.primary_key, field.name)
    return names, Increment(checked, {field.name: number}, (*pieces, encode_value(field, number)))


def defer_increment(tx: ServerTransaction, table: BoundTable, key: object, name: object, amount: object) -> None:
    """Add to a field of one row. Raises the errors of `increment_of`."""
    binding = table.binding
    names, row = increment_of(binding, key, name, amount)
    _defer(tx, table, binding, names, [row])


def defer_increments(tx: ServerTransaction, table: BoundTable, increments: Iterable[tuple[Key, Field, int]]) -> None:
    """Add to fields of rows; the arguments are checked."""
    binding = table.binding  # the first write may find another version of the table
    rounds: list[dict[Key, Amounts]] = []
    counts: dict[tuple[Key, str], int] = {}
    for key, field, amount in increments:
        # A field that comes again is added to again, by a later statement: both together might not fit its type.
        place = counts.get((key, field.name), 0)
        counts[key, field.name] = place + 1
        if place == len(rounds):
            rounds.append({})
        rounds[place].setdefault(key, {})[field.name] = amount
    writes = []
    for one in rounds:
        groups: dict[tuple[str, ...], list[Increment]] = {}
        for key, amounts in one.items():
            names = binding.ordered(amounts)
            row = Increment(key, amounts, _pieces(binding, names, key, amounts))
            groups.setdefault(names, []).append(row)
        writes += [
            (names, portion)
            for names, rows in groups.items()
            for portion in portions(rows, lambda row: at_most(row.pieces))
        ]
    tx.require_room(sum(at_most(row.pieces) for _, rows in writes for row in rows))
    for names, rows in writes:
        _defer(tx, table, binding, names, rows)


def _pieces(binding: TableBinding, names: tuple[str, ...], key: Key, amounts: Mapping[str, Value]) -> Pieces:
    """Return a checked key and checked amounts in binary, in the order of `names`."""
    _, pieces = binding.encoded_key(key)
    return (*pieces, *(encode_value(binding.spec.field(name), amounts[name]) for name in names[len(pieces) :]))


def _defer(
    tx: ServerTransaction, table: BoundTable, first: TableBinding, names: tuple[str, ...], rows: list[Increment]
) -> None:
    width = len(first.key_fields)
    refusal = refusal_of_increments(first, names[width:])

    def encoded_for(binding: TableBinding, row: Increment) -> Pieces:
        if binding is first:
            return row.pieces
        for name, amount in row.amounts.items():
            check_increment(binding.spec, name, amount)
        return _pieces(binding, names, row.key, row.amounts)

    def all_of_them(binding: TableBinding) -> Call:
        given = [encoded_for(binding, row) for row in rows]
        return Call(batches.increment_many(binding, names), arrays_by_key(binding, names, given))

    def single(row: Increment) -> None:
        def build(binding: TableBinding) -> Call:
            given = encoded_for(binding, row)
            return statements.increment(binding, names).call(given)

        tx.defer(table, build, row.pieces[:width], refusal)

    if len(rows) > SINGLE:
        tx.defer(table, all_of_them, None, refusal)
    else:
        for row in rows:
            single(row)
    for row in rows:
        key = row.pieces[:width]
        size = table.seen.get(key)
        table.seen.put(key, None if size is None else max(size, 0) + at_most(row.pieces))
