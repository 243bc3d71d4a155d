"""Stores with a planted bug, each over memory: `planted-NAME://...` behaves as memory does, but for one rule."""

# Any: these stand between the suite and a store and pass all values on.
# ruff: noqa: ANN401

import itertools
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa

import structable.spi._loader as loader
from structable.spi import (
    COMMON_OPTIONS,
    Backend,
    Capabilities,
    Change,
    FeedPosition,
    Filter,
    Isolation,
    Option,
    OptionValue,
    RecordExistsError,
    RowKind,
    SchemaIncompatibleError,
    Storage,
    StorageUrl,
    StructableError,
    Traffic,
    TransactionConflictError,
    UpdateMessage,
    col,
    connect,
)
from structable.spi.authors import (
    And,
    AutoCommitTable,
    Comparison,
    Effect,
    FieldComparison,
    Not,
    Operator,
    Or,
    RowWrites,
    When,
    plan_schema_change,
    requested_job,
)

PREFIX = "planted-"


class Passing:
    """Passes every call on."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __enter__(self) -> Any:
        self.inner.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        return self.inner.__exit__(*error)


class PlantedTable(Passing):
    def __init__(self, inner: Any, storage: Any) -> None:
        super().__init__(inner)
        self.storage = storage

    @property
    def latest(self) -> Any:
        """The auto-commit view of the same table, without the bug."""
        return self.storage.inner.table(self.inner.specification.name)


class PlantedTransaction(Passing):
    def __init__(self, inner: Any, storage: Any) -> None:
        super().__init__(inner)
        self.storage = storage

    def table(self, name: str) -> Any:
        return self.storage.table_class(self.inner.table(name), self.storage)

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> Any:
        if error is not None:
            self.rollback()
        elif not self.closed:
            self.commit()


class PlantedStorage(Passing):
    given: StorageUrl
    table_class: type[PlantedTable] = PlantedTable
    transaction_class: type[PlantedTransaction] = PlantedTransaction

    def table(self, name: str) -> Any:
        return self.table_class(self.inner.table(name), self)

    def transaction(self, isolation: Isolation = Isolation.SNAPSHOT, read_only: bool = False) -> Any:
        return self.transaction_class(self.inner.transaction(isolation, read_only), self)

    def listen(self, channels: Any) -> Any:  # which `connect` looks for in the class
        return self.inner.listen(channels)

    def run(self, body: Callable[[Any], Any], **options: Any) -> Any:
        return Storage.run(self, body, **options)  # type: ignore[arg-type]


def where_with(change: Callable[[Filter], Filter]) -> type[PlantedTable]:
    """Return a table with another interpretation of filters."""

    class Misunderstanding(PlantedTable):
        def scan(self, *args: Any, where: Any = None, **options: Any) -> Any:
            return self.inner.scan(*args, where=changed(where), **options)

        def multi_scan(self, *args: Any, where: Any = None, **options: Any) -> Any:
            return self.inner.multi_scan(*args, where=changed(where), **options)

        def count(self, ranges: Any = None, where: Any = None) -> Any:
            return self.inner.count(ranges, changed(where))

    def changed(where: Any) -> Any:
        return change(where) if isinstance(where, Filter) else where

    return Misunderstanding


def null_is_different(where: Filter) -> Filter:
    """`!=` is true of null, as in most programming languages."""
    match where:
        case Comparison(name, Operator.NE):
            return where | col(name).is_null()
        case FieldComparison(name, Operator.NE):
            return where | col(name).is_null()
        case And(parts) | Or(parts):
            return type(where)(tuple(null_is_different(part) for part in parts))
        case Not(part):
            return Not(null_is_different(part))
    return where


class LostUpdates(PlantedStorage):
    """A conflicting write is repeated on top of the newest state."""

    class transaction_class(PlantedTransaction):
        def __init__(self, inner: Any, storage: Any) -> None:
            super().__init__(inner, storage)
            self.log: list[tuple[str, str, Any, Any]] = []

        def table(self, name: str) -> Any:
            transaction, inner = self, self.inner.table(name)

            class Logging(PlantedTable):
                def __getattr__(self, method: str) -> Any:
                    found = getattr(inner, method)
                    if method not in ("upsert", "update", "insert", "replace", "upsert_many", "increment"):
                        return found

                    def logged(*args: Any, **options: Any) -> Any:
                        found(*args, **options)
                        transaction.log.append((name, method, args, options))

                    return logged

            return Logging(inner, self.storage)

        def commit(self) -> None:
            try:
                self.inner.commit()
            except TransactionConflictError:
                self.inner.rollback()
                with self.storage.inner.transaction() as again:
                    for name, method, args, options in self.log:
                        getattr(again.table(name), method)(*args, **options)


class NoSerializable(PlantedStorage):
    """SERIALIZABLE is SNAPSHOT."""

    def transaction(self, isolation: Isolation = Isolation.SNAPSHOT, read_only: bool = False) -> Any:
        return super().transaction(Isolation.SNAPSHOT, read_only)


class ReadsLatest(PlantedStorage):
    """A read without own writes before it sees later commits of others."""

    class table_class(PlantedTable):
        def read(self, *args: Any, **options: Any) -> Any:
            found, latest = self.inner.read(*args, **options), self.latest.read(*args, **options)
            return found if latest is None else latest


class WrongOrder(PlantedStorage):
    """Keys are ordered by their text: 10 before 9, -1 before -2."""

    class table_class(PlantedTable):
        def scan(
            self, *args: Any, order_by: Any = None, limit: Any = None, reverse: bool = False, **options: Any
        ) -> Any:
            rows = self.inner.scan(*args, order_by=order_by, limit=limit, reverse=reverse, **options)
            if order_by is not None or limit is not None:
                return rows
            with rows:
                return Rows(sorted(rows, key=lambda row: str(row.key), reverse=reverse))


class Rows(Passing):
    """Rows read before."""

    def __init__(self, rows: Sequence[Any]) -> None:
        super().__init__(iter(rows))

    def __iter__(self) -> Any:
        return self.inner

    def __next__(self) -> Any:
        return next(self.inner)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def close(self) -> None: ...


class NullIsDifferent(PlantedStorage):
    """`!=` is true of null."""

    table_class = where_with(null_is_different)


class UpsertReplaces(PlantedStorage):
    """`upsert` clears the fields that it does not name."""

    class table_class(PlantedTable):
        def upsert(self, row: Any) -> None:
            self.inner.replace(row)


class InsertIsQuiet(PlantedStorage):
    """`insert` of an existing key does nothing."""

    class table_class(PlantedTable):
        def insert(self, row: Any) -> None:
            try:
                self.inner.insert(row)
            except RecordExistsError:
                return


class StaleIndex(PlantedStorage):
    """Index scans do not see own writes."""

    class table_class(PlantedTable):
        def scan_index(self, *args: Any, **options: Any) -> Any:
            return self.latest.scan_index(*args, **options)


class CountsTwice(PlantedStorage):
    """`count` counts a row once for each range that contains it."""

    class table_class(PlantedTable):
        def count(self, ranges: Any = None, where: Any = None) -> Any:
            return (
                self.inner.count(ranges, where)
                if ranges is None
                else sum(self.inner.count([one], where) for one in ranges)
            )


class HalfUpserts(PlantedStorage):
    """`upsert_many` keeps the rows before a bad one."""

    class table_class(PlantedTable):
        def upsert_many(self, rows: Any) -> None:
            for row in rows:
                self.inner.upsert(row)


class WritesWhenReadOnly(PlantedStorage):
    """`read_only` is ignored."""

    def transaction(self, isolation: Isolation = Isolation.SNAPSHOT, read_only: bool = False) -> Any:
        return super().transaction(isolation, False)


class SwallowsConflicts(PlantedStorage):
    """Leaving a transaction after a failed commit raises nothing."""

    class transaction_class(PlantedTransaction):
        failed = False

        def commit(self) -> None:
            try:
                self.inner.commit()
            except TransactionConflictError:
                if not self.failed:
                    self.failed = True
                    raise


class SplitsOfNow(PlantedStorage):
    """A split is read from the newest state."""

    def read_split(self, split: Any) -> Any:
        with self.inner.plan_scan(split.table, columns=split.columns) as plan:
            return list(self.inner.read_split(plan.splits[0])) if split.index == 0 else []


class YoungerPlans(PlantedStorage):
    """Each plan of a shared snapshot takes one of its own."""

    def share_snapshot(self) -> Any:
        shared, storage = self.inner.share_snapshot(), self.inner

        class Alone(Passing):
            def plan_scan(self, table: str, **options: Any) -> Any:
                shared.plan_scan(table, **options).close()
                return storage.plan_scan(table, **options)

        return Alone(shared)


class ForgetfulAggregates(PlantedStorage):
    """Aggregates are of all rows, whatever was selected."""

    def plan_scan(self, table: str, **options: Any) -> Any:
        if options.get("aggregate") is not None:
            options.pop("where", None)
        return self.inner.plan_scan(table, **options)


class HalfClosed(PlantedStorage):
    """The end of the `with` block of a shared snapshot closes its plans."""

    def share_snapshot(self) -> Any:
        shared = self.inner.share_snapshot()
        plans: list[Any] = []

        class Eager(Passing):
            def plan_scan(self, table: str, **options: Any) -> Any:
                plans.append(shared.plan_scan(table, **options))
                return plans[-1]

            def __exit__(self, *error: Any) -> None:
                shared.close()
                for plan in plans:
                    plan.close()

        return Eager(shared)


class ForgetfulJobs(PlantedStorage):
    """A job id has no effect: each commit is a new job."""

    numbers = itertools.count()

    def begin_write(self, table: str, *, mode: Any, job_id: str) -> Any:
        return self.inner.begin_write(table, mode=mode, job_id=job_id)

    def commit_write(self, job: Any, staged: Any) -> Any:
        again = self.inner.begin_write(job.table, mode=job.mode, job_id=f"{job.job_id}{next(self.numbers)}")
        return self.inner.commit_write(again, list(staged))


class ForgetfulStreams(PlantedStorage):
    """A batch of a stream is a new job each time."""

    def begin_write(self, table: str, *, stream: Any = None, batch: Any = None, **options: Any) -> Any:
        if stream is None:
            return self.inner.begin_write(table, **options)
        requested_job(table, "upsert", options.pop("job_id", None), stream, batch)
        job = self.inner.begin_write(table, job_id=uuid.uuid4().hex, **options)
        return replace(job, stream=stream, batch=batch)


class DeafStreams(PlantedStorage):
    """An abort of a batch drops nothing and forbids nothing."""

    def abort_write(self, job: Any) -> None:
        if job.stream is None:
            self.inner.abort_write(job)


class PatchesPutAnyway(PlantedStorage):
    """An arm `absent` is put whether there is a row or not."""

    def stage(self, job: Any, partition: int, attempt: int, batches: Any) -> Any:
        return self.inner.stage(job, partition, attempt, [self._changed(batch) for batch in batches])

    def _changed(self, batch: Any) -> Any:
        if not isinstance(batch, pa.RecordBatch) or "_arm" not in batch.schema.names:
            return batch
        place = batch.schema.names.index("_arm")
        arms = self._arms(batch.column("_arm").to_pylist())
        changed = batch.set_column(place, "_arm", pa.array(arms, batch.schema.field("_arm").type))
        return changed.filter(pa.array([arm is not None for arm in arms]))

    def _arms(self, given: list[Any]) -> list[str | None]:
        return ["replace" if arm == "absent" else arm for arm in given]


class PatchesExpectNothing(PatchesPutAnyway):
    """An arm `expect` is left out, and an arm `insert` replaces rows."""

    def _arms(self, given: list[Any]) -> list[str | None]:
        return [{"expect": None, "insert": "replace"}.get(arm, arm) for arm in given]


class UpdatesSeeNothing(PlantedStorage):
    """An update of many starts from the default again, though one before has put the row."""

    class table_class(PlantedTable):
        def update_many(self, updates: Any, default: Any = None) -> Any:
            listed = list(updates)
            absent = self.inner.update_many(listed)
            given = [one if isinstance(one, UpdateMessage) else UpdateMessage(one, default) for one in listed]
            for one in given:
                start = default if one.default is None else one.default
                if start is not None and key_of(self.inner, one.update) in absent:
                    self.inner.replace({**start, **one.update})
            return [] if default is not None else absent


class StartsDrop(PlantedStorage):
    """`create_or_update` makes the indexes exactly those of the specification."""

    @property
    def admin(self) -> Any:
        class Exact(Passing):
            def create_or_update(self, spec: Any) -> None:
                self.inner.create_or_update(spec)
                for name in {*self.inner.get_specification(spec.name).indexes} - {*spec.indexes}:
                    self.inner.drop_index(spec.name, name)

        return Exact(self.inner.admin)


class RefusesOlder(PlantedStorage):
    """`create_or_update` refuses a specification that lacks what the table has."""

    @property
    def admin(self) -> Any:
        class Strict(Passing):
            def create_or_update(self, spec: Any) -> None:
                if self.inner.exists(spec.name):
                    change = plan_schema_change(self.inner.get_specification(spec.name), spec)
                    if change.kept_fields or change.kept_indexes:
                        raise SchemaIncompatibleError(spec.name, ["the table has more"])
                self.inner.create_or_update(spec)

        return Strict(self.inner.admin)


class IgnoresEngines(PlantedStorage):
    """A merge changes the named fields, whatever the merge engine is."""

    class table_class(PlantedTable):
        def upsert(self, row: Any) -> None:
            if self.inner.specification.table_options.merges:
                self.inner.update(row, default={})
            else:
                self.inner.upsert(row)


class RetractsDelete(PlantedStorage):
    """Every retract deletes the row of its key."""

    class table_class(PlantedTable):
        def apply_changes(self, changes: Any) -> None:
            if self.inner.specification.keyless:
                self.inner.apply_changes(changes)
                return
            for kind, row in changes:
                if RowKind.of(kind).retracts:
                    self.inner.delete(key_of(self.inner, row))
                else:
                    self.inner.upsert(row)


class TakesAllEqualRows(PlantedStorage):
    """A retract on a bag takes all equal rows away."""

    class table_class(PlantedTable):
        def apply_changes(self, changes: Any) -> None:
            for kind, row in changes:
                retracts = self.inner.specification.keyless and RowKind.of(kind).retracts
                self.inner.apply_changes([(kind, row)] * (10 if retracts else 1))


class JobsOutOfOrder(PlantedStorage):
    """The last partition of a job counts first."""

    def stage(self, job: Any, partition: int, attempt: int, batches: Any) -> Any:
        return self.inner.stage(job, 1_000 - partition, attempt, batches)


class PlantedFeed(PlantedStorage):
    """The feeds of a store are read with a bug: `change` makes the changes of a range into others."""

    def changes(self, table: str) -> Any:
        storage = self

        class Feed(Passing):
            def read(self, since: Any = None, until: Any = None, **options: Any) -> Any:
                with self.inner.read(since, until, **options) as changes:
                    return Listed(storage.change(list(changes)))

        return Feed(self.inner.changes(table))

    def change(self, changes: list[Change]) -> list[Change]:
        raise NotImplementedError


class Listed(list[Change]):
    """Changes as an iterator of them."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __next__(self) -> Change:
        if not self:
            raise StopIteration
        return self.pop(0)

    def close(self) -> None:
        """Keep nothing."""
        self.clear()


