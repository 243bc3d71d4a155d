"""Tables as they are stored, without what unfinished rules make of their reads: what a backfill compares and writes."""

from __future__ import annotations

from structable.spi import StructuredTable, Transaction
from structable.spi.row_rules import RowRules

from .errors import MigrationError

__all__ = ["stored_table"]


def stored_table(tx: Transaction, name: str) -> StructuredTable:
    """Return a table whose reads and writes are of stored values alone.

    Raises
    ------
    MigrationError
        If the storage wraps its tables in a way that hides them.
    """
    table = tx.table(name)
    stored = table._stored()
    if stored is table and RowRules.of(table.specification) is not None:
        raise MigrationError(f"table {name!r} of {type(table).__name__} cannot be filled: connect to the store itself")
    return stored
