"""`explain`: the server's own plan, in the words that all stores share; and estimates of the rows of a scan."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from structable.backends.postgresql.driver.statement import TEXT, Call, Statement
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.conditions import Conditions
from structable.backends.postgresql.sql.names import index_name
from structable.backends.postgresql.sql.queries import scan_query
from structable.backends.postgresql.sql.templates import templated
from structable.spi import ScanExplanation
from structable.spi.authors import ScanRequest

from .bound_table import BoundTable
from .server_transaction import ServerTransaction

_SCANS = {"Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Index Scan", "Tid Range Scan"}
_PAGES = 500
"""The number of pages of 8 KiB that are sampled, in 10 to 20 ms."""
_SIZE = Statement("select pg_relation_size($1::regclass) / current_setting('block_size')::bigint", (TEXT,))


def explain_scan(tx: ServerTransaction, table: BoundTable, request: ScanRequest) -> ScanExplanation:
    """Ask the server how it would run a scan."""
    name = table.binding.spec.name
    if request.limit == 0 or not request.ranges:
        return ScanExplanation(name, "empty")

    def build(binding: TableBinding) -> Call:
        query, values = scan_query(binding, request)
        return query.explained(values)

    found = tx.rows_of(tx.ask(table, build))[0][0]
    plan = (json.loads(found) if isinstance(found, str | bytes) else found)[0]["Plan"]
    return _explanation(table.binding, plan)


def _explanation(binding: TableBinding, plan: dict[str, Any]) -> ScanExplanation:
    spec = binding.spec
    nodes = list(_nodes(plan))
    scans = [node for node in nodes if node["Node Type"] in _SCANS]
    notes = (f"estimated: {plan['Plan Rows']:,} rows, cost {plan['Total Cost']:,.0f}",)
    residual = next((node["Filter"] for node in nodes if "Filter" in node), None)
    sort = next((node for node in nodes if "Sort Key" in node), None)
    order = "by the path" if sort is None else f"sorted by the server by {', '.join(sort['Sort Key'])}"
    if not scans:
        return ScanExplanation(spec.name, "empty", residual=residual, notes=notes)
    scan = scans[0]
    condition = scan.get("Index Cond") or ""
    name = scan.get("Index Name")
    if name is None:
        return ScanExplanation(spec.name, "full scan", residual=residual, order=order, notes=notes)
    fields = {index_name(binding.version.id, field): field for field in spec.indexes}
    if name in fields:
        return ScanExplanation(
            spec.name, "index scan", fields[name], condition, condition or None, residual, order, notes
        )
    whole = bool(condition) and condition.count(" = ") == len(spec.primary_key)
    path = "key lookup" if whole else "key range scan" if condition else "full scan"
    return ScanExplanation(spec.name, path, None, condition, condition or None, residual, order, notes)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from _nodes(part)


def sampled_size(tx: ServerTransaction, table: BoundTable, request: ScanRequest) -> tuple[int, int]:
    """Return estimates of the rows and bytes that a scan finds, from a sample of the table's pages.

    The server's own estimate may be wrong by any factor until a table is analyzed, about a minute after a load.
    """
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
