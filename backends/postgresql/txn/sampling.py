"""About how many rows a scan finds: counted in a sample of the table's pages.

The server's own estimate is wrong by any factor until a table was analyzed, which is a minute after it was loaded.
"""

from __future__ import annotations

from structable.backends.postgresql.driver.statement import Call, Statement
from structable.backends.postgresql.driver.type_oids import TEXT
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.conditions import Conditions
from structable.backends.postgresql.sql.templates import templated
from structable.spi.rules.scans import ScanRequest

from .bound_table import BoundTable
from .server_transaction import ServerTransaction

__all__ = ["sampled_size"]

_PAGES = 500
"""Pages of 8 KiB that are read, in 10 to 20 ms."""
_SIZE = Statement("select pg_relation_size($1::regclass) / current_setting('block_size')::bigint", (TEXT,))


def sampled_size(tx: ServerTransaction, table: BoundTable, request: ScanRequest) -> tuple[int, int]:
    """Return about how many rows a scan finds, and how many bytes they have."""
    pages = int(str(tx.rows_of(tx.ask(table, lambda binding: Call(_SIZE, (binding.qualified.encode(),))))[0][0]))
    share = min(1.0, _PAGES / max(1, pages))

    def build(binding: TableBinding) -> Call:
        template, pieces = templated(binding, request)
        conditions = Conditions(binding)
        text = (
            f"select count(*), coalesce(sum(pg_column_size(t.*)), 0) from {binding.qualified} as t "
            f"tablesample system ({100 * share:.6f}) where {conditions.tests(template)}"
        )
        return Call(conditions.statement(text, prepare=False), pieces)

    rows, size = tx.rows_of(tx.ask(table, build))[0]
    return int(int(str(rows)) / share), int(int(str(size)) / share)