class LosesLastChange(PlantedFeed):
    """The last change of a range that has several is missing."""

    def change(self, changes: list[Change]) -> list[Change]:
        return changes[:-1] if len(changes) > 1 else changes


class WrongPreimages(PlantedFeed):
    """Preimages are as the row is afterwards."""

    def change(self, changes: list[Change]) -> list[Change]:
        pairs = [*changes[1:], *changes[:1]]
        return [
            replace(one, row=other.row) if one.kind is RowKind.UPDATE_BEFORE else one
            for one, other in zip(changes, pairs, strict=True)
        ]


class SplitsCommits(PlantedFeed):
    """Each change has a version of its own."""

    def change(self, changes: list[Change]) -> list[Change]:
        return [replace(one, version=(one.version or 0) + place) for place, one in enumerate(changes)]


class SilentExpiry(PlantedStorage):
    """A position that has expired is as good as the earliest."""

    def changes(self, table: str) -> Any:
        class Feed(Passing):
            def read(self, since: Any = None, until: Any = None, **options: Any) -> Any:
                if isinstance(since, FeedPosition):
                    since = max(since, self.inner.earliest()) if since.feed == self.inner.latest().feed else since
                return self.inner.read(since, until, **options)

        return Feed(self.inner.changes(table))


class LatePositions(PlantedStorage):
    """A plan has the position of the moment after its snapshot."""

    def plan_scan(self, table: str, **options: Any) -> Any:
        plan = self.inner.plan_scan(table, **options)
        if plan.position is not None:
            position = FeedPosition(plan.position.feed, plan.position.version + 1)
            plan.position = position
        return plan


