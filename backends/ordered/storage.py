"""`OrderedStorage`: a whole `Storage` on top of any `Engine`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from structable.backends.base.feed_upkeep import FeedUpkeep
from structable.spi import (
    Capabilities,
    ChangeFeed,
    CommitResult,
    CompactionProgress,
    Finding,
    Isolation,
    Listener,
    Range,
    ScanPlan,
    ScanSplit,
    SharedSnapshot,
    SnapshotHold,
    StagedWrite,
    Storage,
    StorageUnavailableError,
    StructuredTable,
    TableAdmin,
    TableStatistics,
    Traffic,
    WriteJob,
)
from structable.spi.authors import (
    MAX_ROW_SIZE,
    BeginWrite,
    LocalSignals,
    PlanScan,
    StagedData,
    check_channels,
    feed_channel,
    feeds_of,
    needing,
    requested_job,
)

from .autocommit import AutoCommitOrderedTable
from .engine import BlindStep, Engine, EngineSnapshot, SchemaChangedError, Spaces, Upcalls
from .feeds.feed import OrderedFeed
from .feeds.splits import read_change_split, reads_changes
from .jobs.jobs import WriteJobs
from .scan.split_choice import table_statistics
from .scan.splits import plan_table_scan, read_table_split
from .schema.admin import OrderedAdmin
from .schema.catalog import Catalog
from .schema.garbage import GarbageCollector
from .schema.spaces import read_spaces
from .shared_snapshot import OrderedSharedSnapshot
from .transaction import OrderedTransaction

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_ALL = Range()


class OrderedStorage(Storage):
    """A storage whose tables live in an engine's ordered map.

    Parameters
    ----------
    engine : Engine
        The map. The storage starts it, and closes it, even if starting fails.
    url : str
        The URL, with its password masked.
    ddl_timeout : float
        Seconds for which an admin call retries conflicts on the catalog.
    read_only : bool
        Whether to leave garbage of earlier processes in place; the engine must not write either.
    """

    def __init__(self, engine: Engine, url: str, *, ddl_timeout: float = 30.0, read_only: bool = False) -> None:
        self.engine = engine
        self._url = url
        self._read_only = read_only
        self._catalog = Catalog(engine)
        self._garbage = GarbageCollector(engine)
        self._jobs = WriteJobs(engine, self._catalog, self._garbage)
        self._admin = OrderedAdmin(engine, self._catalog, self._garbage, ddl_timeout)
        self._feeds = FeedUpkeep(partial(_expire, weakref.ref(self)))
        self._feed_used: Callable[[str], None] = self._feeds.noticed
        if read_only:  # a read-only store leaves feeds to others
            self._feed_used = lambda table: None
        self._plans: weakref.WeakSet[SnapshotHold] = weakref.WeakSet()
        self._listeners: weakref.WeakSet[Listener] = weakref.WeakSet()
        self._signals = engine.local_signals or LocalSignals.of(url.partition("?")[0])
        self._send: Callable[[Iterable[str]], None] = self._signals.send
        if engine.traits.carries_signals:  # it wakes the listeners
            self._send = lambda channels: None
        try:
            engine.start(Upcalls(self._merge, self._fits, self._check, self._describe, self._jobs.procedures()))
            if not read_only:
                self._garbage.resume()
        except BaseException:
            self.close()
            raise

    def _merge(self, raw: bytes | None, steps: Sequence[BlindStep]) -> bytes:
        return self._catalog.bind(steps[0].schema).applied(raw, steps)

    def _fits(self, raw: bytes | None, steps: Sequence[BlindStep], others: Sequence[BlindStep]) -> bool:
        return self._catalog.bind(steps[0].schema).fits(raw, steps, others)

    def _check(self, key: bytes, value: bytes, steps: Sequence[BlindStep]) -> None:
        if len(key) + len(value) > MAX_ROW_SIZE:  # 5 % of an increment's time: most rows need no schema
            self._catalog.bind(steps[0].schema).within_limits(key, value)

    def _describe(
        self, key: bytes, before: bytes | None, after: bytes, steps: Sequence[BlindStep]
    ) -> tuple[bytes, bytes] | None:
        binding = self._catalog.bind(steps[0].schema)
        return binding.described(key, before, after) if binding.feeds_images else None

    @property
    def url(self) -> str:
        return self._url

    @property
    def admin(self) -> TableAdmin:
        return self._admin

    @property
    def capabilities(self) -> Capabilities:
        traits = self.engine.traits
        return Capabilities(
            multi_process=not traits.process_local,
            durable_after_kill=not traits.process_local,
            writes_never_wait=True,
            table_types=traits.table_types,
            change_feeds=traits.keeps_versions,
            streams=True,
            statistics=True,
            shared_snapshots=True,
            aggregates=True,
            field_rules=True,
            wakes=traits.carries_signals or traits.process_local,
        )

    @property
    def closed(self) -> bool:
        return self.engine.closed

    def _require_open(self) -> None:
        if self.engine.closed:
            raise self.engine.loss() or StorageUnavailableError(
                f"the storage {self._url} was closed, or connected by the process that forked this one"
            )

    def transaction(self, isolation: Isolation = Isolation.SNAPSHOT, read_only: bool = False) -> OrderedTransaction:
        if isolation.__class__ is not Isolation:
            raise ValueError(f"isolation is {isolation!r}; it must be an Isolation")
        if self.engine.closed:
            self._require_open()
        return OrderedTransaction(self.engine, self._catalog, isolation, read_only, self._feed_used, self._send)

    def table(self, name: str) -> StructuredTable:
        self._require_open()
        return AutoCommitOrderedTable(self, self.engine, self._catalog, name)

    def _plan_scan(self, request: PlanScan) -> ScanPlan:
        self._require_open()

        def planned(snapshot: EngineSnapshot) -> ScanPlan:
            binding = self._catalog.table(snapshot, request.table)
            epoch = snapshot.epoch
            plan, divided_at = plan_table_scan(self.engine, binding, snapshot, request)
            if divided_at != epoch:
                # Its snapshot is newer than the lookup of the table, which may have been dropped in between.
                plan.close()
                raise SchemaChangedError
            self._plans.add(plan.hold)
            return plan

        return self.engine.look(planned)

    def share_snapshot(self) -> SharedSnapshot:
        self._require_open()
        return OrderedSharedSnapshot(self.engine, self._catalog, self._plans.add, self._require_open)

    def statistics(self, table: str, range: Range = _ALL) -> TableStatistics:
        self._require_open()

        def found(snapshot: EngineSnapshot) -> TableStatistics:
            return table_statistics(self.engine, self._catalog.table(snapshot, table), snapshot, range)

        return self.engine.look(found)

    def read_split(self, split: ScanSplit) -> Iterator[RecordBatch]:
        self._require_open()
        _require_arrow()
        if reads_changes(split):
            return read_change_split(self.engine, self._catalog, split)
        return read_table_split(self.engine, split)

    def _begin_write(self, request: BeginWrite) -> WriteJob:
        self._require_open()
        return self._jobs.begin(requested_job(*request))

    def stage(self, job: WriteJob, partition: int, attempt: int, batches: StagedData) -> StagedWrite:
        self._require_open()
        _require_arrow()
        return self._jobs.stage(job, partition, attempt, batches)

    def commit_write(self, job: WriteJob, staged: Iterable[StagedWrite]) -> CommitResult:
        self._require_open()
        result = self._jobs.commit(job, staged)
        if result and self._catalog.may_have_feed(job.table):
            self._feed_used(job.table)
            self._send((feed_channel(job.table),))
        return result

    def abort_write(self, job: WriteJob) -> None:
        self._require_open()
        self._jobs.abort(job)

    def changes(self, table: str) -> ChangeFeed:
        self._require_open()
        self.engine.look(lambda snapshot: self._catalog.table(snapshot, table))
        return OrderedFeed(
            self.engine,
            self._catalog,
            table,
            read_only=self._read_only,
            used=self._feed_used,
            ended=self._garbage.notify,
        )

    def listen(self, channels: Iterable[str]) -> Listener:
        self._require_open()
        names = check_channels(channels)
        for table in feeds_of(names):
            self.changes(table).earliest()  # raises if there is no feed
        carried = self.engine.traits.carries_signals
        listener = self.engine.listen(names) if carried else self._signals.listen(names)
        self._listeners.add(listener)
        return listener

    def expire(self, table: str) -> None:
        """Drop the changes of a table that are too old; ends early when the storage is closed."""
        stopped = self._feeds.resting()
        OrderedFeed(self.engine, self._catalog, table, read_only=False, stopped=stopped).expire()

    def traffic(self) -> Traffic | None:
        return self.engine.traffic()

    def diagnose(self) -> Iterator[Finding]:
        self._require_open()
        return chain(self._jobs.recovery.diagnose(), self.engine.diagnose(self.spaces))

    def repair(self) -> Iterator[Finding]:
        self._require_open()
        return chain(self._jobs.recovery.repair(), self.engine.repair(self.spaces))

    def compact(self) -> Iterator[CompactionProgress]:
        self._require_open()
        progress = self.engine.compact()
        return super().compact() if progress is None else progress

    def spaces(self) -> Spaces:
        return self.engine.look(read_spaces)

    def close(self) -> None:
        for hold in list(self._plans):
            hold.close()
        for listener in list(self._listeners):
            listener.close()
        self._feeds.stop()
        self._garbage.stop()
        self.engine.close()


def _expire(reference: weakref.ref[OrderedStorage], table: str) -> None:
    """Expire the feed of a table, unless the storage is gone."""
    storage = reference()
    if storage is not None and not storage.closed:
        storage.expire(table)


def _require_arrow() -> None:
    with needing("Arrow batches need", "arrow"):
        import numpy  # noqa: F401 - only tried
        import pyarrow  # noqa: F401
