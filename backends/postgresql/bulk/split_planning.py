"""Scans divided among processes: an exported snapshot, and a part of the table's pages for each split."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from structable.backends.base.ruled_batches import ComputedScan, PlannedColumns, planned_columns, stored_scan
from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.errors import STALE, PostgreSQLError, StatementRefusedError, translated
from structable.backends.postgresql.driver.pool import ServerPool
from structable.backends.postgresql.driver.snapshot_text import Snapshot, without_limits
from structable.backends.postgresql.driver.statement import BEGIN_READING, TEXT, Call, Statement, command
from structable.backends.postgresql.feeds.gate import VersionGate
from structable.backends.postgresql.feeds.layout import FEEDS, GATE
from structable.backends.postgresql.schema.catalog import Catalog
from structable.backends.postgresql.sql.aggregates import aggregate_columns, group_clause
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.conditions import Conditions
from structable.backends.postgresql.sql.names import literal, qualified
from structable.backends.postgresql.sql.templates import templated
from structable.backends.postgresql.sql.write_statements import columns_of
from structable.spi import (
    Aggregation,
    FeedPosition,
    Range,
    ScanPlan,
    SnapshotHold,
    StorageUnavailableError,
    StructableError,
    TableSpecification,
    TransactionConflictError,
)
from structable.spi.authors import PlanScan, Scan, ScanRequest, check_splits

from .split_state import Grouping, PageRange, SplitState

_log = logging.getLogger("structable.postgresql")

_ATTEMPTS = 5
_LEAST_BYTES = 256 << 10
"""The minimum size of a split."""
_LEAST_SHARE = 2
"""The minimum average number of rows of a group for which the server groups."""
_FEW_ROWS = 1_000
"""The number of rows up to which the server always groups."""
_SIZES = (
    "pg_table_size($1::regclass), pg_relation_size($1::regclass) / current_setting('block_size')::bigint, "
    "coalesce((select pg_relation_size(reltoastrelid) from pg_class where oid = $1::regclass), 0)"
)
SIZES = Statement(f"select {_SIZES}", (TEXT,))
"""The sizes that `divided` needs."""
_FACTS = Statement(f"select pg_current_snapshot()::text, pg_export_snapshot(), {_SIZES}", (TEXT,))


class PlanSnapshot(NamedTuple):
    """The snapshot of an open transaction, which plans divide."""

    connection: ServerConnection
    name: str
    """The name by which readers of splits import the snapshot."""
    version: int | None
    """The version that the snapshot equals; None if it equals none, and on a server in recovery."""
    is_version: bool
    """Whether plans of tables with a feed may use it."""


class PlanArguments(NamedTuple):
    """The checked arguments of a plan."""

    names: tuple[str, ...]
    """The columns of the batches."""
    request: ScanRequest
    columns: PlannedColumns
    """The columns of the rows that are read."""
    computed: ComputedScan | None
    """The computation on the batches."""

    @classmethod
    def of(cls, binding: TableBinding, arguments: PlanScan) -> PlanArguments:
        """Check the arguments of a plan; raises InvalidFieldError if one does not fit the table."""
        spec = binding.spec
        names = planned_columns(spec, arguments).names
        stored, computed = stored_scan(spec, arguments)
        request = ScanRequest.checked(spec, Scan((stored.range,), stored.where))
        return cls(names, request, planned_columns(spec, stored), computed)


class TablePlan(NamedTuple):
    """A divided scan of a table, without a hold on its snapshot yet."""

    specification: TableSpecification
    names: tuple[str, ...]
    states: list[bytes]
    position: FeedPosition | None

    def held(self, hold: SnapshotHold) -> ScanPlan:
        """Return the plan with the function that frees its snapshot."""
        return ScanPlan(self.specification, self.names, self.states, hold, position=self.position)


def plan_table_scan(
    pool: ServerPool,
    catalog: Catalog,
    gate: VersionGate,
    arguments: PlanScan,
) -> tuple[ScanPlan, ServerConnection]:
    """Plan a divided scan, see `Storage.plan_scan`; return the plan and the connection that holds its snapshot."""
    plan, snapshot = first_plan(pool, catalog, gate, arguments)
    return plan.held(SnapshotHold(partial(release_snapshot, pool, snapshot.connection))), snapshot.connection


def first_plan(
    pool: ServerPool,
    catalog: Catalog,
    gate: VersionGate,
    arguments: PlanScan,
    *,
    for_feeds: bool = False,
) -> tuple[TablePlan, PlanSnapshot]:
    """Take a snapshot and plan a divided scan of it; `release_snapshot` frees it.

    With `for_feeds`, tables with a feed can also be planned at the snapshot, if there are any.
    """
    splits, table = check_splits(arguments.splits), arguments.table
    for attempt in range(1, _ATTEMPTS + 1):
        connection = pool.acquire()
        try:
            binding = _bound(connection, catalog, table)
            scan = PlanArguments.of(binding, arguments)
            snapshot, sizes, position = _begun(connection, gate, binding, for_feeds=for_feeds)
            states = divided(snapshot, binding, scan, splits, sizes)
            return TablePlan(binding.spec, scan.names, states, position), snapshot
        except BaseException as error:
            release_snapshot(pool, connection)
            if isinstance(error, _TableOutdatedError) or (
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
                # The cached specification may be out of date: a field that it lacks may be new.
                catalog.forget(table)
                continue
            raise
    raise AssertionError("unreachable: the last attempt returns or raises")


def _bound(connection: ServerConnection, catalog: Catalog, table: str) -> TableBinding:
    known = catalog.known(table) if isinstance(table, str) else None
    return known or catalog.lookup(connection.ask, table)


class _TableOutdatedError(Exception):
    """The table was looked up after the snapshot was taken, and has changed in between."""


def release_snapshot(pool: ServerPool, connection: ServerConnection) -> None:
    """End the transaction of a plan, and with it its snapshot."""
    try:
        connection.roll_back()
    finally:
        pool.release(connection)


def feed_token(binding: TableBinding) -> Call:
    """Return the call for the token of a table's feed."""
    return command(f"select token from {qualified(binding.schema, FEEDS)} where feed = {binding.version.feed}")


