"""`RecordingTable`: a table whose change feed holds what its writers give (producer `input`), inside a transaction."""

from __future__ import annotations

from structable.spi import RowKind, Value
from structable.spi.operations import (
    APPLY_CHANGES,
    DELETE,
    DELETE_MANY,
    INCREMENT_MANY,
    UPDATE,
    UPDATE_MANY,
    Answer,
    RangeWrite,
    Records,
    RowWrites,
    When,
)
from structable.spi.rules.changes import check_increments, check_row_changes
from structable.spi.rules.rows import check_row

from .sql.binding import TableBinding
from .sql.row_codec import Pieces
from .table import PostgreSQLTable
from .txn.bound_table import on_current_schema
from .txn.input_records import InputRecords
from .txn.server_transaction import ServerTransaction
from .txn.update_many import checked_updates, rounds_of, update_batch

__all__ = ["RecordingTable"]


class RecordingTable(PostgreSQLTable):
    """Records what each call was given after its writes, or the rows as they are after them."""

    def __init__(self, transaction: ServerTransaction, binding: TableBinding) -> None:
        super().__init__(transaction, binding)
        self._records = InputRecords(transaction, self)

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
        if verb is DELETE:
            checked, _ = self.binding.encoded_key(writes.rows[0])
            records.add([(RowKind.DELETE, dict(zip(self.binding.spec.primary_key, checked, strict=True)))])
        elif verb is APPLY_CHANGES:
            records.add(check_row_changes(self.binding.write_spec, writes.rows))
        elif verb.records is Records.GIVEN:
            kind = RowKind.INSERT if verb.when is When.ABSENT else RowKind.UPDATE_AFTER
            records.add((kind, row) for row in writes.rows)
        elif not answer:
            records.add_rows_of(self._keys_written(writes))
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

    def _keys_written(self, writes: RowWrites) -> list[Pieces]:
        binding, rows = self.binding, writes.rows
        if writes.verb is UPDATE:
            return [self._key_of(check_row(binding.write_spec, rows[0]))]
        if writes.verb is INCREMENT_MANY:
            return [binding.key_pieces(key) for key, _, _ in check_increments(binding.spec, rows)]
        return [binding.encoded_key(rows[0][0])[1]]

    def _write_range(self, write: RangeWrite) -> int:
        if self.binding.spec.keyless:
            self._admit(write.name)
        self._records.leave_to_triggers()
        return super()._write_range(write)