class Leaks(PlantedStorage):
    """An error contains the secrets of the URL."""

    def transaction(self, isolation: Isolation = Isolation.SNAPSHOT, read_only: bool = False) -> Any:
        raise OSError(f"the server refuses {self.given.password} and {dict(self.given.parameters)}")


class RefusableTransaction(PlantedTransaction):
    """A transaction that may get a conflict before its commit, and must then be left."""

    conflict: TransactionConflictError | None = None

    def refuse(self, reason: str) -> None:
        self.conflict = TransactionConflictError(reason)
        self.rollback()
        raise self.conflict

    def commit(self) -> None:
        if self.conflict is not None:
            raise self.conflict
        self.inner.commit()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> Any:
        if error is None and self.conflict is not None:
            raise self.conflict
        return super().__exit__(kind, error, traceback)


class WritesWait(PlantedStorage):
    """No bug: a write waits until no other open transaction has written the row, as in a database with locks.

    It is refused at once if the row was written since the snapshot, or after a second without an unlocking.
    """

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.inner.capabilities, writes_never_wait=False)  # type: ignore[no-any-return]

    class transaction_class(RefusableTransaction):
        def __init__(self, inner: Any, storage: Any) -> None:
            super().__init__(inner, storage)
            self.since = LOCKS.commits

        def table(self, name: str) -> Any:
            return LockingTable(self.inner.table(name), self.storage, self)

        def commit(self) -> None:
            try:
                super().commit()
            except BaseException:
                LOCKS.release(self)
                raise
            LOCKS.release(self, written=True)

        def rollback(self) -> None:
            self.inner.rollback()
            LOCKS.release(self)

    def table(self, name: str) -> Any:
        planted: Any = self
        return AutoCommitTable(planted, name)