def _begun(
    connection: ServerConnection, gate: VersionGate, binding: TableBinding, *, for_feeds: bool
) -> tuple[PlanSnapshot, tuple[int, ...], FeedPosition | None]:
    """Begin a transaction whose snapshot has the present version of a table; return the table's sizes and position."""
    # Before the snapshot: the table stays as the snapshot sees it until the plan is closed.
    before = (*without_limits(connection), command(f"lock table {binding.qualified} in access share mode"))
    after = [
        Call(_FACTS, (binding.qualified.encode(),)),
        command(f"select {binding.token}"),
        connection.plan_freely,
    ]
    has_feed = binding.version.feed is not None
    if has_feed:
        after.append(feed_token(binding))
    exact = None
    if has_feed or (for_feeds and _has_gate(connection, binding.schema)):
        try:
            exact = gate.begin(connection, BEGIN_READING, before=before, after=after)
        except (StorageUnavailableError, StatementRefusedError) as error:
            if has_feed or connection.closed:
                raise
            _log.info("tables with a change feed cannot be planned at a shared snapshot: %s", error)
            connection.roll_back()
    begun = (BEGIN_READING, *before)
    results = exact.results if exact else connection.pipeline((*begun, *after))[len(begun) :]
    seen, name, *sizes = (str(value) for value in connection.rows(results[0])[0])
    if not Snapshot(seen).sees(binding.version.changed_by):
        raise _TableOutdatedError
    version = None if exact is None else exact.version
    position = None
    if has_feed and version is not None:
        position = FeedPosition(str(connection.rows(results[-1])[0][0]), version)
    return PlanSnapshot(connection, name, version, exact is not None), tuple(map(int, sizes)), position


def _has_gate(connection: ServerConnection, schema: str) -> bool:
    found = connection.ask(command(f"select to_regclass({literal(qualified(schema, GATE))}) is not null"))
    return bool(found[0][0])


