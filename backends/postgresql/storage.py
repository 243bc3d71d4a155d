"""`PostgreSQLStorage`: one schema of a database."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from structable.backends.base.feed_upkeep import FeedUpkeep
from structable.spi import (
    Capabilities,
    ChangeFeed,
    CommitResult,
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
    StructableError,
    StructuredTable,
    TableAdmin,
    TableStatistics,
    Traffic,
    Transaction,
    WriteJob,
)
from structable.spi.authors import BeginWrite, PlanScan, StagedData, check_channels, feeds_of, requested_job

from .autocommit import AtOnce, AutoCommitPostgreSQLTable
from .bulk.jobs import WriteJobs
from .bulk.shared_plans import SharedPlans
from .bulk.split_planning import plan_table_scan
from .bulk.split_reading import SplitReader
from .changes.change_splits import read_change_split, reads_changes
from .changes.feed import PostgreSQLFeed
from .driver.connection import ServerConnection
from .driver.connection_factory import ConnectionFactory
from .driver.errors import PostgreSQLError, translated
from .driver.pool import ServerPool
from .driver.signals import ServerSignals
from .feeds.gate import StoreFeeds, VersionGate
from .schema.admin import PostgreSQLAdmin
from .schema.catalog import Catalog, prepare
from .schema.inspection import diagnose
from .transaction import PostgreSQLTransaction
from .txn.receipts import Receipts
from .txn.store_context import StoreContext

if TYPE_CHECKING:
    from pyarrow import RecordBatch

Result = TypeVar("Result")

_log = logging.getLogger("structable.postgresql")

_ALL = Range()


class PostgreSQLStorage(Storage):
    """The tables of a schema. Connecting creates missing schema and catalog if `create` is true."""

    def __init__(
        self,
        factory: ConnectionFactory,
        schema: str,
        url: str,
        *,
        pool_size: int,
        pool_timeout: float,
        ddl_timeout: float,
        create: bool,
        read_only: bool,
    ) -> None:
        self._url = url
        self.pool = ServerPool(factory.open, pool_size, pool_timeout)
        self._read_only = read_only
        self._catalog = Catalog(schema)
        self._admin = PostgreSQLAdmin(self.pool, self._catalog, ddl_timeout)
        self._jobs = WriteJobs(self.pool, self._catalog, ddl_timeout)
        self._splits = SplitReader(factory)
        self._upkeep = FeedUpkeep(partial(_expire, weakref.ref(self)))
        self._feeds = StoreFeeds(
            VersionGate(schema, self._splits.pool.connection),
            (lambda table: None) if read_only else self._upkeep.noticed,  # a read-only store leaves feeds to others
        )
        self._plans: weakref.WeakKeyDictionary[SnapshotHold, ServerConnection | None] = weakref.WeakKeyDictionary()
        try:
            with self.pool.connection() as connection:
                prepare(connection, schema, create=create)
                pooled = connection.is_pooled
        except PostgreSQLError as error:
            self.pool.close()
            raise translated(error, f"preparing the schema {schema!r} of {url}") from error
        except BaseException:
            self.pool.close()
            raise
        self._signals = ServerSignals(factory, self._splits.pool, schema, pooled=pooled)
        self._parts = StoreContext(self.pool, self._catalog, self._feeds, Receipts(schema), self._signals)

    @property
    def url(self) -> str:
        return self._url

    @property
    def admin(self) -> TableAdmin:
        return self._admin

    @property
    def closed(self) -> bool:
        return self.pool.closed

    def _require_open(self) -> None:
        if self.pool.closed:
            raise StorageUnavailableError(
                f"the storage {self._url} was closed, or connected by the process that forked this one"
            )

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            table_types=True,
            change_feeds=True,
            streams=True,
            statistics=True,
            shared_snapshots=True,
            aggregates=True,
            field_rules=True,
            wakes=self._signals.wakes,
        )

    def transaction(self, isolation: Isolation = Isolation.SNAPSHOT, read_only: bool = False) -> PostgreSQLTransaction:
        if isolation.__class__ is not Isolation:
            raise ValueError(f"isolation is {isolation!r}; it must be an Isolation")
        self._require_open()
        return PostgreSQLTransaction(self._parts, isolation, bool(read_only))

    def _run_at_once(self, body: Callable[[Transaction], Result]) -> Result:
        return body(AtOnce(self, self._signals))

    def table(self, name: str) -> StructuredTable:
        self._require_open()
        return AutoCommitPostgreSQLTable(self, self._parts, name)

    def _plan_scan(self, request: PlanScan) -> ScanPlan:
        self._require_open()
        plan, connection = plan_table_scan(self.pool, self._catalog, self._feeds.gate, request)
        self._plans[plan.hold] = connection
        return plan

    def share_snapshot(self) -> SharedSnapshot:
        self._require_open()
        aside = self._splits.pool.connection
        return SharedPlans(self.pool, aside, self._catalog, self._feeds.gate, self._plans, self._require_open)

    def statistics(self, table: str, range: Range = _ALL) -> TableStatistics:
        self._require_open()

        def found(transaction: Transaction) -> TableStatistics:
            assert isinstance(transaction, PostgreSQLTransaction)
            return transaction.statistics(table, range)

        return self.run(found, read_only=True)

    def diagnose(self) -> Iterator[Finding]:
        self._require_open()
        with self.pool.connection() as connection:
            found = [*diagnose(connection.ask, self._catalog.schema)]
        yield from found

    def read_split(self, split: ScanSplit) -> Iterator[RecordBatch]:
        self._require_open()
        if reads_changes(split):
            return read_change_split(self._splits.pool, split)
        split.require_open()
        return self._splits.read(split, None if split.hold is None else self._plans.get(split.hold))

    def changes(self, table: str) -> ChangeFeed:
        self._require_open()
        with self.transaction(read_only=True) as transaction:
            transaction.table(table)
        return PostgreSQLFeed(self.pool, self._catalog, self._feeds, table, read_only=self._read_only)

    def listen(self, channels: Iterable[str]) -> Listener:
        self._require_open()
        names = check_channels(channels)
        tables = feeds_of(names)
        for table in tables:
            self.changes(table).earliest()  # raises if there is no feed
        listener = self._signals.listen(names)
        if not self._read_only:
            for table in tables:
                self._signal(table)
        return listener

    def _signal(self, table: str) -> None:
        try:
            self._admin.signal(table)
        except StructableError as error:
            _log.info("commits to table %r do not signal its feed, unless another role listens to it: %s", table, error)

    def expire(self, table: str) -> None:
        """Drop the changes of a table that are too old; ends early when the storage is closed."""
        # Not through the storage's pool, which may be small.
        pool, stopped = self._splits.pool, self._upkeep.stopped
        feed = PostgreSQLFeed(pool, self._catalog, self._feeds, table, read_only=False, stopped=stopped)
        try:
            feed.expire()
        except StorageUnavailableError as error:
            if not error.lasting:
                raise
            _log.info("the old changes of table %r are left to the tables' owner: %s", table, error)

    def _begin_write(self, request: BeginWrite) -> WriteJob:
        self._require_open()
        return self._jobs.begin(requested_job(*request))

    def stage(self, job: WriteJob, partition: int, attempt: int, batches: StagedData) -> StagedWrite:
        self._require_open()
        return self._jobs.stage(job, partition, attempt, batches)

    def commit_write(self, job: WriteJob, staged: Iterable[StagedWrite]) -> CommitResult:
        self._require_open()
        result = self._jobs.commit(job, staged)
        known = self._catalog.known(job.table)
        if result and known is not None and known.version.feed is not None:
            self._feeds.used(job.table)
            self._signals.send(known.signals)
        return result

    def abort_write(self, job: WriteJob) -> None:
        self._require_open()
        self._jobs.abort(job)

    def traffic(self) -> Traffic:
        return self.pool.traffic() + self._splits.pool.traffic()

    def close(self) -> None:
        for hold in list(self._plans):
            hold.close()
        self._signals.close()
        self._upkeep.stop()
        self._admin.stop()
        self.pool.close()
        self._splits.close()


def _expire(reference: weakref.ref[PostgreSQLStorage], table: str) -> None:
    """Expire the feed of a table if the storage still exists."""
    storage = reference()
    if storage is not None:
        storage.expire(table)
