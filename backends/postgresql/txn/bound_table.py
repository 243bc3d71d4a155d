"""`BoundTable`: a table in one transaction, whose statements are built again if another process changed the table."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from structable.backends.postgresql.driver.errors import StatementRefusedError
from structable.backends.postgresql.driver.statement import Call, require_sendable
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.row_codec import Pieces
from structable.spi import InvalidFieldError, StructableError, UnsupportedOperationError

from .seen_rows import SeenRows

__all__ = ["BoundTable", "Refusal", "TableCall", "on_current_schema"]

Given = TypeVar("Given")
Result = TypeVar("Result")


class BoundTable:
    """A table in a transaction, in the newest version known to this process.

    `verify` lets the server accept or reject the binding; the transaction replaces an outdated one.
    """

    def __init__(self, binding: TableBinding, verify: Callable[[BoundTable], None]) -> None:
        self.binding = binding
        self.verified = False
        """Whether the server has accepted a statement of the binding in this transaction."""
        self.written = False
        """Whether a write was called."""
        self._verify = verify
        self.seen = SeenRows()

    def renew(self) -> bool:
        """Let the server check that the binding is current; return whether it was replaced."""
        if self.verified:
            return False
        before = self.binding
        self._verify(self)
        self.verified = True
        return self.binding is not before


Refusal = Callable[[StatementRefusedError], StructableError | None]
"""Returns the error of a write that the server rejected because of its row; None if the reason was another one."""


class TableCall:
    """A statement that `build` makes for a version of a table, not yet run.

    `key` is the only row that it concerns, None is any row; `refusal` explains a rejected write that may not fit its
    row.
    """

    __slots__ = ("build", "call", "key", "refusal", "table")

    def __init__(
        self,
        table: BoundTable,
        build: Callable[[TableBinding], Call],
        key: Pieces | None = None,
        refusal: Refusal | None = None,
    ) -> None:
        self.table = table
        self.build = build
        self.refusal = refusal
        self.call = build(table.binding)
        require_sendable(*self.call)
        self.key = key

    def meets(self, other: TableCall) -> bool:
        """Return whether both statements may concern the same row."""
        return self.table is other.table and (self.key is None or other.key is None or self.key == other.key)


Table = TypeVar("Table", bound=BoundTable)


def on_current_schema(operation: Callable[[Table, Given], Result]) -> Callable[[Table, Given], Result]:
    """Decorate an operation: if it rejects its argument, check whether the table has changed, and if so try again.

    Arguments are checked against the schema this process knows, which another process may have changed.
    """

    @wraps(operation)
    def run(table: Table, given: Given) -> Result:
        try:
            return operation(table, given)
        except (InvalidFieldError, UnsupportedOperationError):
            if not table.renew():
                raise
        return operation(table, given)

    return run
