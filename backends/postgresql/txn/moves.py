"""Moves: rows that get other keys, by one statement, unless one of them may become too large."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from structable.backends.postgresql.driver.statement import Call
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.move_statement import move_many, move_statement
from structable.backends.postgresql.sql.row_codec import Pieces, at_most
from structable.backends.postgresql.sql.row_limit import ABSENT, Judge, judge, refusal
from structable.backends.postgresql.sql.types import encode_value
from structable.backends.postgresql.sql.write_statements import WriteShape
from structable.spi.authors import Effect, RowMove, When

from .bound_table import BoundTable
from .one_row import OneRow, RowPlan
from .row_statements import pieces_for
from .server_transaction import ServerTransaction


class _Moved(NamedTuple):
    """A row with its former key, and its maximum size afterwards, which the server may have to check."""

    key: Pieces
    one: OneRow
    most: int | None
    checked: bool


def plan_move(binding: TableBinding, move: RowMove) -> RowPlan | None:
    """Return the plan of the move of one row with an expected value; None if it needs a transaction."""
    plain = binding.rules is None and not binding.merges and move.expected is not None
    found = _moved(binding, move, lambda key: None) if plain else None
    if found is None or len(found) != 1 or move.expected is None:
        return None
    [(key, one, most, checked)] = found
    field, value, _ = move.expected
    statement = move_statement(binding, one.names, expected=field, checked=checked)
    pieces = (*one.encoded.pieces, *key, encode_value(binding.spec.field(field), value))
    shape = WriteShape(Effect.CHANGE, one.names, When.PRESENT, checked)
    return RowPlan(one._replace(encoded=one.encoded._replace(pieces=pieces)), shape, statement, most)


def move_rows(tx: ServerTransaction, table: BoundTable, move: RowMove) -> bool:
    """Move rows that the transaction has read; False, without effect, if that takes more than one statement."""
    binding = table.binding
    found = None if binding.merges or move.expected is not None else _moved(binding, move, table.seen.get)
    if found is None or (len(found) > 1 and any(one.checked for one in found)):
        return False
    if len(found) == 1:
        _move_one(tx, table, found[0])
    elif found:
        _move_many(tx, table, found)
    table.seen.put_each({**{one.key: ABSENT for one in found}, **{one.one.key: one.most for one in found}})
    return True


def _moved(binding: TableBinding, move: RowMove, seen: Callable[[Pieces], int | None]) -> list[_Moved] | None:
    names = (*binding.spec.primary_key, *move.changed)
    others = binding.width_without(names)
    found = []
    for given, row in zip(move.keys, move.rows, strict=True):
        _, key = binding.encoded_key(given)
        one = OneRow.of(binding, {name: row[name] for name in names})
        most, judged_by = judge(others, one.encoded.size, seen(key))
        # The entries of indexes, which hold the key, must not grow.
        if judged_by is Judge.CALL or (binding.write_spec.indexes and at_most(one.key) > at_most(key)):
            return None
        found.append(_Moved(key, one, most, judged_by is Judge.SERVER))
    return found


def _move_one(tx: ServerTransaction, table: BoundTable, moved: _Moved) -> None:
    key, one, _, checked = moved

    def build(binding: TableBinding) -> Call:
        pieces = (*pieces_for(binding, one.binding, one.names, one.encoded), *key)
        return Call(move_statement(binding, one.names, checked=checked), pieces)

    # It concerns two rows, so it has no key.
    tx.defer(table, build, None, partial(refusal, one.binding.spec, Effect.CHANGE, one.names) if checked else None)


def _move_many(tx: ServerTransaction, table: BoundTable, found: list[_Moved]) -> None:
    names = found[0].one.names
    found = sorted(found, key=lambda moved: moved.key)  # two such statements lock rows in the same order

    def build(binding: TableBinding) -> Call:
        given = [(*pieces_for(binding, one.binding, names, one.encoded), *key) for key, one, _, _ in found]
        return Call(move_many(binding, names), binding.arrays((*names, *binding.spec.primary_key), given))

    tx.defer(table, build)
