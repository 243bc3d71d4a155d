"""`Storage`, its administration and its transactions: what a backend implements and what a service uses."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from .bulk import CommitResult, ScanPlan, ScanSplit, StagedWrite, WriteJob, WriteMode
from .diagnosis import Finding
from .filters import Filter
from .ranges import Range
from .runner import run_transaction
from .specification import TableSpecification
from .table import StructuredTable

if TYPE_CHECKING:
    from pyarrow import RecordBatch

__all__ = ["Isolation", "Storage", "TableAdmin", "Transaction", "Transactional"]

Result = TypeVar("Result")
_ALL = Range()


class Isolation(enum.Enum):
    """Isolation levels; every backend offers both.

    SNAPSHOT: reads see one state and the transaction's own writes; of two overlapping transactions that wrote one row
    the first to commit wins. SERIALIZABLE also refuses write skew, and keeps real-time order.
    """

    SNAPSHOT = "snapshot"
    SERIALIZABLE = "serializable"


class Transaction(ABC):
    """Reads of one snapshot, and writes that become visible together at the commit.

    As a context manager it commits on leaving and rolls back on an exception, which comes out unchanged. After a
    `TransactionConflictError` or `StorageUnavailableError` it can only be left, and leaving it without an exception
    raises the same error again. A transaction belongs to one thread at a time.
    """

    __slots__ = ()

    @abstractmethod
    def table(self, name: str) -> StructuredTable:
        """Return a table inside this transaction.

        Raises
        ------
        TableNotFoundError
            If there is no such table in the snapshot.
        TransactionClosedError
            If the transaction has ended.
        """

    @abstractmethod
    def commit(self) -> None:
        """Make all writes visible, atomically, and end the transaction.

        Raises
        ------
        TransactionConflictError
            Another transaction won; nothing was committed.
        StorageUnavailableError
            The store failed; nothing was committed.
        CommitOutcomeUnknownError
            It cannot be known whether the commit happened.
        TransactionClosedError
            The transaction has ended before.
        """

    @abstractmethod
    def rollback(self) -> None:
        """Drop all writes and end the transaction; nothing happens if it has ended."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether the transaction has ended."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self.rollback()
        elif not self.closed:
            self.commit()


class Transactional(ABC):
    """Something that transactions can be run on."""

    @abstractmethod
    def transaction(self, isolation: Isolation = Isolation.SNAPSHOT, read_only: bool = False) -> Transaction:
        """Begin a transaction. Its snapshot is taken no earlier than this call and no later than its first operation.

        Raises
        ------
        StorageUnavailableError
            If the store cannot be reached, or as many transactions are open as may be for `pool_timeout` seconds.
        """

    def run(
        self,
        body: Callable[[Transaction], Result],
        *,
        isolation: Isolation = Isolation.SNAPSHOT,
        read_only: bool = False,
        max_attempts: int | None = None,
        deadline: float = 30.0,
    ) -> Result:
        """Run `body` in a transaction, commit it, and return what it returned; retry it where that is safe.

        Parameters
        ----------
        body : callable
            Takes the transaction. It may run more than once, so what it does outside the transaction must bear that.
        isolation : Isolation
            The isolation level.
        read_only : bool
            Refuse writes.
        max_attempts : int, optional
            How often the body runs at most; at least 1. Without it the deadline alone decides.
        deadline : float
            Seconds after which no further attempt begins; 0 or more, and finite.

        Raises
        ------
        TransactionConflictError, StorageUnavailableError
            The last one, when the deadline or the attempts are spent, with a note (`__notes__`) of both. Between
            attempts it pauses in proportion to what the last one took, with exponential back-off and full jitter. A
            body that writes and has lost for an eighth of its deadline goes first: other writing `run`s of this process
            on the store wait for its attempts, each for a limited time.
        ValueError
            If `max_attempts` or `deadline` is not such a number.
        CommitOutcomeUnknownError
            Never retried, for the commit may have happened.
        """
        return run_transaction(
            self, body, isolation=isolation, read_only=read_only, max_attempts=max_attempts, deadline=deadline
        )


class TableAdmin(ABC):
    """Creation, change and removal of tables. Each call is atomic, also between processes.

    A transaction that begins after a call returned sees its effect, in every process. A call that has to wait for open
    transactions waits at most `ddl_timeout` seconds, then raises `StorageUnavailableError` and has changed nothing.
    """

    @abstractmethod
    def create(self, spec: TableSpecification) -> None:
        """Create an empty table.

        Raises
        ------
        TableAlreadyExistsError
            If there is a table of this name.
        InvalidSpecificationError
            If there is one whose name differs by case alone.
        """

    @abstractmethod
    def create_or_update(self, spec: TableSpecification) -> None:
        """Create the table, or change it: new fields outside the key, new indexes, wider integers and floats.

        Existing rows read null in new fields, and new indexes cover them. BYTE, SHORT, INT and LONG may become a later
        one of these, FLOAT may become DOUBLE. The order of fields is ignored; an equal specification changes nothing.

        Raises
        ------
        SchemaIncompatibleError
            With every difference that is not allowed.
        InvalidSpecificationError
            If there is a table whose name differs by case alone.
        """

    @abstractmethod
    def exists(self, table: str) -> bool:
        """Tell whether there is a table of exactly this name."""

    @abstractmethod
    def get_specification(self, table: str) -> TableSpecification:
        """Return the table's specification.

        Raises
        ------
        TableNotFoundError
            If there is no such table.
        """

    @abstractmethod
    def list(self) -> list[str]:
        """Return the names of all tables, in code point order."""

    @abstractmethod
    def drop(self, table: str) -> None:
        """Remove a table and its rows; an absent one is no error. One created again under the name is empty."""

    @abstractmethod
    def drop_index(self, table: str, field: str) -> None:
        """Take the index of a field away.

        Raises
        ------
        TableNotFoundError
            If there is no such table.
        InvalidFieldError
            If the field has no index.
        """