class Locks:
    """The transaction that has written each row, and the commit that wrote it last."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.held: dict[tuple[Any, ...], Any] = {}
        self.written: dict[tuple[Any, ...], int] = {}
        self.commits = 0

    def release(self, transaction: Any, *, written: bool = False) -> None:
        """Unlock all rows of a transaction."""
        with self.condition:
            rows = [row for row, holder in self.held.items() if holder is transaction]
            self.commits += written
            for row in rows:
                del self.held[row]
                if written:
                    self.written[row] = self.commits
            self.condition.notify_all()


LOCKS = Locks()


class LockingTable(PlantedTable):
    """A table that locks rows before it writes them."""

    def __init__(self, inner: Any, storage: Any, transaction: Any) -> None:
        super().__init__(inner, storage)
        self.transaction = transaction

    def lock(self, rows: list[Any]) -> list[Any]:
        """Lock rows, and return those that this transaction had not locked before."""
        fresh = []
        for row in rows:

            def mine(row: Any = row) -> bool:
                return LOCKS.held.get(row) in (None, self.transaction)

            with LOCKS.condition:
                unlocked = LOCKS.condition.wait_for(mine, 1.0)
                newer = LOCKS.written.get(row, 0) > self.transaction.since
                if unlocked and not newer and row not in LOCKS.held:
                    LOCKS.held[row] = self.transaction
                    fresh.append(row)
            if newer or not unlocked:
                self.transaction.refuse("written since the snapshot" if newer else "deadlock")
        return fresh

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        if name not in LOCKING:
            return method

        def locking(*args: Any, **options: Any) -> Any:
            args = tuple(list(one) if isinstance(one, Iterator) else one for one in args)
            try:
                keys = LOCKING[name](self.inner, *args)
                rows = list({(id(self.storage), self.inner.specification.name, key): None for key in keys})
            except (StructableError, KeyError, TypeError):
                rows = []  # the table itself raises the error
            fresh = self.lock(rows)
            try:
                return method(*args, **options)
            except StructableError:
                with LOCKS.condition:  # a call without effect holds no lock
                    for row in fresh:
                        LOCKS.held.pop(row, None)
                    LOCKS.condition.notify_all()
                raise

        return locking


class RefusesAnywhere(PlantedStorage):
    """No bug: a SERIALIZABLE transaction is refused at its next step, a read or a write, once another has written."""

    commits = 0

    class transaction_class(RefusableTransaction):
        serializable = False
        writes = False

        def __init__(self, inner: Any, storage: Any) -> None:
            super().__init__(inner, storage)
            self.since = storage.commits

        def step(self) -> None:
            """Refuse to go on after another one's commit."""
            if self.serializable and self.storage.commits != self.since and not self.closed:
                self.refuse("another transaction committed")

        def table(self, name: str) -> Any:
            self.step()
            return RefusingTable(self.inner.table(name), self.storage, self)

        def commit(self) -> None:
            self.step()
            super().commit()
            if self.serializable and self.writes:
                self.storage.commits += 1

    def transaction(self, isolation: Isolation = Isolation.SNAPSHOT, read_only: bool = False) -> Any:
        made = super().transaction(isolation, read_only)
        made.serializable = isolation is Isolation.SERIALIZABLE
        return made


