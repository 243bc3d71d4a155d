"""A store whose tables have rules that change nothing of what their users see: on fields that are hidden from them."""

from __future__ import annotations

import builtins
import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from types import TracebackType

import pytest

from structable.spi import (
    Backend,
    ChangeFeed,
    ChangeIterator,
    ChangePlan,
    Derived,
    FeedPosition,
    FieldRule,
    FieldType,
    InvalidSpecificationError,
    Isolation,
    Key,
    Lower,
    OptionValue,
    Progress,
    Renamed,
    Retired,
    Row,
    RowIterator,
    ScanExplanation,
    ScanPlan,
    SharedSnapshot,
    Storage,
    StorageUrl,
    StructuredTable,
    TableAdmin,
    TableNotFoundError,
    TableSpecification,
    Transaction,
    Value,
)
from structable.spi._scans import PlannedScan
from structable.spi.authors import (
    Answer,
    DelegatingStorage,
    Lookup,
    PlanScan,
    RangeWrite,
    RowWrites,
    Scan,
    consumed,
    named_fields,
)

TWIN, LOWER = "hidden_twin", "hidden_lower"
"""Another name of the first field outside the key, and what is derived from the first string there."""
HIDDEN = {TWIN, LOWER}


def ruled_stores(monkeypatch: pytest.MonkeyPatch, backend: type[Backend], *, ready: bool) -> None:
    """Let each table of a backend's stores that may have rules have some, ready or for ever being filled."""
    connect = backend.connect

    def connected(self: Backend, url: StorageUrl, options: Mapping[str, OptionValue]) -> Storage:
        return RuledStorage(connect(self, url, options), ready=ready)

    monkeypatch.setattr(backend, "connect", connected)


def with_rules(spec: TableSpecification) -> TableSpecification:
    """Return a table with hidden fields and ready rules; as it is, if it has rules or must have none."""
    if spec.rules or not spec.value_fields:
        return spec
    first = spec.value_fields[0]
    fields, rules = [replace(first, name=TWIN)], [Renamed(first.name, TWIN, ready=True)]
    hidden: list[FieldRule] = [*rules]
    for field in spec.value_fields:
        if field.type is FieldType.STRING:
            fields.append(replace(field, name=LOWER))
            hidden.append(Derived(LOWER, field.name, Lower(), ready=True))
            break
    try:
        return spec.evolve(fields=[*spec.fields, *fields], rules=hidden)
    except InvalidSpecificationError:
        return spec


@lru_cache(maxsize=1000)
def seen(spec: TableSpecification) -> TableSpecification:
    """Return what users see of a table."""
    if HIDDEN.isdisjoint(spec.field_names):
        return spec
    fields = [field for field in spec.fields if field.name not in HIDDEN]
    return spec.evolve(fields=fields, rules=[rule for rule in spec.rules if not is_hidden(rule)])


def is_hidden(rule: FieldRule) -> bool:
    return not HIDDEN.isdisjoint(named_fields([rule]))


def columns_seen(spec: TableSpecification) -> Iterable[str] | None:
    """Return the columns of a read that names none: None, if no field is hidden."""
    return None if HIDDEN.isdisjoint(spec.field_names) else seen(spec).field_names


class RuledTable(StructuredTable):
    """A table without its hidden fields."""

    def __init__(self, table: StructuredTable) -> None:
        self._table = table

    @property
    def specification(self) -> TableSpecification:
        return seen(self._table.specification)

    @property
    def auto_commit(self) -> bool:
        return self._table.auto_commit

    def _columns(self, columns: Iterable[str] | None) -> Iterable[str] | None:
        return columns_seen(self._table.specification) if columns is None else columns

    def _seen(self, scan: Scan) -> Scan:
        return scan._replace(columns=self._columns(scan.columns))

    def read(self, key: Key, columns: Iterable[str] | None = None) -> Row | None:
        return self._table.read(key, self._columns(consumed(columns)))

    def upsert(self, row: Mapping[str, Value]) -> None:
        self._table.upsert(row)

    def _lookup(self, lookup: Lookup) -> list[Row]:
        return self._table._lookup(lookup._replace(columns=self._columns(lookup.columns)))

    def _scan(self, scan: Scan) -> RowIterator:
        return self._table._scan(self._seen(scan))

    def _plan(self, scan: Scan) -> PlannedScan | None:
        return self._table._plan(self._seen(scan))

    def _location(self) -> str:
        return self._table._location()

    def _explain(self, scan: Scan) -> ScanExplanation:
        return self._table._explain(self._seen(scan))

    def _count(self, scan: Scan) -> int:
        return self._table._count(scan)

    def _admit(self, operation: str) -> None:
        self._table._admit(operation)

    def _write(self, writes: RowWrites) -> Answer | None:
        return self._table._write(writes)

    def _write_range(self, write: RangeWrite) -> int:
        return self._table._write_range(write)