def divided(
    snapshot: PlanSnapshot, binding: TableBinding, scan: PlanArguments, splits: int, sizes: tuple[int, ...]
) -> list[bytes]:
    """Return the states of the splits of a table."""
    connection, request, columns = snapshot.connection, scan.request, scan.columns
    size, pages, elsewhere = sizes
    rows = f"from {binding.qualified} as t where {_conditions(connection, binding, request)}"
    query = f"select {columns_of(columns.read)} {rows}"
    most = max(1, min(splits, pages, -(-size // _LEAST_BYTES)))
    conditional = request.where is not None or request.ranges != (Range(),)
    if conditional and size >= 2 * _LEAST_BYTES and _is_indexed(connection, binding, query, most):
        parts: list[PageRange | None] = [None]
    else:
        bounds = [pages * place // most for place in range(most + 1)]
        parts = [PageRange(begin, end) for begin, end in pairwise(bounds)]
    grouping = None
    if columns.aggregation is not None:
        grouping = _grouping(connection, binding, columns.aggregation, rows, query)
    states = (
        SplitState(
            binding.spec,
            columns.read,
            query,
            part,
            not elsewhere,
            snapshot.name,
            columns.aggregation,
            grouping,
            scan.computed,
        )
        for part in parts
    )
    return [pickle.dumps(tuple(state)) for state in states]


def _is_indexed(connection: ServerConnection, binding: TableBinding, query: str, splits: int) -> bool:
    """Return whether an index finds the rows in less time than the pages of one of the splits take."""
    wanted, whole = _plans(connection, (query, f"select * from {binding.qualified}"))
    return bool(wanted["Total Cost"] <= whole["Total Cost"] / splits)


def _plans(connection: ServerConnection, queries: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the server's plan of each query."""
    for result in connection.pipeline([command(f"explain (format json) {text}") for text in queries]):
        found = connection.rows(result)[0][0]
        yield (json.loads(found) if isinstance(found, str | bytes) else found)[0]["Plan"]


def _grouping(
    connection: ServerConnection, binding: TableBinding, aggregation: Aggregation, rows: str, query: str
) -> Grouping | None:
    """Return the server's grouping of a query's rows; None if it expects almost as many groups as rows."""
    wanted = ", ".join(aggregate_columns(binding.spec, aggregation))
    grouping = Grouping(f"select {wanted} {rows}", group_clause(aggregation))
    if aggregation.group_by:
        groups, read = _plans(connection, (grouping.query + grouping.clause, query))
        if groups["Plan Rows"] * _LEAST_SHARE > read["Plan Rows"] > _FEW_ROWS:
            return None
    return grouping


def _conditions(connection: ServerConnection, binding: TableBinding, request: ScanRequest) -> str:
    """Return the SQL of a scan's condition, without parameters.

    The server turns their values into literals: it reads its own quoting back as the same value.
    """
    template, given = templated(binding, request)
    parameters = Conditions(binding)
    parameters.tests(template)
    literals: list[str] = []
    # The text of instants must not depend on the server's settings.
    how = command("set local datestyle = 'ISO, YMD'")
    for begin in range(0, len(given), _MOST_RENDERED):
        chunk = given[begin : begin + _MOST_RENDERED]
        types = parameters.types[begin : begin + _MOST_RENDERED]
        pieces = [f"quote_literal(${place}::text) || '::' || pg_typeof(${place})" for place in range(1, len(chunk) + 1)]
        render = Statement(f"select {', '.join(pieces)}", types, prepare=False)
        results = connection.pipeline((how, Call(render, chunk)))
        literals += map(str, connection.rows(results[1])[0])
    return _Rendered(binding, literals).tests(template)


_MOST_RENDERED = 1_000


class _Rendered(Conditions):
    """Conditions with literals instead of parameters."""

    def __init__(self, binding: TableBinding, literals: list[str]) -> None:
        super().__init__(binding)
        self._literals = iter(literals)

    def parameter_of(self, oid: int) -> str:
        return next(self._literals)
