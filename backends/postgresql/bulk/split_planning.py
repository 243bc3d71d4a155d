"""Scans divided among processes: an exported snapshot, and a part of the table's pages for each split."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Iterable
from functools import partial
from itertools import pairwise
from typing import Any

import sqlalchemy as sa

from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.errors import STALE, PostgreSQLError, StatementRefusedError, translated
from structable.backends.postgresql.driver.pool import ServerPool
from structable.backends.postgresql.driver.snapshot_text import is_visible, without_limits
from structable.backends.postgresql.driver.statement import Call, Statement, command
from structable.backends.postgresql.feeds.gate import VersionGate
from structable.backends.postgresql.feeds.layout import FEEDS
from structable.backends.postgresql.schema.catalog import Catalog
from structable.backends.postgresql.sql.binding import DIALECT, TableBinding
from structable.backends.postgresql.sql.conditions import Conditions
from structable.backends.postgresql.sql.names import qualified
from structable.backends.postgresql.sql.templates import templated
from structable.spi import (
    FeedPosition,
    Filter,
    Range,
    ScanPlan,
    SnapshotHold,
    StructableError,
    TransactionConflictError,
)
from structable.spi.rules.fields import check_columns
from structable.spi.rules.scans import ScanRequest, check_splits

from .split_state import PageRange, SplitState

__all__ = ["plan_table_scan"]

_log = logging.getLogger("structable.postgresql")

_ATTEMPTS = 5
_LEAST_BYTES = 256 << 10
"""The minimum size of a split."""
_BEGIN = command("begin isolation level repeatable read read only")
_TEXT = 25
_FACTS = Statement(
    "select pg_current_snapshot()::text, pg_export_snapshot(), pg_table_size($1::regclass), "
    "pg_relation_size($1::regclass) / current_setting('block_size')::bigint, "
    "coalesce((select pg_relation_size(reltoastrelid) from pg_class where oid = $1::regclass), 0)",
    (_TEXT,),
)


def plan_table_scan(
    pool: ServerPool,
    catalog: Catalog,
    gate: VersionGate,
    table: str,
    range_: Range,
    where: Filter | None,
    columns: Iterable[str] | None,
    splits: int,
) -> tuple[ScanPlan, ServerConnection]:
    """Plan a divided scan, see `Storage.plan_scan`; return the plan and the connection that holds its snapshot."""
    splits = check_splits(splits)
    given = None if columns is None else list(columns)
    for attempt in range(1, _ATTEMPTS + 1):
        connection = pool.acquire()
        try:
            binding = _bound(connection, catalog, table)
            names = check_columns(binding.spec, given) or binding.spec.field_names
            request = ScanRequest.checked(binding.spec, (range_,), where)
            states, position = _plan(connection, gate, binding, request, names, splits)
            hold = SnapshotHold(partial(_release, pool, connection))
            return ScanPlan(binding.spec.name, names, states, hold, position=position), connection
        except BaseException as error:
            _release(pool, connection)
            if isinstance(error, _NewerTableError) or (
                isinstance(error, StatementRefusedError) and error.state in STALE
            ):
                catalog.forget(table)
                if attempt < _ATTEMPTS:
                    _log.info("planning a scan of table %r again: it was changed", table)
                    continue
                raise TransactionConflictError(f"table {table!r} is being changed") from error
            if isinstance(error, PostgreSQLError):
                raise translated(error, f"planning a scan of table {table!r}") from error
            if isinstance(error, StructableError) and catalog.known(table) is not None and attempt == 1:
                # A field that is not known here may be a new one.
                catalog.forget(table)
                continue
            raise
    raise AssertionError("unreachable: the last attempt returns or raises")


def _bound(connection: ServerConnection, catalog: Catalog, table: str) -> TableBinding:
    known = catalog.known(table) if isinstance(table, str) else None
    return known or catalog.lookup(connection.ask, table)


class _NewerTableError(Exception):
    """The table was looked up after the snapshot was taken, and has changed in between."""


def _release(pool: ServerPool, connection: ServerConnection) -> None:
    try:
        connection.roll_back()
    finally:
        pool.release(connection)


def _plan(
    connection: ServerConnection,
    gate: VersionGate,
    binding: TableBinding,
    request: ScanRequest,
    names: tuple[str, ...],
    splits: int,
) -> tuple[list[bytes], FeedPosition | None]:
    # Before the snapshot: the table stays as the snapshot sees it until the plan is closed.
    before = (*without_limits(connection), command(f"lock table {binding.qualified} in access share mode"))
    after = (
        Call(_FACTS, (binding.qualified.encode(),)),
        command(f"select {binding.token}"),
        connection.plan_freely,
    )
    position = None
    if binding.version.feed is None:
        facts = connection.pipeline((_BEGIN, *before, *after))[1 + len(before)]
    else:
        feeds = qualified(binding.schema, FEEDS)
        token = command(f"select token from {feeds} where feed = {binding.version.feed}")
        version, (facts, _, _, named) = gate.begin(connection, _BEGIN, before=before, after=(*after, token))
        if version is not None:
            position = FeedPosition(str(connection.rows(named)[0][0]), version)
    seen, snapshot, *sizes = (str(value) for value in connection.rows(facts)[0])
    if not is_visible(binding.version.changed_by, seen):
        raise _NewerTableError
    size, pages, elsewhere = map(int, sizes)
    query = rendered_query(connection, binding, request, names)
    most = max(1, min(splits, pages, -(-size // _LEAST_BYTES)))
    conditional = request.where is not None or request.ranges != (Range(),)
    if conditional and size >= 2 * _LEAST_BYTES and _is_indexed(connection, binding, query, most):
        parts: list[PageRange | None] = [None]
    else:
        bounds = [pages * place // most for place in range(most + 1)]
        parts = [PageRange(begin, end) for begin, end in pairwise(bounds)]
    states = (SplitState(binding.spec, names, query, part, not elsewhere, snapshot) for part in parts)
    return [pickle.dumps(tuple(state)) for state in states], position


def _is_indexed(connection: ServerConnection, binding: TableBinding, query: str, splits: int) -> bool:
    """Return whether an index finds the rows in less time than the pages of one of the splits take."""
    everything = f"select * from {binding.qualified}"
    results = connection.pipeline([command(f"explain (format json) {text}") for text in (query, everything)])
    plans: list[dict[str, Any]] = []
    for result in results:
        found = connection.rows(result)[0][0]
        plans.append((json.loads(found) if isinstance(found, str | bytes) else found)[0]["Plan"])
    wanted, whole = plans
    return bool(wanted["Total Cost"] <= whole["Total Cost"] / splits)


def rendered_query(
    connection: ServerConnection, binding: TableBinding, request: ScanRequest, names: tuple[str, ...]
) -> str:
    """Return the SQL of a scan's rows, in no order, that ends with its conditions and has no parameters.

    The server turns their values into literals: it reads its own quoting back as the same value.
    """
    template, given = templated(binding, request)
    parameters = Conditions(binding)
    parameters.tests(template)
    literals: list[str] = []
    # Instants as text do not depend on how the server likes to write them.
    how = command("set local datestyle = 'ISO, YMD'")
    for begin in range(0, len(given), _MOST_RENDERED):
        chunk = given[begin : begin + _MOST_RENDERED]
        types = parameters.types[begin : begin + _MOST_RENDERED]
        pieces = [f"quote_literal(${place}::text) || '::' || pg_typeof(${place})" for place in range(1, len(chunk) + 1)]
        render = Statement(f"select {', '.join(pieces)}", types, prepare=False)
        results = connection.pipeline((how, Call(render, chunk)))
        literals += map(str, connection.rows(results[1])[0])
    query = (
        sa.select(*(binding.core.c[name] for name in names))
        .select_from(binding.core)
        .where(*_Rendered(binding, literals).tests(template), binding.current)
    )
    return str(query.compile(dialect=DIALECT))


_MOST_RENDERED = 1_000


class _Rendered(Conditions):
    """Conditions with literals in the place of their parameters."""

    def __init__(self, binding: TableBinding, literals: list[str]) -> None:
        super().__init__(binding)
        self._literals = iter(literals)

    def parameter_of(self, oid: int) -> Any:  # noqa: ANN401 - as good as a parameter
        return sa.literal_column(next(self._literals))
