"""`KeylessPostgreSQLTable`: the operations on a table without a key inside a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from structable.backends.base.keyless import KeylessTable
from structable.spi import Change, RowKind, Value
from structable.spi.rules.arguments import check_many
from structable.spi.rules.changes import check_row_changes
from structable.spi.rules.rows import check_row

from .table import PostgreSQLTable
from .txn.bound_table import on_current_schema
from .txn.keyless_writes import apply_to_bag, insert_keyless

__all__ = ["KeylessPostgreSQLTable"]


class KeylessPostgreSQLTable(KeylessTable, PostgreSQLTable):
    """One table without a key in one transaction."""

    @on_current_schema
    def insert(self, row: Mapping[str, Value]) -> None:
        self._tx.require_writable()
        insert_keyless(self._tx, self, [check_row(self.binding.write_spec, row)])

    @on_current_schema
    def insert_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        self._tx.require_writable()
        spec = self.binding.write_spec
        insert_keyless(self._tx, self, [check_row(spec, row) for row in check_many(spec, "rows", rows)])

    @on_current_schema
    def apply_changes(self, changes: Iterable[Change | tuple[RowKind | str, Mapping[str, Value]]]) -> None:
        self._tx.require_writable()
        apply_to_bag(self._tx, self, check_row_changes(self.binding.write_spec, changes))
