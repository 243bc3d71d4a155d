"""`ManyRowsTable`: the operations of a table that write many rows, each by few statements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from structable.spi import Change, Key, RowKind, StructuredTable, UpdateMessage, Value
from structable.spi.rules.arguments import check_many
from structable.spi.rules.changes import check_increments, check_row_changes
from structable.spi.rules.rows import check_key, check_row

from .sql.binding import TableBinding
from .txn.bound_table import BoundTable, on_current_schema
from .txn.increments import defer_increments
from .txn.inserts import insert_batch
from .txn.key_deletes import delete_keys
from .txn.merges import apply_plain_changes, merge_changes
from .txn.server_transaction import ServerTransaction
from .txn.update_many import Update, checked_updates, update_batch
from .txn.upsert_many import upsert_batch

__all__ = ["ManyRowsTable"]


class ManyRowsTable(BoundTable, StructuredTable):
    """One table in one transaction, without the operations on one row and those on ranges."""

    def __init__(self, transaction: ServerTransaction, binding: TableBinding) -> None:
        super().__init__(binding, transaction.verify)
        self._tx = transaction

    @on_current_schema
    def increment_many(self, increments: Iterable[tuple[Key, str, int]]) -> None:
        self._tx.require_writable()
        defer_increments(self._tx, self, check_increments(self.binding.spec, increments))

    @on_current_schema
    def delete_many(self, keys: Iterable[Key]) -> None:
        self._tx.require_writable()
        delete_keys(
            self._tx, self, [self.binding.encoded_key(key)[1] for key in check_many(self.binding.spec, "keys", keys)]
        )

    @on_current_schema
    def upsert_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        self._tx.require_writable()
        given: list[Mapping[str, Value]] = check_many(self.binding.spec, "rows", rows)
        if self.binding.merges:
            spec = self.binding.write_spec
            merge_changes(self._tx, self, [(RowKind.INSERT, check_row(spec, row)) for row in given])
        else:
            upsert_batch(self._tx, self, given)

    @on_current_schema
    def update_many(
        self, updates: Iterable[Mapping[str, Value] | UpdateMessage], default: Mapping[str, Value] | None = None
    ) -> list[tuple[Value, ...]]:
        self._tx.require_writable()
        given = check_many(self.binding.spec, "updates", updates)
        if not given:
            return []
        binding = self.binding
        return self._keys_of(update_batch(self._tx, self, binding, checked_updates(binding, given, default)))

    def _keys_of(self, updates: Iterable[Update]) -> list[tuple[Value, ...]]:
        key = self.binding.spec.primary_key
        return [check_key(self.binding.spec, tuple([one.row[name] for name in key])) for one in updates]

    @on_current_schema
    def insert_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        self._tx.require_writable()
        insert_batch(self._tx, self, check_many(self.binding.spec, "rows", rows))

    @on_current_schema
    def apply_changes(self, changes: Iterable[Change | tuple[RowKind | str, Mapping[str, Value]]]) -> None:
        self._tx.require_writable()
        checked = check_row_changes(self.binding.write_spec, changes)
        apply = merge_changes if self.binding.merges else apply_plain_changes
        apply(self._tx, self, checked)