class Storage(Transactional):
    """One store. Safe to share between threads; a process forked from its own must connect anew."""

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL it was connected with; a password is masked."""

    @property
    @abstractmethod
    def admin(self) -> TableAdmin:
        """Creation, change and removal of tables."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether `close` was called, or this process was forked from the one that connected."""

    @property
    def process_local(self) -> bool:
        """Whether the data lives in this process alone, so that no other one can read splits or stage rows."""
        return False

    @abstractmethod
    def table(self, name: str) -> StructuredTable:
        """Return the auto-commit view of a table: each call is its own transaction and is retried as `run` does.

        Its scans hold a snapshot until they are exhausted, closed or collected.

        Raises
        ------
        TableNotFoundError
            If there is no such table.
        """

    @abstractmethod
    def plan_scan(
        self,
        table: str,
        *,
        range: Range = _ALL,
        where: Filter | None = None,
        columns: Iterable[str] | None = None,
        splits: int = 1,
    ) -> ScanPlan:
        """Take a snapshot and divide a scan of it into about equal, picklable splits.

        Parameters
        ----------
        table : str
            The table.
        range, where : Range, Filter
            Which rows, as in `StructuredTable.scan`.
        columns : iterable of str, optional
            The columns of the batches: exactly these, in this order. All in the table's order, if not given.
        splits : int
            About how many splits are wanted, at least 1; there may be fewer, never none.

        Raises
        ------
        TableNotFoundError, InvalidFieldError
            For a table, field or value that does not exist or fit.
        UnsupportedOperationError
            If the store cannot be read by other processes.
        """

    @abstractmethod
    def read_split(self, split: ScanSplit) -> Iterator[RecordBatch]:
        """Yield the rows of a split as batches with exactly the plan's columns.

        Their order is the store's: stores that keep their keys in order have them in key order, others as they lie.

        Raises
        ------
        TransactionClosedError
            If the plan's snapshot is no longer held: never another snapshot instead.
        """

    @abstractmethod
    def begin_write(self, table: str, *, mode: WriteMode | str, job_id: str) -> WriteJob:
        """Begin an atomic write job, or return the one that was begun under this id with the same table and mode.

        An id belongs to the table of that moment, not to its name: once the table is dropped, the id is unknown, and
        may be used for the table's successor or any other. `WriteJob.committed` tells whether the job was committed
        before.

        Parameters
        ----------
        table : str
            The table.
        mode : WriteMode or str
            What happens to each row.
        job_id : str
            Names the job; it is kept for 7 days after the job ended.

        Raises
        ------
        TableNotFoundError
            If there is no such table.
        ValueError
            If the mode is unknown, or the id is empty, over 200 characters, holds NUL characters or lone surrogates, or
            was used with another mode, or with another table that still exists.
        """

    @abstractmethod
    def stage(self, job: WriteJob, partition: int, attempt: int, batches: Iterable[RecordBatch]) -> StagedWrite:
        """Store the rows of one attempt of a partition, in any process; nothing becomes visible.

        Parameters
        ----------
        job : WriteJob
            As `begin_write` returned it.
        partition, attempt : int
            Numbers of the caller's. Every call is an attempt of its own, even with equal numbers.
        batches : iterable of pyarrow.RecordBatch
            All key fields, and the fields to write, with the Arrow types of `arrow_schema`.

        Raises
        ------
        InvalidFieldError, FieldSizeLimitError
            For rows that the table refuses, except what needs the table's rows to be known.
        TableNotFoundError
            If the table was dropped since the job began, where the store looks; `commit_write` does in any case.
        """

    @abstractmethod
    def commit_write(self, job: WriteJob, staged: Iterable[StagedWrite]) -> CommitResult:
        """Make all staged rows visible, atomically; do nothing if the job was committed before, by whatever process.

        The job takes effect as of this call: what others changed since `stage` does not conflict with it.

        Returns
        -------
        CommitResult
            True if this call made the rows visible, false if that had been done before. Of all calls for one job, at
            most one returns true; none does if the one that wrote the rows could not return.

        Raises
        ------
        TableNotFoundError
            If the table was dropped since the job began, even if another of its name exists; nothing was written.
        RecordExistsError, RecordNotFoundError
            As the mode has it; nothing was written.
        TransactionClosedError
            If the job was aborted.
        TransactionConflictError, CommitOutcomeUnknownError, StorageUnavailableError
            `commit_write` may be called again.
        """

    @abstractmethod
    def abort_write(self, job: WriteJob) -> None:
        """Drop all that was staged; the job cannot be committed any more.

        After a commit it does nothing, nor does it to a later job of the same id, begun after this one's table was
        dropped.
        """

    def diagnose(self) -> Iterator[Finding]:
        """Yield what the store knows of its own state, beyond what any reader of its tables can tell; change nothing.

        A store that keeps no such state yields nothing, as here.
        """
        return iter(())

    def repair(self) -> Iterator[Finding]:
        """Finish what ended processes left, as far as that is certain, and yield what was done.

        It may wait as long as the store has to, to tell an ended process from a silent one, and never ends what a
        living one does. Whatever it leaves is found by `diagnose`. A store that needs none yields nothing, as here.

        Raises
        ------
        StorageUnavailableError
            If the store cannot be reached; what was done stays done.
        """
        return iter(())

    @abstractmethod
    def close(self) -> None:
        """End what is open and free the store; idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