class RuledTransaction(Transaction):
    """A transaction whose tables are without their hidden fields."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def table(self, name: str) -> StructuredTable:
        return RuledTable(self._transaction.table(name))

    def position(self, table: str) -> FeedPosition:
        return self._transaction.position(table)

    def signal(self, channel: str) -> None:
        self._transaction.signal(channel)

    def commit(self) -> None:
        self._transaction.commit()

    def rollback(self) -> None:
        self._transaction.rollback()

    @property
    def closed(self) -> bool:
        return self._transaction.closed

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._transaction.__exit__(kind, error, traceback)


class RulingAdmin(TableAdmin):
    """Makes tables with hidden fields and rules."""

    def __init__(self, admin: TableAdmin, *, ready: bool) -> None:
        self._admin = admin
        self._ready = ready

    def _find(self, table: str) -> TableSpecification | None:
        try:
            return self._admin.get_specification(table)
        except TableNotFoundError:
            return None

    def _unready(self, spec: TableSpecification) -> None:
        if not self._ready and any(is_hidden(rule) for rule in spec.rules):
            rules = [rule if isinstance(rule, Retired) else replace(rule, ready=False) for rule in spec.rules]
            self._admin.set_rules(spec.name, rules)

    def exists(self, table: str) -> bool:
        return self._admin.exists(table)

    def get_specification(self, table: str) -> TableSpecification:
        return seen(self._admin.get_specification(table))

    def list(self) -> builtins.list[str]:
        return self._admin.list()

    def create(self, spec: TableSpecification) -> None:
        made = with_rules(spec)
        self._admin.create(made)
        self._unready(made)

    def create_or_update(
        self, spec: TableSpecification, *, progress: Progress | None = None, revision: int | None = None
    ) -> None:
        found = self._find(spec.name)
        wanted = with_rules(spec) if found is None else self._with_hidden(spec, found)
        self._admin.create_or_update(wanted, progress=progress, revision=revision)
        if found is None:
            self._unready(wanted)

    def _with_hidden(self, spec: TableSpecification, found: TableSpecification) -> TableSpecification:
        """Return a specification with the rules that a table has, and the twin as wide as its field."""
        twins = {rule.new: rule.old for rule in found.rules if isinstance(rule, Renamed)}
        hidden_fields = [field for field in found.fields if field.name in HIDDEN]
        fields = [
            *spec.fields,
            *(
                replace(spec.field(twins[field.name]), name=field.name) if twins.get(field.name) in spec else field
                for field in hidden_fields
            ),
        ]
        hidden = [rule for rule in found.rules if is_hidden(rule)] if spec.rules else []
        return spec.evolve(fields=fields, rules=[*spec.rules, *hidden])

    def drop(self, table: str) -> None:
        self._admin.drop(table)

    def drop_index(self, table: str, field: str, *, revision: int | None = None) -> None:
        self._admin.drop_index(table, field, revision=revision)

    def set_rules(
        self,
        table: str,
        rules: Iterable[FieldRule],
        *,
        expected: Iterable[FieldRule] | None = None,
        revision: int | None = None,
    ) -> None:
        given = consumed(rules)
        found = self._find(table)
        hidden = [] if found is None else [rule for rule in found.rules if is_hidden(rule)]
        known = None if expected is None else [*expected, *hidden]
        if hidden and isinstance(given, builtins.list):
            try:
                return self._admin.set_rules(table, [*given, *hidden], expected=known, revision=revision)
            except InvalidSpecificationError:
                pass  # by the rules that are given, or they are of the same fields as the hidden ones
        return self._admin.set_rules(table, given, expected=known, revision=revision)

    def drop_field(self, table: str, field: str, *, revision: int | None = None) -> None:
        found = self._find(table)
        if found is not None and field in named_fields([rule for rule in found.rules if is_hidden(rule)]):
            self._admin.set_rules(table, [rule for rule in found.rules if not is_hidden(rule)])
        self._admin.drop_field(table, field, revision=revision)


class RuledFeed(ChangeFeed):
    """A change feed without the hidden fields."""

    def __init__(self, feed: ChangeFeed, admin: TableAdmin, table: str) -> None:
        self._feed = feed
        self._admin = admin
        self._name = table

    def _columns(self, columns: Iterable[str] | None) -> Iterable[str] | None:
        return columns_seen(self._admin.get_specification(self._name)) if columns is None else columns

    def earliest(self) -> FeedPosition:
        return self._feed.earliest()

    def latest(self) -> FeedPosition:
        return self._feed.latest()

    def at(self, timestamp: dt.datetime) -> FeedPosition:
        return self._feed.at(timestamp)

    def position(self, version: int) -> FeedPosition:
        return self._feed.position(version)

    def advance(self, since: FeedPosition, rows: int) -> FeedPosition:
        return self._feed.advance(since, rows)

    def read(
        self,
        since: FeedPosition | None = None,
        until: FeedPosition | None = None,
        *,
        columns: Iterable[str] | None = None,
        net: bool = False,
        after: int | None = None,
    ) -> ChangeIterator:
        return self._feed.read(since, until, columns=self._columns(columns), net=net, after=after)

    def plan(
        self,
        since: FeedPosition | None = None,
        until: FeedPosition | None = None,
        *,
        columns: Iterable[str] | None = None,
        splits: int = 1,
        net: bool = False,
    ) -> ChangePlan:
        return self._feed.plan(since, until, columns=self._columns(columns), splits=splits, net=net)

    def plan_net(
        self, since: FeedPosition, until: FeedPosition, *, columns: Iterable[str] | None = None, splits: int = 1
    ) -> ChangePlan:
        return self._feed.plan_net(since, until, columns=self._columns(columns), splits=splits)

    def expire(self, until: FeedPosition | None = None) -> FeedPosition:
        return self._feed.expire(until)

    def restart(self) -> FeedPosition:
        return self._feed.restart()


def planned(request: PlanScan, admin: TableAdmin) -> PlanScan:
    """Return the plan of the columns that are seen."""
    if request.columns is not None or request.aggregate is not None:
        return request
    try:
        return request._replace(columns=columns_seen(admin.get_specification(request.table)))
    except TableNotFoundError:
        return request  # a snapshot may have it, and another error then


def shown(plan: ScanPlan) -> ScanPlan:
    """Let the specification of a plan have no hidden fields."""
    plan.specification = seen(plan.specification)
    return plan


class RuledSnapshot(SharedSnapshot):
    """A snapshot whose plans are without hidden fields."""

    def __init__(self, snapshot: SharedSnapshot, admin: TableAdmin) -> None:
        self._snapshot = snapshot
        self._admin = admin

    @property
    def closed(self) -> bool:
        return self._snapshot.closed

    def _plan_scan(self, request: PlanScan) -> ScanPlan:
        return shown(self._snapshot._plan_scan(request if self.closed else planned(request, self._admin)))

    def close(self) -> None:
        self._snapshot.close()


class RuledStorage(DelegatingStorage):
    """A storage that gives its tables hidden fields and rules, and leaves them out of all reads."""

    def __init__(self, storage: Storage, *, ready: bool) -> None:
        super().__init__(storage)
        self._ruling = RulingAdmin(storage.admin, ready=ready)

    @property
    def admin(self) -> TableAdmin:
        return self._ruling

    def transaction(self, isolation: Isolation = Isolation.SNAPSHOT, read_only: bool = False) -> Transaction:
        return RuledTransaction(self._storage.transaction(isolation, read_only))

    def table(self, name: str) -> StructuredTable:
        return RuledTable(self._storage.table(name))

    def changes(self, table: str) -> ChangeFeed:
        return RuledFeed(self._storage.changes(table), self._storage.admin, table)

    def _plan_scan(self, request: PlanScan) -> ScanPlan:
        return shown(self._storage._plan_scan(planned(request, self._storage.admin)))

    def share_snapshot(self) -> SharedSnapshot:
        return RuledSnapshot(self._storage.share_snapshot(), self._storage.admin)