class RefusingTable(PlantedTable):
    """A table on which every call is a step of its transaction."""

    def __init__(self, inner: Any, storage: Any, transaction: Any) -> None:
        super().__init__(inner, storage)
        self.transaction = transaction

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        if name == "specification":
            return method

        def stepping(*args: Any, **options: Any) -> Any:
            self.transaction.step()
            self.transaction.writes |= name in LOCKING
            return method(*args, **options)

        return stepping


def key_of(table: Any, row: Any) -> Any:
    """Return the key of a row, or a key given as a mapping."""
    return tuple(row[name] for name in table.specification.primary_key) if isinstance(row, Mapping) else row


def keys_found(table: Any, range_: Any, *rest: Any) -> list[Any]:
    """Return the keys that a write by a range touches; its conditions may be any argument."""
    where = rest[-1] if rest and isinstance(rest[-1], Filter) else None
    return [row.key for row in table.scan(range_, where=where)]


def keys_written(table: Any, writes: RowWrites) -> list[Any]:
    """Return the keys that the auto-commit view's writes touch."""
    found = []
    for one in writes.rows:
        match writes.verb.effect:
            case Effect.REMOVE:
                found += [key_of(table, one)] if writes.verb.name != "delete" or table.read(one) else []
            case Effect.STEP:
                found.append(key_of(table, one[0]))
            case Effect.CHANGE if writes.verb.when is not When.PRESENT:
                found.append(key_of(table, one[0]))
            case _:
                row = one.update if isinstance(one, UpdateMessage) else one
                found.append(key_of(table, row[1] if isinstance(row, tuple) else row))
    return found


