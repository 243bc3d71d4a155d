"""About how many rows a scan finds: counted in a sample of the table's pages.

The server's own estimate is wrong by any factor until a table was analyzed, which is a minute after it was loaded.
"""

from __future__ import annotations

import sqlalchemy as sa

from structable.backends.postgresql.driver.statement import Call, Statement
from structable.backends.postgresql.driver.type_oids import TEXT
from structable.backends.postgresql.sql.binding import DIALECT, TableBinding
from structable.backends.postgresql.sql.conditions import Conditions
from structable.backends.postgresql.sql.queries import query_of
from structable.backends.postgresql.sql.templates import Template
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
        query, values = query_of(binding, request, ("sample",), lambda *shape: _counted(binding, *shape))
        statement, parameters = query.call_freely(values)
        return Call(_sampling(binding, statement, share), parameters)

    rows, size = tx.rows_of(tx.ask(table, build))[0]
    return int(int(str(rows)) / share), int(int(str(size)) / share)


def _counted(binding: TableBinding, conditions: Conditions, template: Template) -> sa.ClauseElement:
    size: sa.ColumnElement[int] = sa.literal_column(f"coalesce(sum(pg_column_size({binding.qualified}.*)), 0)")
    tests = [*conditions.tests(template), binding.current]
    return sa.select(sa.func.count(), size).select_from(binding.core).where(*tests)


def _sampling(binding: TableBinding, statement: Statement, share: float) -> Statement:
    # SQLAlchemy samples an alias of a table, which the conditions do not name.
    source = f"FROM {DIALECT.identifier_preparer.format_table(binding.core)}"
    text = statement.text.decode()
    assert text.count(source) == 1, text
    sampled = text.replace(source, f"{source} TABLESAMPLE SYSTEM ({100 * share:.6f})")
    return Statement(sampled, statement.types, prepare=False)
