"""Tables as they are stored, without what unfinished rules make of their reads: what a backfill compares and writes."""

from __future__ import annotations

from structable.spi import StructuredTable, Transaction
from structable.spi.row_rules import RowRules
from structable.spi.ruled_table import RuledTable

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
    spec = table.specification
    if RowRules.of(spec) is None:
        return table
    inner: object = table
    while isinstance(inner, StructuredTable) and not isinstance(inner, RuledTable):
        inner = getattr(inner, "_table", None)  # wrappers that measure or refuse
    if not isinstance(inner, RuledTable):
        raise MigrationError(f"table {name!r} of {type(table).__name__} cannot be filled: connect to the store itself")
    return inner._table
