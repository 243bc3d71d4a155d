"""`OrderedSharedSnapshot`: plans of several tables at one state of an engine's map."""

from __future__ import annotations

from collections.abc import Callable

from structable.backends.base.admin_rules import require_unretired
from structable.backends.base.shared_snapshot import HeldSnapshot
from structable.spi import ScanPlan, SnapshotHold, TableNotFoundError, TransactionConflictError
from structable.spi.authors import PlanScan

from .engine import Engine, EngineSnapshot, SharedSplits, renewed
from .scan.splits import plan_table_scan
from .schema.binding import TableBinding
from .schema.catalog import Catalog


class OrderedSharedSnapshot(HeldSnapshot):
    """A shared snapshot of an ordered store."""

    def __init__(
        self,
        engine: Engine,
        catalog: Catalog,
        keep: Callable[[SnapshotHold], None],
        require_open: Callable[[], None],
    ) -> None:
        super().__init__(keep, require_open)
        self._engine = engine
        self._catalog = catalog
        self._shared: SharedSplits | None = None

    def _plan(self, arguments: PlanScan, hold: Callable[[Callable[[], None]], SnapshotHold]) -> ScanPlan:
        if self._shared is not None:
            return self._planned(self._shared, arguments, hold)

        def first() -> tuple[SharedSplits, ScanPlan]:
            shared = self._engine.share_snapshot()
            try:
                return shared, self._planned(shared, arguments, hold)
            except BaseException:
                shared.release()
                raise

        shared, plan = renewed(first)
        self._members.hold(shared.release)
        self._shared = shared
        return plan

    def _planned(
        self,
        shared: SharedSplits,
        arguments: PlanScan,
        hold: Callable[[Callable[[], None]], SnapshotHold],
    ) -> ScanPlan:
        binding = self._unchanged(shared.snapshot, arguments.table)
        plan, _ = plan_table_scan(self._engine, binding, shared.snapshot, arguments, shared=shared, hold=hold)
        return plan

    def _unchanged(self, snapshot: EngineSnapshot, name: str) -> TableBinding:
        """Return a table's state in the snapshot, if it is still the same table."""
        then, now = self._catalog.find(snapshot, name), self._engine.look(lambda newest: self._current(newest, name))
        if then is None and now is None:
            raise TableNotFoundError(name)
        if then is not None:
            require_unretired(then.spec)
        # A table that was overwritten has its rows elsewhere, and is the same.
        if then is None or now is None or _state_of(then) != _state_of(now):
            change = "created" if then is None else "dropped" if now is None else "changed"
            raise TransactionConflictError(
                f"table {name!r} was {change} since the shared snapshot was taken; plan its scan from a new one"
            )
        return then

    def _current(self, snapshot: EngineSnapshot, name: str) -> TableBinding | None:
        try:
            return self._catalog.table(snapshot, name)
        except TableNotFoundError:
            return None


def _state_of(binding: TableBinding) -> tuple[object, ...]:
    schema = binding.schema
    return schema.identity, schema.spec, schema.feed