LOCKING: dict[str, Callable[..., list[Any]]] = {
    "_write": keys_written,
    "_write_range": lambda table, write: keys_found(table, write.range, *([write.where] if write.where else [])),
    "upsert": lambda table, row, *_: [key_of(table, row)],
    "replace": lambda table, row, *_: [key_of(table, row)],
    "insert": lambda table, row, *_: [key_of(table, row)],
    "update": lambda table, row, *_: [key_of(table, row)],
    "upsert_many": lambda table, rows, *_: [key_of(table, row) for row in rows],
    "insert_many": lambda table, rows, *_: [key_of(table, row) for row in rows],
    "apply_changes": lambda table, changes, *_: [key_of(table, row) for _, row in changes],
    "compare_and_swap": lambda table, key, *_: [key_of(table, key)],
    "increment": lambda table, key, *_: [key_of(table, key)],
    "delete": lambda table, key, *_: [key_of(table, key)] if table.read(key) else [],
    "delete_all": keys_found,
    "update_all": keys_found,
}


class IdleTraffic(PlantedStorage):
    """Connecting counts as traffic, and nothing else does."""

    def traffic(self) -> Any:
        return Traffic(1, 100, 100)


class ForgottenTraffic(PlantedStorage):
    """What connections exchanged is forgotten as they are closed."""

    def traffic(self) -> Any:
        return Traffic(0) if self.inner.closed else Traffic(1)


BUGS: dict[str, type[PlantedStorage]] = {
    "nothing": PlantedStorage,
    **{
        re.sub("(?<=[a-z])(?=[A-Z])", "-", name).lower(): bug
        for name, bug in vars().copy().items()
        if isinstance(bug, type) and issubclass(bug, PlantedStorage) and bug not in (PlantedStorage, PlantedFeed)
    },
}
"""The stores by the names of their classes: `lost-updates` is LostUpdates."""


class PlantedBackend(Backend):
    description: ClassVar[str] = "memory with a bug"
    options: ClassVar[Sequence[Option]] = (*COMMON_OPTIONS, Option("api_token", "", "a secret"))

    def __init__(self, scheme: str) -> None:
        self.scheme = scheme  # type: ignore[misc] # one class for all bugs
        self.bug = BUGS[scheme.removeprefix(PREFIX)]

    def connect(self, url: StorageUrl, options: Mapping[str, OptionValue]) -> Storage:
        common = {name: value for name, value in options.items() if name != "api_token"}
        planted: Any = self.bug(connect(f"memory://{url.hosts}", **common))
        planted.given = url
        return planted  # type: ignore[no-any-return]


_load_backend = loader.load_backend


def load_backend(scheme: str) -> Backend:
    """Load a planted backend without an entry point."""
    return PlantedBackend(scheme) if scheme.startswith(PREFIX) else _load_backend(scheme)


loader.load_backend = load_backend
