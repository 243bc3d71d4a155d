"""Tables that have changed since a transaction's snapshot."""

from __future__ import annotations

from structable.spi import TransactionConflictError

__all__ = ["NewerTableError", "changed_since"]


class NewerTableError(Exception):
    """A table was looked up after the transaction's snapshot was taken, and has changed in between."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def changed_since(name: str) -> TransactionConflictError:
    """Return the error of a transaction that uses such a table."""
    return TransactionConflictError(f"table {name!r} was changed or dropped since the transaction's snapshot")
