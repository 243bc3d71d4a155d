"""`DelegatingStorage`: all operations, for a storage that passes each call on to another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ._admin import TableAdmin
from ._bulk import CommitResult, ScanPlan, ScanSplit, StagedData, StagedWrite, WriteJob
from ._capabilities import Capabilities
from ._feeds import ChangeFeed
from ._operations import BeginWrite, PlanScan
from ._ranges import Range
from ._shared_snapshots import SharedSnapshot
from ._signals import Listener
from ._storage import Storage
from ._store_reports import CompactionProgress, Finding, TableStatistics, Traffic
from ._table import StructuredTable
from ._transactions import Isolation, Transaction

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_ALL = Range()


class DelegatingStorage(Storage):
    """A storage that forwards every operation to another one; a subclass overrides some."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @property
    def url(self) -> str:
        return self._storage.url

    @property
    def admin(self) -> TableAdmin:
        return self._storage.admin

    @property
    def closed(self) -> bool:
        return self._storage.closed

    @property
    def capabilities(self) -> Capabilities:
        return self._storage.capabilities

    def transaction(self, isolation: Isolation = Isolation.SNAPSHOT, read_only: bool = False) -> Transaction:
        return self._storage.transaction(isolation, read_only)

    def listen(self, channels: Iterable[str]) -> Listener:
        return self._storage.listen(channels)

    def table(self, name: str) -> StructuredTable:
        return self._storage.table(name)

    def _plan_scan(self, request: PlanScan) -> ScanPlan:
        return self._storage._plan_scan(request)

    def share_snapshot(self) -> SharedSnapshot:
        return self._storage.share_snapshot()

    def statistics(self, table: str, range: Range = _ALL) -> TableStatistics:
        return self._storage.statistics(table, range)

    def read_split(self, split: ScanSplit) -> Iterator[RecordBatch]:
        return self._storage.read_split(split)

    def _begin_write(self, request: BeginWrite) -> WriteJob:
        return self._storage._begin_write(request)

    def stage(self, job: WriteJob, partition: int, attempt: int, batches: StagedData) -> StagedWrite:
        return self._storage.stage(job, partition, attempt, batches)

    def commit_write(self, job: WriteJob, staged: Iterable[StagedWrite]) -> CommitResult:
        return self._storage.commit_write(job, staged)

    def abort_write(self, job: WriteJob) -> None:
        self._storage.abort_write(job)

    def changes(self, table: str) -> ChangeFeed:
        return self._storage.changes(table)

    def traffic(self) -> Traffic | None:
        return self._storage.traffic()

    def diagnose(self) -> Iterator[Finding]:
        return self._storage.diagnose()

    def repair(self) -> Iterator[Finding]:
        return self._storage.repair()

    def compact(self) -> Iterator[CompactionProgress]:
        return self._storage.compact()

    def close(self) -> None:
        self._storage.close()
