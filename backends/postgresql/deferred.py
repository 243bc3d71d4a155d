"""`Work`: a statement on a table that is yet to be run, and can be made anew for another version of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .driver.session import Call, require_sendable
from .sql.binding import TableBinding
from .sql.row_codec import Pieces

if TYPE_CHECKING:
    from .table import PostgreSQLTable

__all__ = ["Work"]


class Work:
    """A statement on a table that is yet to be run.

    Parameters
    ----------
    table : PostgreSQLTable
        The table.
    build : callable
        Makes the call for a version of the table.
    key : tuple of bytes, optional
        The only row that it reads or writes; None is any row.
    """

    __slots__ = ("build", "call", "key", "table")

    def __init__(
        self, table: PostgreSQLTable, build: Callable[[TableBinding], Call], key: Pieces | None = None
    ) -> None:
        self.table = table
        self.build = build
        self.call = build(table.binding)
        require_sendable(*self.call)
        self.key = key

    def meets(self, other: Work) -> bool:
        """Tell whether both may concern one row."""
        return self.table is other.table and (self.key is None or other.key is None or self.key == other.key)
