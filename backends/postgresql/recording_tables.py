"""Tables whose change feed holds what their writers give (producer `input`), inside a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from structable.spi import Change, Filter, Key, Range, RowKind, UpdateMessage, Value
from structable.spi.rules.arguments import check_many
from structable.spi.rules.changes import check_increments, check_row_changes
from structable.spi.rules.rows import check_row

from .keyless_table import KeylessPostgreSQLTable
from .sql.binding import TableBinding
from .table import PostgreSQLTable
from .txn.bound_table import on_current_schema
from .txn.input_records import InputRecords
from .txn.server_transaction import ServerTransaction
from .txn.update_many import checked_updates, rounds_of, update_batch

__all__ = ["RecordingKeylessTable", "RecordingTable"]


class _RecordingVerbs(PostgreSQLTable):
    """The verbs of all tables, with or without a key; records what each call was given after its writes."""

    def __init__(self, transaction: ServerTransaction, binding: TableBinding) -> None:
        super().__init__(transaction, binding)
        self._records = InputRecords(transaction, self)

    def insert(self, row: Mapping[str, Value]) -> None:
        self._records.begin()
        super().insert(row)
        self._records.add([(RowKind.INSERT, row)])

    def insert_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        self._records.begin()
        given = check_many(self.binding.spec, "rows", rows)
        super().insert_many(given)
        self._records.add((RowKind.INSERT, row) for row in given)

    def apply_changes(self, changes: Iterable[Change | tuple[RowKind | str, Mapping[str, Value]]]) -> None:
        self._records.begin()
        given = check_many(self.binding.spec, "changes", changes)
        super().apply_changes(given)
        self._records.add(check_row_changes(self.binding.write_spec, given))

    def delete_all(self, range: Range, where: Filter | None = None) -> int:
        self._records.leave_to_triggers()
        return super().delete_all(range, where)


class RecordingTable(_RecordingVerbs):
    """Records what each call was given after its writes, or the rows as they are after them."""

    def upsert(self, row: Mapping[str, Value]) -> None:
        self._records.begin()
        super().upsert(row)
        self._records.add([(RowKind.UPDATE_AFTER, row)])

    def replace(self, row: Mapping[str, Value]) -> None:
        self._records.begin()
        super().replace(row)
        self._records.add([(RowKind.UPDATE_AFTER, row)])

    def delete(self, key: Key) -> None:
        self._records.begin()
        super().delete(key)
        checked, _ = self.binding.encoded_key(key)
        self._records.add([(RowKind.DELETE, dict(zip(self.binding.spec.primary_key, checked, strict=True)))])

    def upsert_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        self._records.begin()
        given = check_many(self.binding.spec, "rows", rows)
        super().upsert_many(given)
        self._records.add((RowKind.UPDATE_AFTER, row) for row in given)

    def update(self, row: Mapping[str, Value], default: Mapping[str, Value] | None = None) -> None:
        self._records.begin()
        super().update(row, default)
        checked = check_row(self.binding.write_spec, row)
        self._records.add_rows_of([self._key_of(checked)])

    @on_current_schema
    def update_many(
        self, updates: Iterable[Mapping[str, Value] | UpdateMessage], default: Mapping[str, Value] | None = None
    ) -> list[tuple[Value, ...]]:
        self._records.begin()
        given = check_many(self.binding.spec, "updates", updates)
        missing: dict[tuple[Value, ...], None] = {}
        binding = self.binding
        checked = checked_updates(binding, given, default)
        width = len(binding.key_fields)
        for one_round in rounds_of(self._tx, self, binding, checked):
            skipped = update_batch(self._tx, self, binding, one_round)
            missing.update(dict.fromkeys(self._keys_of(skipped)))
            absent = {one.pieces[:width] for one in skipped}
            self._records.add_rows_of(key for one in one_round if (key := one.pieces[:width]) not in absent)
        return list(missing)

    def compare_and_swap(self, key: Key, field: str, expected: Value, value: Value) -> bool:
        self._records.begin()
        done = super().compare_and_swap(key, field, expected, value)
        if done:
            self._records.add_rows_of([self.binding.encoded_key(key)[1]])
        return done

    def increment(self, key: Key, field: str, amount: int = 1) -> None:
        self._records.begin()
        super().increment(key, field, amount)
        self._records.add_rows_of([self.binding.encoded_key(key)[1]])

    def increment_many(self, increments: Iterable[tuple[Key, str, int]]) -> None:
        self._records.begin()
        given = check_many(self.binding.spec, "increments", increments)
        super().increment_many(given)
        keys = [key for key, _, _ in check_increments(self.binding.spec, given)]
        self._records.add_rows_of([self.binding.key_pieces(key) for key in keys])

    def delete_many(self, keys: Iterable[Key]) -> None:
        self._records.leave_to_triggers()
        super().delete_many(keys)

    def update_all(self, range: Range, changes: Mapping[str, Value], where: Filter | None = None) -> int:
        self._records.leave_to_triggers()
        return super().update_all(range, changes, where)


class RecordingKeylessTable(_RecordingVerbs, KeylessPostgreSQLTable):
    """The same of tables without a key."""
