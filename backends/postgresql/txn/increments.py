"""Increments: sent blindly, with the next statement that may see them or with the commit.

The server adds, and refuses an overflow, as it refuses a row that gets too large by its first value of a field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from structable.backends.postgresql.driver.statement import Call
from structable.backends.postgresql.sql import batches, statements
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.row_codec import Pieces, at_most
from structable.backends.postgresql.sql.types import encode_value
from structable.spi import Field, Value

from .bound_table import BoundTable
from .refusals import refusal_of_increments
from .row_arrays import SINGLE, arrays, portions
from .server_transaction import ServerTransaction

__all__ = ["defer_increments", "increment_pieces"]


Key = tuple[Value, ...]
Amounts = dict[str, int]


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
        groups: dict[tuple[str, ...], list[tuple[Key, Amounts, Pieces]]] = {}
        for key, amounts in one.items():
            names = binding.ordered(amounts)
            groups.setdefault(names, []).append((key, amounts, increment_pieces(binding, names, key, amounts)))
        writes += [
            (names, portion)
            for names, rows in groups.items()
            for portion in portions(rows, lambda row: at_most(row[2]))
        ]
    tx.require_room(sum(at_most(pieces) for _, rows in writes for _, _, pieces in rows))
    for names, rows in writes:
        _defer(tx, table, binding, names, rows)


def increment_pieces(binding: TableBinding, names: tuple[str, ...], key: Key, amounts: Mapping[str, Value]) -> Pieces:
    """Return a checked key and checked amounts in binary, in the order of `names`."""
    row = {**dict(zip(binding.spec.primary_key, key, strict=True)), **amounts}
    return tuple([encode_value(binding.spec.field(name), row[name]) for name in names])


def _defer(
    tx: ServerTransaction,
    table: BoundTable,
    first: TableBinding,
    names: tuple[str, ...],
    rows: list[tuple[Key, Amounts, Pieces]],
) -> None:
    width = len(first.key_fields)
    refusal = refusal_of_increments(first, names[width:])

    def all_of_them(binding: TableBinding) -> Call:
        given = [
            pieces if binding is first else increment_pieces(binding, names, key, amounts)
            for key, amounts, pieces in rows
        ]
        return Call(batches.increment_many(binding, names), arrays(binding, names, given))

    def single(row: tuple[Key, Amounts, Pieces]) -> None:
        key, amounts, pieces = row

        def build(binding: TableBinding) -> Call:
            given = pieces if binding is first else increment_pieces(binding, names, key, amounts)
            return statements.increment(binding, names).call(given)

        tx.defer(table, build, pieces[:width], refusal)

    if len(rows) > SINGLE:
        tx.defer(table, all_of_them, None, refusal)
    else:
        for row in rows:
            single(row)
    for _, _, pieces in rows:
        size = table.seen.get(pieces[:width])
        table.seen.put(pieces[:width], None if size is None else max(size, 0) + at_most(pieces))
