"""`MeasuringStorage`: the result of `connect` where the program has an OpenTelemetry SDK; it counts and times calls.

A transaction is counted when it begins and when it ends. So is each call of an auto-commit view that reads or writes,
where a scan ends with the call that begins it, and each `commit_write`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from time import perf_counter
from types import TracebackType
from typing import TypeVar

from ._bulk import CommitResult, StagedWrite, WriteJob
from ._delegation import DelegatingStorage
from ._errors import StructableError
from ._operations import Answer, Lookup, RangeWrite, RowMove, RowWrites, Scan, consumed
from ._positions import FeedPosition
from ._rows import Row
from ._runner import observing_retries
from ._scans import PlannedScan, RowIterator, ScanExplanation
from ._specification import TableSpecification
from ._storage import Storage
from ._store_metrics import ENDING, StoreMeter, StoreMetrics, outcome_of
from ._table import StructuredTable
from ._transactions import Isolation, Transaction
from ._values import Key, Value

Result = TypeVar("Result")


class _MeasuringRows(RowIterator):
    """The rows of a scan; records the time to the first one."""

    __slots__ = ("_failed", "_next", "_recorder", "_rows", "_seconds")

    def __init__(
        self,
        rows: RowIterator,
        seconds: float,
        recorder: Callable[[float], None],
        failed: Callable[[StructableError], None],
    ) -> None:
        self._rows = rows
        self._next = rows.__next__
        self._seconds = seconds
        self._recorder: Callable[[float], None] | None = recorder
        self._failed = failed

    def __next__(self) -> Row:
        if self._recorder is not None:
            return self._first(self._recorder)
        try:
            return self._next()
        except ENDING as error:
            self._failed(error)
            raise

    def _first(self, recorder: Callable[[float], None]) -> Row:
        self._recorder = None
        begun = perf_counter()
        try:
            row = self._next()
            recorder(self._seconds + perf_counter() - begun)
            return row
        except StopIteration:
            recorder(self._seconds + perf_counter() - begun)
            raise
        except ENDING as error:
            self._failed(error)
            raise
        except BaseException:
            self._rows.close()  # the row is lost, and the next one must not come in its place
            raise

    def close(self) -> None:
        self._rows.close()


class _MeasuringTable(StructuredTable):
    """The common part of tables of transactions and auto-commit views."""

    __slots__ = ("_meter", "_name", "_table")

    def __init__(self, table: StructuredTable, name: str, meter: StoreMeter) -> None:
        self._table = table
        self._name = name
        self._meter = meter

    @property
    def specification(self) -> TableSpecification:
        return self._table.specification

    @property
    def auto_commit(self) -> bool:
        return self._table.auto_commit

    def read(self, key: Key, columns: Iterable[str] | None = None) -> Row | None:
        names = consumed(columns)
        return self._timed("read", lambda table: table.read(key, names))

    def upsert(self, row: Mapping[str, Value]) -> None:
        self._run("write", lambda table: table.upsert(row))

    def _move(self, move: RowMove) -> None:
        self._run("write", lambda table: table._move(move))

    def _admit(self, operation: str) -> None:
        self._table._admit(operation)

    def _lookup(self, lookup: Lookup) -> list[Row]:
        return self._timed(lookup.name, lambda table: table._lookup(lookup))

    def _scan(self, scan: Scan) -> RowIterator:
        begun = perf_counter()
        rows = self._run("read", lambda table: table._scan(scan))
        meter, name = self._meter, self._name
        return _MeasuringRows(
            rows, perf_counter() - begun, lambda seconds: meter.read(name, "scan", seconds), self._failed
        )

    def _plan(self, scan: Scan) -> PlannedScan | None:
        return self._run("read", lambda table: table._plan(scan))

    def _location(self) -> str:
        return self._table._location()

    def _explain(self, scan: Scan) -> ScanExplanation:
        return self._run("read", lambda table: table._explain(scan))

    def _count(self, scan: Scan) -> int:
        return self._timed("count", lambda table: table._count(scan))

    def _write(self, writes: RowWrites) -> Answer | None:
        return self._run("write", lambda table: table._write(writes))

    def _write_range(self, write: RangeWrite) -> int:
        return self._run("write", lambda table: table._write_range(write))

    def _timed(self, operation: str, body: Callable[[StructuredTable], Result]) -> Result:
        begun = perf_counter()
        result = self._run("read", body)
        self._meter.read(self._name, operation, perf_counter() - begun)
        return result

    @abstractmethod
    def _run(self, access: str, body: Callable[[StructuredTable], Result]) -> Result:
        """Return the result of `body`, and record the outcome of its transaction."""

    @abstractmethod
    def _failed(self, error: StructableError) -> None:
        """Record an error of a scan that has begun."""


class _TransactionTable(_MeasuringTable):
    """A table of a transaction."""

    __slots__ = ("_transaction",)

    def __init__(self, table: StructuredTable, name: str, meter: StoreMeter, transaction: MeasuringTransaction) -> None:
        super().__init__(table, name, meter)
        self._transaction = transaction

    def _run(self, access: str, body: Callable[[StructuredTable], Result]) -> Result:
        try:
            return body(self._table)
        except ENDING as error:
            self._failed(error)
            raise

    def _failed(self, error: StructableError) -> None:
        self._transaction.failure = error

    def _stored(self) -> StructuredTable:
        return _TransactionTable(self._table._stored(), self._name, self._meter, self._transaction)


class _AutoCommitView(_MeasuringTable):
    """An auto-commit view. It keeps the storage, whose traffic its calls add to."""

    __slots__ = ("_storage",)

    def __init__(self, table: StructuredTable, name: str, meter: StoreMeter, storage: MeasuringStorage) -> None:
        super().__init__(table, name, meter)
        self._storage = storage

    def _run(self, access: str, body: Callable[[StructuredTable], Result]) -> Result:
        meter, name = self._meter, self._name

        def again(error: StructableError) -> None:
            meter.counter(name, access, outcome_of(error))()
            meter.counter(name, access, "retried")()
            meter.counter("", access, "begun")()

        with observing_retries(again):
            return meter.transaction(lambda: body(self._table), name, access, "auto_commit")

    def _failed(self, error: StructableError) -> None:
        """Do nothing: the transaction was counted when the scan began."""


class MeasuringTransaction(Transaction):
    """A transaction that is counted as it begins and ends, and whose commit is timed."""

    __slots__ = ("_access", "_meter", "_open", "_tables", "_transaction", "failure")

    def __init__(self, transaction: Transaction, access: str, meter: StoreMeter) -> None:
        self._open = False
        self._transaction = transaction
        self._access = access
        self._meter = meter
        self._tables: set[str] = set()
        self.failure: StructableError | None = None
        """The error after which the transaction can only be left."""
        begun = meter.counter("", access, "begun")
        self._open = True
        begun()

    def table(self, name: str) -> StructuredTable:
        try:
            table = self._transaction.table(name)
        except ENDING as error:
            self.failure = error
            raise
        self._tables.add(name)
        return _TransactionTable(table, name, self._meter, self)

    def position(self, table: str) -> FeedPosition:
        try:
            return self._transaction.position(table)
        except ENDING as error:
            self.failure = error
            raise

    def signal(self, channel: str) -> None:
        self._transaction.signal(channel)

    @property
    def closed(self) -> bool:
        return self._transaction.closed

    def commit(self) -> None:
        self._commit(self._transaction.commit)

    def rollback(self) -> None:
        try:
            self._transaction.rollback()
        finally:
            self._ended(outcome_of(self.failure))

    def _commit(self, commit: Callable[[], None]) -> None:
        begun = perf_counter()
        try:
            commit()
            self._ended("committed", perf_counter() - begun)
        except BaseException as error:
            # One that is too large stays open.
            if isinstance(error, ENDING) or not isinstance(error, Exception) or self._transaction.closed:
                self._ended(outcome_of(error, committing=True))
            raise

    def _ended(self, outcome: str, seconds: float | None = None) -> None:
        if not self._open:
            return
        table = next(iter(self._tables)) if len(self._tables) == 1 else ""
        ended = self._meter.counter(table, self._access, outcome)
        self._open = False
        ended()
        if seconds is not None and self._access == "write":
            self._meter.committed(table, "commit", seconds)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        leave = self._transaction.__exit__
        if error is None:
            self._commit(lambda: leave(None, None, None))
            return
        try:
            leave(kind, error, traceback)
        finally:
            self._ended(outcome_of(self.failure))

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            self._ended(outcome_of(self.failure))


class MeasuringStorage(DelegatingStorage):
    """A storage that passes all calls on to another one, and counts and times them.

    Parameters
    ----------
    storage : Storage
        The other storage, which nothing else uses.
    metrics : StoreMetrics
        The instruments.
    store : str
        The store's name among the attributes.
    read_only : bool
        Whether the other storage rejects writes.
    """

    def __init__(self, storage: Storage, metrics: StoreMetrics, store: str, *, read_only: bool = False) -> None:
        super().__init__(storage)
        self._read_only = read_only
        self._meter = StoreMeter(metrics, store)
        self._traffic = metrics.traffic(store)
        self._key = [self._traffic.begin(storage)]

    def transaction(self, isolation: Isolation = Isolation.SNAPSHOT, read_only: bool = False) -> Transaction:
        begun = self._storage.transaction(isolation, read_only)
        return MeasuringTransaction(begun, self._access(read_only), self._meter)

    def _access(self, read_only: bool) -> str:
        return "read" if read_only or self._read_only else "write"

    def run(
        self,
        body: Callable[[Transaction], Result],
        *,
        isolation: Isolation = Isolation.SNAPSHOT,
        read_only: bool = False,
        max_attempts: int | None = None,
        deadline: float = 30.0,
    ) -> Result:
        retried = self._meter.counter("", self._access(read_only), "retried")
        with observing_retries(lambda error: retried()):
            return super().run(
                body, isolation=isolation, read_only=read_only, max_attempts=max_attempts, deadline=deadline
            )

    def table(self, name: str) -> StructuredTable:
        return _AutoCommitView(self._storage.table(name), name, self._meter, self)

    def commit_write(self, job: WriteJob, staged: Iterable[StagedWrite]) -> CommitResult:
        return self._meter.transaction(
            lambda: self._storage.commit_write(job, staged), job.table, "write", "commit_write"
        )

    def close(self) -> None:
        self._storage.close()
        self._end()

    def _end(self) -> None:
        try:
            key = self._key.pop()
        except IndexError:
            return  # it was closed before
        self._traffic.end(key, self._storage.traffic())

    def __del__(self) -> None:
        if hasattr(self, "_key"):
            self._end()
