"""Writes of one row: the plan of each verb, one statement, unless a transaction must read the row first.

The plan is the same for every sender. The auto-commit view commits a plan alone, with a receipt, without the objects of
a transaction, which cost the client as much time as the exchange with the server. A transaction defers the plan. A
write without a plan, or one that the server rejects alone, is left to a transaction, which can read the row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from structable.backends.postgresql.driver.commit_outcome import error_of_lost_commit
from structable.backends.postgresql.driver.errors import (
    BrokenConnectionError,
    ForeignSessionError,
    StatementRefusedError,
    translated,
)
from structable.backends.postgresql.driver.statement import BEGIN, BEGIN_WAITING, Call, Statement
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.merging import MergeEffect
from structable.backends.postgresql.sql.row_codec import Pieces, at_most
from structable.backends.postgresql.sql.row_limit import ABSENT, CHECKED_SIZE, Judge, judge
from structable.backends.postgresql.sql.types import encode_value
from structable.backends.postgresql.sql.write_statements import WriteShape, write_statement
from structable.spi import Isolation, RecordNotFoundError, Value
from structable.spi.authors import MAX_ROW_SIZE, Effect, When, check_increment, check_row, check_row_size

from .row_statements import EncodedRow, Given, RowStatement, encoded_row, whole_row
from .store_context import StoreContext

_BEGIN = BEGIN[Isolation.SNAPSHOT, False]
_SHAPES = {
    "put": WriteShape(Effect.CHANGE, ()),
    "put checked": WriteShape(Effect.CHANGE, (), checked=True),
    "change": WriteShape(Effect.CHANGE, (), When.PRESENT),
    "change checked": WriteShape(Effect.CHANGE, (), When.PRESENT, checked=True),
    "insert": WriteShape(Effect.PUT, (), When.ABSENT),
    "increment": WriteShape(Effect.STEP, ()),
    "delete": WriteShape(Effect.REMOVE, ()),
    "merge": WriteShape(Effect.MERGE, ()),
    "merge waiting": WriteShape(Effect.MERGE, (), waits=True),
}
"""The effects of one-row statements, by name; a name is hashed faster than a shape."""
_UNCHECKED, _CHECKED = ("put", "change"), ("put checked", "change checked")
"""Upserts of a row that may be absent, and of an existing row."""


class RowPlan(NamedTuple):
    """A write of one row, with its statement for the version of the table that it was made for."""

    one: OneRow
    shape: WriteShape
    known: Statement
    most: int | None
    """The maximum size of the row afterwards, `ABSENT`, or None if it depends on the former row."""
    whole: bool = False

    @property
    def call(self) -> Call:
        return Call(self.known, self.one.encoded.pieces)

    @property
    def statement(self) -> RowStatement:
        """The statement for any version of the table."""
        one = self.one
        return RowStatement(one.binding, self.shape, (one.encoded,), whole=self.whole, known=self.known)


class OneRow(NamedTuple):
    """The row of a call, for a version of its table."""

    binding: TableBinding
    names: tuple[str, ...]
    encoded: EncodedRow

    @classmethod
    def of(cls, binding: TableBinding, row: Given) -> OneRow:
        """Check and encode a row."""
        return cls(binding, *encoded_row(binding, row))

    @classmethod
    def whole(cls, binding: TableBinding, row: Given) -> OneRow:
        """Check and encode a row, with nulls for the fields that it does not name."""
        return cls.of(binding, whole_row(binding, row))

    @property
    def key(self) -> Pieces:
        return self.encoded.pieces[: len(self.binding.key_fields)]

    @property
    def key_values(self) -> tuple[Value, ...]:
        checked = check_row(self.binding.write_spec, self.encoded.row)
        return tuple(checked[name] for name in self.binding.spec.primary_key)

    def put(self, seen: int | None = None, *, whole: bool = False) -> RowPlan | None:
        """Return the plan of an upsert or a replacement; None if the call must read the row's size.

        `seen` is the known maximum size of the former row, or `ABSENT`.
        """
        size = self.encoded.size
        most, judged_by = judge(self.binding.width_without(self.names), size, seen)
        if judged_by is Judge.CALL:
            return None
        kinds = _CHECKED if judged_by is Judge.SERVER else _UNCHECKED
        return self._plan(kinds[seen is not None and seen != ABSENT], most, whole)

    def put_of(self, most: int, *, there: bool) -> RowPlan:
        """Return the plan of an upsert that surely fits, of a row that is known to be `there` or may be absent."""
        return self._plan(_UNCHECKED[there], most)

    def insert(self) -> RowPlan:
        """Return the plan of an insertion; the unique key rejects it if there is a row."""
        return self._plan("insert", self.encoded.size)

    def update(self) -> RowPlan | None:
        """Return the plan of a change of an existing row; None if the call must read the row's size."""
        if self.encoded.size > CHECKED_SIZE:
            return None
        return self._plan("change checked", None)

    def merge(self, seen: int | None, *, waits: bool) -> RowPlan:
        """Return the plan of an upsert of a table that merges."""
        require_flag(self.binding, self.encoded)
        if waits:  # the only call of its transaction
            return self._plan("merge waiting", None)
        return self._plan("merge", after_merge(self.binding, seen, MergeEffect.ADD, self.encoded.size))

    def increment(self, seen: int | None = None) -> RowPlan:
        return self._plan("increment", None if seen is None else max(seen, 0) + self.encoded.size)

    def delete(self) -> RowPlan:
        return self._plan("delete", ABSENT)

    def _plan(self, kind: str, most: int | None, whole: bool = False) -> RowPlan:
        binding, names = self.binding, self.names

        def make() -> tuple[WriteShape, Statement]:
            shape = _SHAPES[kind]._replace(names=names)
            return shape, write_statement(binding, shape, many=False)

        shape, statement = binding.kept((kind, names), make)
        return RowPlan(self, shape, statement, most, whole)

    @classmethod
    def raised(cls, binding: TableBinding, key: object, name: object, amount: object) -> OneRow:
        """Return a key with the amount by which a field is incremented.

        Raises the errors of `check_key` and `check_increment`.
        """
        checked, pieces = binding.encoded_key(key)
        field, number = check_increment(binding.spec, name, amount)
        row = {**dict(zip(binding.spec.primary_key, checked, strict=True)), field.name: number}
        pieces = (*pieces, encode_value(field, number))
        return cls(binding, (*binding.spec.primary_key, field.name), EncodedRow(row, pieces, at_most(pieces)))

    @classmethod
    def keyed(cls, binding: TableBinding, key: object) -> OneRow:
        """Return a key. Raises the errors of `check_key`."""
        _, pieces = binding.encoded_key(key)
        return cls(binding, binding.spec.primary_key, EncodedRow({}, pieces, at_most(pieces)))


