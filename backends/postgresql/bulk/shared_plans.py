"""`SharedPlans`: scans of several tables, planned one after the other on the connection of one snapshot."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from contextlib import AbstractContextManager
from functools import partial

from structable.backends.base.admin_rules import require_unretired
from structable.backends.base.shared_snapshot import HeldSnapshot
from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.errors import STALE, StatementRefusedError, translating
from structable.backends.postgresql.driver.pool import ServerPool
from structable.backends.postgresql.driver.statement import Call, command
from structable.backends.postgresql.feeds.gate import VersionGate
from structable.backends.postgresql.schema.catalog import Catalog
from structable.backends.postgresql.sql.binding import TableBinding
from structable.spi import FeedPosition, ScanPlan, SnapshotHold, TableNotFoundError, TransactionConflictError
from structable.spi.authors import PlanScan, check_splits

from .split_planning import (
    SIZES,
    PlanArguments,
    PlanSnapshot,
    TablePlan,
    divided,
    feed_token,
    first_plan,
    release_snapshot,
)

_SAVEPOINT = command("savepoint _structable_plan")
_UNDO = command("rollback to savepoint _structable_plan")
_RELEASE = command("release savepoint _structable_plan")


class SharedPlans(HeldSnapshot):
    """A shared snapshot: a transaction that holds it, and locks each planned table against changes of its schema.

    Parameters
    ----------
    pool : ServerPool
        Lends the connection of the transaction.
    aside : callable
        Lends connections that are not in the transaction.
    catalog, gate : Catalog, VersionGate
        The catalog and the gate of the storage.
    plans : mapping
        Receives the holds that the storage closes, with the connection of the snapshot, once there is one.
    require_open : callable
        Raises if the storage is closed.
    """

    def __init__(
        self,
        pool: ServerPool,
        aside: Callable[[], AbstractContextManager[ServerConnection]],
        catalog: Catalog,
        gate: VersionGate,
        plans: MutableMapping[SnapshotHold, ServerConnection | None],
        require_open: Callable[[], None],
    ) -> None:
        super().__init__(lambda hold: plans.setdefault(hold, None), require_open)
        self._pool = pool
        self._aside = aside
        self._catalog = catalog
        self._gate = gate
        self._plans = plans
        self._snapshot: PlanSnapshot | None = None

    def _plan(self, arguments: PlanScan, hold: Callable[[Callable[[], None]], SnapshotHold]) -> ScanPlan:
        if self._snapshot is None:
            planned, snapshot = first_plan(self._pool, self._catalog, self._gate, arguments, for_feeds=True)
            self._members.hold(partial(release_snapshot, self._pool, snapshot.connection))
            self._snapshot = snapshot
        else:
            snapshot = self._snapshot
            with translating(f"planning a scan of table {arguments.table!r}"):
                planned = self._next(snapshot, arguments)
        plan = planned.held(hold(lambda: None))  # the snapshot stays for the other plans
        self._plans[plan.hold] = snapshot.connection
        return plan

    def _next(self, snapshot: PlanSnapshot, arguments: PlanScan) -> TablePlan:
        """Plan in a savepoint: a rejected statement must not end the transaction, and with it the other plans."""
        splits = check_splits(arguments.splits)
        connection = snapshot.connection
        connection.pipeline((_SAVEPOINT,))
        try:
            binding = self._bound(connection, arguments.table)
            scan = PlanArguments.of(binding, arguments)
            sizes, position = self._locked(snapshot, binding)
            states = divided(snapshot, binding, scan, splits, sizes)
        except BaseException:
            if not connection.closed:
                connection.pipeline((_UNDO, _RELEASE))
            raise
        connection.pipeline((_RELEASE,))
        return TablePlan(binding.spec, scan.names, states, position)

    def _bound(self, connection: ServerConnection, name: str) -> TableBinding:
        """Return the version of a table in the snapshot."""
        catalog = self._catalog
        found = catalog.find(connection.ask, name)
        if found is None:
            with self._aside() as other:
                if catalog.find(other.ask, name) is None:
                    raise TableNotFoundError(name)
            raise _conflict(name, "created")
        require_unretired(found.spec)
        known = catalog.known(name)
        return known if known is not None and known.version == found else TableBinding(catalog.schema, found)

    def _locked(self, snapshot: PlanSnapshot, binding: TableBinding) -> tuple[tuple[int, ...], FeedPosition | None]:
        """Lock a table against changes, check that it is as in the snapshot, and return its sizes and its position."""
        connection, name = snapshot.connection, binding.spec.name
        has_feed = binding.version.feed is not None
        if has_feed and not snapshot.is_version:
            raise TransactionConflictError(
                f"the shared snapshot has no position in the change feed of table {name!r}; plan this table first"
            )
        calls = [
            command(f"lock table {binding.qualified} in access share mode"),
            # The lock may have had to wait. Only the newest version of the table has its token.
            command(f"select {binding.token}"),
            Call(SIZES, (binding.qualified.encode(),)),
        ]
        if has_feed:
            calls.append(feed_token(binding))
        try:
            results = connection.pipeline(calls)
        except StatementRefusedError as error:
            if error.state in STALE:
                raise _conflict(name, "changed or dropped") from error
            raise
        size, pages, elsewhere = (int(str(value)) for value in connection.rows(results[2])[0])
        position = None
        if has_feed and snapshot.version is not None:
            position = FeedPosition(str(connection.rows(results[3])[0][0]), snapshot.version)
        return (size, pages, elsewhere), position


def _conflict(name: str, change: str) -> TransactionConflictError:
    return TransactionConflictError(
        f"table {name!r} was {change} since the shared snapshot was taken; plan its scan from a new one"
    )
