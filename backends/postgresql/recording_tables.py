"""Tables whose change feed holds the rows given by their writers, inside a transaction.

A `RecordingTable` has the producer `input`. A `LogTable` keeps no rows: they go only to its feed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from structable.spi import Range, RowKind, StructuredTable, TableStatistics, Value
from structable.spi.authors import (
    APPLY_CHANGES,
    DELETE,
    DELETE_MANY,
    UPDATE_MANY,
    Answer,
    Effect,
    FeedRecords,
    Otherwise,
    RangeWrite,
    RowMove,
    RowWrites,
    When,
    check_increments,
    check_range,
    check_row_changes,
    check_row_kinds,
    check_verb,
)

from .driver.statement import CHAR, Call
from .feeds.layout import record_kind
from .feeds.record_statements import GIVEN, RECORDED, record_given, record_one, record_rows_of_keys
from .sql.binding import TableBinding
from .sql.row_codec import Pieces, at_most
from .sql.types import array
from .table import PostgreSQLTable
from .txn.bound_table import BoundTable, on_current_schema
from .txn.one_row import OneRow
from .txn.row_statements import Given, chunks, encoded_whole
from .txn.server_transaction import ServerTransaction
from .txn.update_many import checked_updates, rounds_of, update_batch

_RecordedRow: TypeAlias = tuple[RowKind, Given, Pieces]


class RecordingTable(PostgreSQLTable):
    """Records after the writes of each call the rows that it was given, or the rows that result."""

    def __init__(self, transaction: ServerTransaction, binding: TableBinding) -> None:
        super().__init__(transaction, binding)
        self._records = _InputRecords(transaction, self)

    def _write(self, writes: RowWrites) -> Answer | None:
        verb, records = writes.verb, self._records
        if self.binding.spec.keyless:
            self._admit(verb.name)
        if verb is DELETE_MANY:
            records.leave_to_triggers()
            return super()._write(writes)
        records.begin()
        if verb is UPDATE_MANY:
            return self._update_in_rounds(writes)
        answer = super()._write(writes)
        left_out = {self.binding.key_pieces(key) for key in answer or ()}
        if verb is DELETE:
            checked, _ = self.binding.encoded_key(writes.rows[0])
            records.add([(RowKind.DELETE, dict(zip(self.binding.spec.primary_key, checked, strict=True)))])
        elif verb is APPLY_CHANGES:
            records.add(check_row_changes(self.binding.write_spec, writes.rows))
        elif verb.records is FeedRecords.GIVEN:
            kind = RowKind.INSERT if verb.when is When.ABSENT else RowKind.UPDATE_AFTER
            rows = writes.rows
            if left_out:
                rows = [row for row, key in zip(rows, self._keys_of_rows(writes), strict=True) if key not in left_out]
            records.add((kind, row) for row in rows)
        else:
            records.add_rows_of(key for key in self._keys_of_rows(writes) if key not in left_out)
        return answer

    @on_current_schema
    def _update_in_rounds(self, writes: RowWrites) -> Answer:
        missing: dict[tuple[Value, ...], None] = {}
        binding = self.binding
        checked = checked_updates(binding, self._many(writes, "updates"), writes.default)
        width = len(binding.key_fields)
        for one_round in rounds_of(self._tx, self, binding, checked):
            skipped = update_batch(self._tx, self, binding, one_round)
            missing.update(dict.fromkeys(self._keys_of(skipped)))
            absent = {one.pieces[:width] for one in skipped}
            self._records.add_rows_of(key for one in one_round if (key := one.pieces[:width]) not in absent)
        return list(missing)

    def _keys_of_rows(self, writes: RowWrites) -> list[Pieces]:
        binding, rows = self.binding, writes.rows
        if writes.verb.effect is Effect.STEP:
            return [binding.key_pieces(key) for key, _, _ in check_increments(binding.spec, rows)]
        if writes.verb.otherwise is Otherwise.REPORT:
            return [binding.encoded_key(rows[0][0])[1]]
        return [OneRow.of(binding, row).key for row in rows]

    def _move(self, move: RowMove) -> None:
        StructuredTable._move(self, move)  # by writes that are recorded

    def _write_range(self, write: RangeWrite) -> int:
        if self.binding.spec.keyless:
            self._admit(write.name)
        self._records.leave_to_triggers()
        return super()._write_range(write)


class _InputRecords:
    """A transaction's records of its writes to one table, deferred in the same order as the writes.

    Records do not count for the size of the transaction: the recorded writes already count.
    """

    def __init__(self, tx: ServerTransaction, table: BoundTable) -> None:
        self._tx = tx
        self._table = table

    def begin(self) -> None:
        """Make the triggers record nothing from now on; called before each write."""
        self._table.written = True
        if not self._tx.writes.gives_input:
            self._tx.require_writable()
            self._tx.precede(self._table, lambda _: GIVEN)
            self._tx.writes.gives_input = True

    def leave_to_triggers(self) -> None:
        """Let the triggers record the next writes, until `begin`."""
        if self._tx.writes.gives_input:
            self._tx.precede(self._table, lambda _: RECORDED)
            self._tx.writes.gives_input = False

    def add(self, changes: Iterable[tuple[RowKind, Mapping[str, Value]]]) -> None:
        """Record given rows that the table has accepted."""
        binding = self._table.binding
        rows = [(kind, row, encoded_whole(binding, row)) for kind, row in changes]
        for chunk in chunks(rows, lambda one: at_most(one[2])):
            self._tx.precede(self._table, _recording(binding, chunk), counts=False)

    def add_rows_of(self, keys: Iterable[Pieces]) -> None:
        """Record the rows of some keys in their state after the writes so far."""
        for chunk in chunks(dict.fromkeys(keys), at_most):

            def build(binding: TableBinding, chunk: list[Pieces] = chunk) -> Call:
                return Call(record_rows_of_keys(binding), binding.arrays(binding.spec.primary_key, chunk))

            self._tx.precede(self._table, build, counts=False)


def _recording(first: TableBinding, rows: Sequence[_RecordedRow]) -> Callable[[TableBinding], Call]:
    """Return a function that makes the call to record rows; they are encoded for the `first` version of the table."""
    kinds = [record_kind(kind).encode() for kind, _, _ in rows]

    def build(binding: TableBinding) -> Call:
        given = [pieces if binding is first else encoded_whole(binding, row) for _, row, pieces in rows]
        if len(given) == 1:
            return Call(record_one(binding), (*kinds, *given[0]))
        return Call(record_given(binding), [array(CHAR, kinds), *binding.arrays(binding.shape.columns, given)])

    return build


class LogTable(PostgreSQLTable):
    """A log in a transaction: it accepts rows, and stores none."""

    @on_current_schema
    def _write(self, writes: RowWrites) -> Answer | None:
        tx, binding = self._tx, self.binding
        tx.require_usable()
        check_verb(binding.spec, writes.verb.name)
        tx.require_writable()
        self.written = True
        if writes.verb is APPLY_CHANGES:
            given: Sequence[Given] = [row for _, row in check_row_kinds(binding.write_spec, writes.rows)]
        else:
            given = writes.rows if writes.rows.__class__ is tuple else self._many(writes)
        rows: list[_RecordedRow] = []
        for row in given:
            pieces = encoded_whole(binding, row)
            # A copy: the caller may change the row before the statement is built for another version of the table.
            rows.append((RowKind.INSERT, dict(row), pieces))
        tx.require_room(sum(at_most(pieces) for _, _, pieces in rows))
        for chunk in chunks(rows, lambda one: at_most(one[2])):
            tx.defer(self, _recording(binding, chunk))
        return None

    def statistics(self, range: Range) -> TableStatistics:
        check_range(self.specification, range)  # checked here, since no query reaches the server
        return TableStatistics(0, 0, exact=True)