def require_flag(binding: TableBinding, one: EncodedRow) -> None:
    """Reject a row that becomes too large by the flag of a soft delete, which its merge adds."""
    softly = binding.spec.table_options.soft_delete
    if softly is not None and softly not in one.row and one.size >= MAX_ROW_SIZE:
        check_row_size(binding.write_spec, {**one.row, softly: True})


def after_merge(binding: TableBinding, seen: int | None, merge: MergeEffect, size: int) -> int | None:
    """Return the maximum size of a row after a merge, so that a later write of the transaction need not read it."""
    options = binding.spec.table_options
    if merge is MergeEffect.DELETE:
        return None if options.sequence else ABSENT
    if merge is MergeEffect.RETRACT and options.groups:
        return None
    grown = size + sum(len(one.delimiter.encode()) for one in options.functions.values())
    width = binding.width_without(())
    return width if width is not None else MAX_ROW_SIZE if seen is None else max(seen, 0) + grown


def _plan_upsert(binding: TableBinding, row: Given) -> RowPlan | None:
    one = OneRow.of(binding, row)
    return one.merge(None, waits=True) if binding.merges else one.put()


PLANS: dict[str, Callable[[TableBinding, Any], RowPlan | None]] = {
    "upsert": _plan_upsert,
    "replace": lambda binding, row: OneRow.whole(binding, row).put(whole=True),
    "insert": lambda binding, row: None if binding.merges else OneRow.of(binding, row).insert(),
    "update": lambda binding, row: None if binding.merges else OneRow.of(binding, row).update(),
    "increment": lambda binding, given: OneRow.raised(binding, *given).increment(),
    "delete": lambda binding, key: OneRow.keyed(binding, key).delete(),
}
"""By the name of a verb of one row: makes the plan for an argument, None if a transaction is needed.

Each function raises the errors of its argument.
"""


def commit_alone(store: StoreContext, table: str, plan: RowPlan) -> bool:
    """Commit a write of a row of a table; False if nothing was committed, and a transaction must try.

    Raises
    ------
    RecordNotFoundError
        If there is no row that must exist.
    StorageUnavailableError
        If there is no connection, it broke before the commit, or a pooler gave its session to another client.
    CommitOutcomeUnknownError
        If it broke during the commit, and the outcome could not be looked up.
    """
    shape = plan.shape
    # An insertion waits for a transaction that inserts the same key, or deletes it.
    waits, must_exist = shape.waits or shape.when is When.ABSENT, shape.when is When.PRESENT
    pool = store.pool
    connection = pool.acquire()
    receipt = loss = result = None
    try:
        if connection.commits:  # the first commit of a connection has no receipt
            receipt = store.receipts.next(connection)
        if receipt is not None:
            begin, calls = BEGIN_WAITING if waits else _BEGIN, (plan.call,)
            result = receipt.commit(begin, calls, of_one_row=True, if_changed=must_exist, waits=waits)
        if result is None:
            connection.roll_back()
    except ForeignSessionError as foreign:
        raise translated(foreign, "the transaction") from foreign
    except StatementRefusedError:
        connection.roll_back()
    except BrokenConnectionError as broken:
        loss = broken
    finally:
        pool.release(connection)
    if loss is not None:
        if receipt is None:
            raise translated(loss, "the transaction") from loss
        error = error_of_lost_commit(receipt.is_there(pool), str(receipt), loss)
        if error is not None:
            raise error from loss
        return True
    if result is not None and must_exist and not result.command_tuples:
        raise RecordNotFoundError(table, plan.one.key_values)
    return result is not None
