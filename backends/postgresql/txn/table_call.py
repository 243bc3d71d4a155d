"""`TableCall`: a statement on a table, not yet run, that can be built again for another version of the table."""

from __future__ import annotations

from collections.abc import Callable

from structable.backends.postgresql.driver.statement import Call, require_sendable
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.row_codec import Pieces

from .bound_table import BoundTable

__all__ = ["TableCall"]


class TableCall:
    """A statement that `build` makes for a version of a table; `key` is the only row it concerns, None is any row."""

    __slots__ = ("build", "call", "key", "table")

    def __init__(self, table: BoundTable, build: Callable[[TableBinding], Call], key: Pieces | None = None) -> None:
        self.table = table
        self.build = build
        self.call = build(table.binding)
        require_sendable(*self.call)
        self.key = key

    def meets(self, other: TableCall) -> bool:
        """Tell whether both may concern one row."""
        return self.table is other.table and (self.key is None or other.key is None or self.key == other.key)
