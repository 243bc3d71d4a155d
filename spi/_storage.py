"""`Storage`: one store, as backends implement it and services use it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal, Self

from ._admin import TableAdmin
from ._aggregates import Aggregation
from ._bulk import CommitResult, ScanPlan, ScanSplit, StagedData, StagedWrite, WriteJob, WriteMode
from ._errors import UnsupportedOperationError
from ._feeds import ChangeFeed
from ._filters import Filter
from ._imports import needing
from ._operations import BeginWrite, PlanScan, consumed
from ._ranges import Range
from ._shared_snapshots import SharedSnapshot
from ._signals import Signalling
from ._store_reports import CompactionProgress, Finding, TableStatistics, Traffic
from ._table import StructuredTable
from ._transactions import Transactional

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_ALL = Range()


class Storage(Transactional, Signalling):
    """One store. Safe to share between threads; a forked process must connect by itself."""

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL of the connection, its password masked."""

    @property
    @abstractmethod
    def admin(self) -> TableAdmin:
        """Creation, change and removal of tables."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether `close` was called, or this process was forked from the one that connected.

        A store may also find out that it is gone for good, as LevelDB does if its folder was removed or replaced.
        """

    @abstractmethod
    def table(self, name: str) -> StructuredTable:
        """Return the auto-commit view of a table: each call is its own transaction and is retried as `run` does.

        Its scans hold a snapshot until they are exhausted, closed or collected.

        Raises
        ------
        TableNotFoundError
            If there is no such table.
        """

    def plan_scan(
        self,
        table: str,
        *,
        range: Range = _ALL,
        where: Filter | None = None,
        columns: Iterable[str] | None = None,
        splits: int = 1,
        aggregate: Aggregation | None = None,
    ) -> ScanPlan:
        """Take a snapshot and divide a scan of it into about equal, picklable splits.

        Parameters
        ----------
        table : str
            The table.
        range, where : Range, Filter
            The selected rows, as in `StructuredTable.scan`.
        columns : iterable of str, optional
            The columns of the batches: exactly these, in this order. All in the table's order, if not given.
        splits : int
            Approximate number of splits, at least 1; the plan may have fewer, never none.
        aggregate : Aggregation, optional
            The content of the batches in place of the selected rows and of `columns`: partial aggregates, under the
            names of `Aggregation.columns`. A group may come in several splits, and in several rows of a split; the
            caller combines them: counts and sums by adding, extremes by comparing. Without `group_by` each split has at
            least one row; groups have no rows if no rows were selected.

        Raises
        ------
        TableNotFoundError, InvalidFieldError
            If the table or a field does not exist, or a value does not fit; if the aggregate is not of this table, or
            given together with columns.
        UnsupportedOperationError
            If other processes cannot read the store, or the store does not aggregate.
        """
        return self._plan_scan(PlanScan(table, range, where, consumed(columns), splits, aggregate))

    @abstractmethod
    def read_split(self, split: ScanSplit) -> Iterator[RecordBatch]:
        """Yield the rows of a split as batches with exactly the plan's columns.

        The order of rows is the store's: key order in stores that keep keys in order, none in others.

        Raises
        ------
        TransactionClosedError
            If the plan's snapshot is no longer held; no other snapshot replaces it.
        InvalidFieldError
            If an expression of the plan's aggregate has a value of more than 38 digits.
        """

    @abstractmethod
    def share_snapshot(self) -> SharedSnapshot:
        """Return a snapshot from which scans of several tables are planned; its first plan takes it.

        Raises
        ------
        UnsupportedOperationError
            If plans of the store cannot share a snapshot.
        """

    @abstractmethod
    def statistics(self, table: str, range: Range = _ALL) -> TableStatistics:
        """Return about how many rows a table or a range of it has, at a cost that does not grow with them.

        They describe the newest committed state. At most 2,000 rows (`store_reports.COUNTED_ROWS`) are counted; beyond
        that the number may be an estimate, never of 0 rows. Nothing is held afterwards.

        Raises
        ------
        TableNotFoundError, InvalidFieldError
            If there is no such table, or the range does not fit.
        UnsupportedOperationError
            If the store has no statistics.
        """

    def begin_write(
        self,
        table: str,
        *,
        mode: WriteMode | str,
        job_id: str | None = None,
        stream: str | None = None,
        batch: int | None = None,
        on_missing: Literal["fail", "skip"] = "fail",
    ) -> WriteJob:
        """Begin an atomic write job, or return the one that was begun under this id with the same table and mode.

        An id belongs to the table that has the name at that moment, not to the name: once the table is dropped, the id
        is unknown, and may be used for the table's successor or any other. `WriteJob.committed` says whether the job
        was committed before.

        A batch of a stream has the stream and its number in place of an id. The number of the last batch committed of
        each stream is kept as long as the table, and a batch not above it counts as committed. A batch that is not
        committed may begin again, also in another mode and after `abort_write`, which drops its staged rows; until then
        it cannot be committed.

        Parameters
        ----------
        table : str
            The table.
        mode : WriteMode or str
            The operation on each row.
        job_id : str, optional
            The job's name; it is kept for 7 days after the job ended.
        stream : str, optional
            The stream's name, as an id; streams of different tables have nothing to do with each other.
        batch : int, optional
            The number of the batch, not negative; with `stream`.
        on_missing : {"fail", "skip"}
            In mode patch, the treatment of keys that must have a row and have none: `commit_write` writes nothing and
            raises RecordNotFoundError, or it leaves these arms out, and counts the keys in `CommitResult.missing`.

        Raises
        ------
        TableNotFoundError
            If there is no such table.
        UnsupportedOperationError
            If the table takes no job of this mode, or the store has no streams.
        ValueError
            If the mode is unknown, or the id is empty, over 200 characters, holds NUL characters or lone surrogates,
            reads like that of a batch ("batch 5 of stream x"), or was used with another mode, or with another table
            that still exists; if there is neither an id nor a stream with a batch, or both; if the batch is
            negative or not an int; if `on_missing` is unknown, or "skip" in another mode than patch.
        """
        return self._begin_write(BeginWrite(table, mode, job_id, stream, batch, on_missing))

    def load(
        self,
        table: str,
        data: object,
        mode: WriteMode | str | None = None,
        create: bool = False,
        *,
        primary_key: Iterable[str] = (),
        job_id: str | None = None,
        nan_is_null: bool | None = None,
    ) -> CommitResult:
        """Write all rows of a frame, a table or a stream, by one atomic job.

        Columns are matched to fields by name; values are cast if they stay the same. docs/data-frames.md has the rules.

        Parameters
        ----------
        table : str
            The table.
        data : object
            A DataFrame of pandas or Polars, a relation of DuckDB, a pyarrow Table, RecordBatch or RecordBatchReader, or
            another object with `__arrow_c_stream__`. A reader is consumed.
        mode : WriteMode or str, optional
            The operation on each row: upsert, or insert into a table without a key, if not given.
        create : bool
            Make the table, by `TableSpecification.from_arrow`, if there is none.
        primary_key : iterable of str
            The key of a table that is made; if there is a table, it must have this key.
        job_id : str, optional
            The job's name: with it, a load whose outcome is unknown may be made again, and counts once.
        nan_is_null : bool, optional
            Whether a NaN is a missing value: by default in frames of pandas. pandas' NaT and NA are missing always.

        Raises
        ------
        TableNotFoundError, InvalidSpecificationError, InvalidFieldError, FieldSizeLimitError
            If there is no such table, none can be made, or a row does not fit. Nothing was written.
        Exception
            As from `begin_write` and `commit_write`.
        """
        with needing("loading data needs", "arrow"):
            from ._load_job import load
        return load(self, table, data, mode, create, primary_key, job_id, nan_is_null)

    @abstractmethod
    def stage(self, job: WriteJob, partition: int, attempt: int, batches: StagedData) -> StagedWrite:
        """Store the rows of one attempt of a partition, in any process; nothing becomes visible.

        An attempt may continue after another process has committed its job; `commit_write` then returns false. The end
        of the job never disturbs the call. For a job that was `committed` when it began, nothing is stored.

        Parameters
        ----------
        job : WriteJob
            As `begin_write` returned it.
        partition, attempt : int
            The caller's numbers. Every call is a separate attempt, even with equal numbers.
        batches : iterable of pyarrow.RecordBatch, or an object with `__arrow_c_stream__`
            All key fields, and the fields to write: record batches, a `pyarrow.Table`, a reader, a frame of pandas or
            Polars, a relation of DuckDB. Values of other types than `arrow_schema` has are taken if they mean the same.

        Raises
        ------
        InvalidFieldError, FieldSizeLimitError
            If the table rejects a row, as far as that does not depend on the table's rows.
        UnsupportedOperationError
            If the table takes no row of such a kind.
        TableNotFoundError
            If the table was dropped since the job began; only some stores check it, and `commit_write` always does.
        """

    @abstractmethod
    def commit_write(self, job: WriteJob, staged: Iterable[StagedWrite]) -> CommitResult:
        """Make all staged rows visible, atomically; do nothing if any process has committed the job before.

        The job takes effect as of this call: changes by others since `stage` do not conflict with it.

        Returns
        -------
        CommitResult
            True if this call made the rows visible, false if that had been done before. At most one of all calls for
            one job returns true; none does if the call that wrote the rows could not return. For a job of mode patch
            also the number of missing keys.

        Raises
        ------
        TableNotFoundError
            If the table was dropped since the job began, even if another of its name exists; nothing was written.
        SchemaIncompatibleError
            If rows were staged under other rules than the table has, or name a field that was dropped since, even if
            another field has its name; nothing was written.
        RecordExistsError, RecordNotFoundError, RecordChangedError
            As the mode, or a patch's arms, demand; nothing was written.
        InvalidFieldError, FieldSizeLimitError, UnsupportedOperationError
            If the table rejects a row because of the stored row of its key, or no longer takes the job's mode; nothing
            was written.
        TransactionClosedError
            If the job was aborted, and in the case of a batch did not begin again.
        TransactionConflictError, CommitOutcomeUnknownError, StorageUnavailableError
            `commit_write` may be called again; it raises a `RecordChangedError` again until the rows have changed back.
        """

    @abstractmethod
    def abort_write(self, job: WriteJob) -> None:
        """Drop all staged rows; the job can no longer be committed, a batch of a stream only once it has begun again.

        It does nothing after a commit, and nothing to a later job of the same id that was begun after this job's table
        was dropped.
        """

    @abstractmethod
    def changes(self, table: str) -> ChangeFeed:
        """Return the change feed of a table.

        Raises
        ------
        TableNotFoundError
            If there is no such table. If it has no feed, the methods of the result raise.
        UnsupportedOperationError
            If the store has no change feeds.
        """

    @abstractmethod
    def traffic(self) -> Traffic | None:
        """Return the traffic between this storage and its store since it was connected.

        Numbers never go down: connections that were closed or lost stay counted, also after `close`. If storages of one
        process share a connection, one of them counts its traffic, so that the sum over all is correct. Safe to call
        from any thread, at any time; it waits for no other call; the traffic of a call in progress on another thread
        may be counted when the call ends. None if the store counts nothing.
        """

    def diagnose(self) -> Iterator[Finding]:
        """Yield findings about the store's internal state that cannot be seen by reading tables; change nothing.

        A store without such state yields nothing, which is the default.
        """
        return iter(())

    def repair(self) -> Iterator[Finding]:
        """Clean up after ended processes, if that is safe, and yield the actions.

        The call may wait as long as the store needs to distinguish an ended process from a silent one, and never
        interferes with a living one. `diagnose` finds the remainder. A store that needs no repair yields nothing, the
        default.

        Raises
        ------
        StorageUnavailableError
            If the store cannot be reached; completed work stays.
        """
        return iter(())

    def compact(self) -> Iterator[CompactionProgress]:
        """Rewrite everything that the store keeps, so that it takes no more space than it must, and yield the progress.

        Other processes, and other threads, may use the store at the same time. Whatever ends the work early, an error,
        a killed process or a caller who asks for no more progress, loses nothing; another call begins it again. The
        first progress has the size before, and the last one the size after.

        Raises
        ------
        UnsupportedOperationError
            If the store leaves nothing to compact, or does so on its own; the default.
        StorageUnavailableError
            If the store cannot be reached, or has no room for the new files.
        """
        raise UnsupportedOperationError(f"{self.url} cannot be compacted: its store reclaims space by itself")

    @abstractmethod
    def close(self) -> None:
        """End open transactions, scans and plans and release the store; idempotent."""

    def __repr__(self) -> str:
        return f"<storage {self.url}{' (closed)' if self.closed else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    # The methods that a backend implements. The calls above check their arguments first.

    @abstractmethod
    def _plan_scan(self, request: PlanScan) -> ScanPlan:
        """Implement `plan_scan`."""

    @abstractmethod
    def _begin_write(self, request: BeginWrite) -> WriteJob:
        """Implement `begin_write`; `rules.jobs.requested_job` checks the request."""
