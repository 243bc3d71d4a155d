"""`move_rows`: rows that get other keys, by one statement."""

from __future__ import annotations

from structable.backends.postgresql.driver.errors import DIVISION_BY_ZERO, StatementRefusedError
from structable.backends.postgresql.driver.statement import Call
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.move_statement import move_many, move_statement
from structable.backends.postgresql.sql.row_codec import Pieces, at_most
from structable.backends.postgresql.sql.row_limit import ABSENT, Judge, judge, refusal
from structable.backends.postgresql.sql.types import encode_value
from structable.spi import StructableError
from structable.spi.operations import Effect, RowMove

from .bound_table import BoundTable
from .one_row import OneRow
from .row_statements import pieces_for
from .server_transaction import ServerTransaction

__all__ = ["move_rows"]


def move_rows(tx: ServerTransaction, table: BoundTable, move: RowMove) -> bool:
    """Replace rows by rows of other keys; False, without effect, if that takes more than one statement.

    A row with an expected value is moved by the first call of a transaction that `has_one_call`. Others must have been
    read.
    """
    binding = table.binding
    if binding.merges or (move.expected is not None and not tx.begins):
        return False
    names = (*binding.spec.primary_key, *move.changed)
    keys = [binding.encoded_key(key)[1] for key in move.keys]
    rows = [OneRow.of(binding, {name: row[name] for name in names}) for row in move.rows]
    sizes: dict[Pieces, int | None] = dict.fromkeys(keys, ABSENT)
    checked = False
    for key, one in zip(keys, rows, strict=True):
        # An index entry, which holds the key, must not grow.
        fits = not binding.write_spec.indexes or at_most(one.key) <= at_most(key)
        sizes[one.key], judged_by = judge(binding.width_without(names), one.encoded.size, table.seen.get(key))
        checked = judged_by is Judge.SERVER
        if not fits or judged_by is Judge.CALL or (checked and len(rows) > 1):
            return False
    if len(rows) == 1:
        _move_one(tx, table, keys[0], rows[0], move, checked=checked)
    elif rows:
        _move_many(tx, table, keys, rows)
    table.seen.put_each(sizes)
    return True


def _move_one(
    tx: ServerTransaction, table: BoundTable, key: Pieces, one: OneRow, move: RowMove, *, checked: bool
) -> None:
    field, value, error = move.expected or (None, None, None)

    def build(binding: TableBinding) -> Call:
        pieces = (*pieces_for(binding, one.binding, one.names, one.encoded), *key)
        if field is not None:
            pieces = (*pieces, encode_value(binding.spec.field(field), value))
        return Call(move_statement(binding, one.names, expected=field, checked=checked), pieces)

    def refused(rejection: StatementRefusedError) -> StructableError | None:
        if rejection.state == DIVISION_BY_ZERO:
            return error
        return refusal(one.binding.spec, Effect.CHANGE, one.names, rejection)

    tx.defer(table, build, None, refused if checked or error is not None else None, of_one_row=True)


def _move_many(tx: ServerTransaction, table: BoundTable, keys: list[Pieces], rows: list[OneRow]) -> None:
    names = rows[0].names
    # Two such statements lock rows in the same order.
    moves = sorted(zip(keys, rows, strict=True), key=lambda pair: pair[0])

    def build(binding: TableBinding) -> Call:
        given = [(*pieces_for(binding, one.binding, names, one.encoded), *key) for key, one in moves]
        return Call(move_many(binding, names), binding.arrays((*names, *binding.spec.primary_key), given))

    tx.defer(table, build)
