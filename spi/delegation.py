"""`DelegatingTable` and `DelegatingStorage`: all operations, for those that pass each call on to another."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, TypeVar

from .admin import TableAdmin
from .aggregates import Aggregation
from .bulk import CommitResult, ScanPlan, ScanSplit, StagedWrite, WriteJob, WriteMode
from .changes import Change, RowKind
from .compaction import CompactionProgress
from .diagnosis import Finding
from .feeds import ChangeFeed
from .filters import Filter
from .ranges import Range
from .rows import Row
from .scans import RowIterator, ScanExplanation
from .shared_snapshots import SharedSnapshot
from .specification import TableSpecification
from .statistics import TableStatistics
from .storage import Storage
from .table import StructuredTable
from .traffic import Traffic
from .transactions import Isolation, Transaction
from .updates import UpdateMessage
from .values import Key, Value

if TYPE_CHECKING:
    from pyarrow import RecordBatch

__all__ = ["DelegatingStorage", "DelegatingTable", "consumed"]

Result = TypeVar("Result")
Many = TypeVar("Many")
_ALL = Range()


class DelegatingTable(StructuredTable):
    """A table each of whose operations is that of another table, which is found when the operation is called.

    A subclass defines how the other table is found and called, in three methods. They may call `body` more than once:
    iterables are consumed before.
    """

    __slots__ = ()

    @abstractmethod
    def _read(self, body: Callable[[StructuredTable], Result]) -> Result:
        """Return the result of `body`, which only reads."""

    @abstractmethod
    def _scan(self, body: Callable[[StructuredTable], RowIterator]) -> RowIterator:
        """Return the scan that `body` begins."""

    @abstractmethod
    def _write(self, operation: str, body: Callable[[StructuredTable], Result]) -> Result:
        """Return the result of `body`, which calls the named operation."""

    @property
    def specification(self) -> TableSpecification:
        return self._read(lambda table: table.specification)

    def upsert(self, row: Mapping[str, Value]) -> None:
        self._write("upsert", lambda table: table.upsert(row))

    def upsert_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        given = consumed(rows)
        self._write("upsert_many", lambda table: table.upsert_many(given))

    def replace(self, row: Mapping[str, Value]) -> None:
        self._write("replace", lambda table: table.replace(row))

    def replace_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        given = consumed(rows)
        self._write("replace_many", lambda table: table.replace_many(given))

    def insert(self, row: Mapping[str, Value]) -> None:
        self._write("insert", lambda table: table.insert(row))

    def insert_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        given = consumed(rows)
        self._write("insert_many", lambda table: table.insert_many(given))

    def apply_changes(self, changes: Iterable[Change | tuple[RowKind | str, Mapping[str, Value]]]) -> None:
        given = consumed(changes)
        self._write("apply_changes", lambda table: table.apply_changes(given))

    def update(self, row: Mapping[str, Value], default: Mapping[str, Value] | None = None) -> None:
        self._write("update", lambda table: table.update(row, default))

    def update_many(
        self, updates: Iterable[Mapping[str, Value] | UpdateMessage], default: Mapping[str, Value] | None = None
    ) -> list[tuple[Value, ...]]:
        given = consumed(updates)
        if given == []:
            return []
        return self._write("update_many", lambda table: table.update_many(given, default))

    def read(self, key: Key, columns: Iterable[str] | None = None) -> Row | None:
        names = consumed(columns)
        return self._read(lambda table: table.read(key, names))

    def multi_read(self, keys: Iterable[Key], columns: Iterable[str] | None = None) -> list[Row]:
        given, names = consumed(keys), consumed(columns)
        return self._read(lambda table: table.multi_read(given, names))

    def scan(
        self,
        range: Range = _ALL,
        *,
        where: Filter | None = None,
        columns: Iterable[str] | None = None,
        order_by: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> RowIterator:
        names = consumed(columns)
        return self._scan(
            lambda table: table.scan(range, where=where, columns=names, order_by=order_by, reverse=reverse, limit=limit)
        )

    def multi_scan(
        self,
        ranges: Iterable[Range],
        *,
        where: Filter | None = None,
        columns: Iterable[str] | None = None,
        order_by: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
        limit_per_range: int | None = None,
    ) -> RowIterator:
        given, names = consumed(ranges), consumed(columns)
        return self._scan(
            lambda table: table.multi_scan(
                given,
                where=where,
                columns=names,
                order_by=order_by,
                reverse=reverse,
                limit=limit,
                limit_per_range=limit_per_range,
            )
        )

    def scan_index(
        self,
        field: str,
        value: Value,
        *,
        range: Range = _ALL,
        where: Filter | None = None,
        columns: Iterable[str] | None = None,
        order_by: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> RowIterator:
        names = consumed(columns)
        return self._scan(
            lambda table: table.scan_index(
                field, value, range=range, where=where, columns=names, order_by=order_by, reverse=reverse, limit=limit
            )
        )

    def explain(
        self,
        range: Range = _ALL,
        *,
        where: Filter | None = None,
        columns: Iterable[str] | None = None,
        order_by: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> ScanExplanation:
        names = consumed(columns)
        return self._read(
            lambda table: table.explain(
                range, where=where, columns=names, order_by=order_by, reverse=reverse, limit=limit
            )
        )

    def count(self, ranges: Iterable[Range] | None = None, where: Filter | None = None) -> int:
        given = consumed(ranges)
        return self._read(lambda table: table.count(given, where))

    def compare_and_swap(self, key: Key, field: str, expected: Value, value: Value) -> bool:
        return self._write("compare_and_swap", lambda table: table.compare_and_swap(key, field, expected, value))

    def increment(self, key: Key, field: str, amount: int = 1) -> None:
        self._write("increment", lambda table: table.increment(key, field, amount))

    def increment_many(self, increments: Iterable[tuple[Key, str, int]]) -> None:
        given = consumed(increments)
        self._write("increment_many", lambda table: table.increment_many(given))

    def delete(self, key: Key) -> None:
        self._write("delete", lambda table: table.delete(key))

    def delete_many(self, keys: Iterable[Key]) -> None:
        given = consumed(keys)
        self._write("delete_many", lambda table: table.delete_many(given))

    def delete_all(self, range: Range, where: Filter | None = None) -> int:
        return self._write("delete_all", lambda table: table.delete_all(range, where))

    def update_all(self, range: Range, changes: Mapping[str, Value], where: Filter | None = None) -> int:
        return self._write("update_all", lambda table: table.update_all(range, changes, where))


class DelegatingStorage(Storage):
    """A storage each of whose operations is that of another one; a subclass overrides some."""

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
    def process_local(self) -> bool:
        return self._storage.process_local

    @property
    def aggregates(self) -> bool:
        return self._storage.aggregates

    def transaction(self, isolation: Isolation = Isolation.SNAPSHOT, read_only: bool = False) -> Transaction:
        return self._storage.transaction(isolation, read_only)

    def table(self, name: str) -> StructuredTable:
        return self._storage.table(name)

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
        return self._storage.plan_scan(
            table, range=range, where=where, columns=columns, splits=splits, aggregate=aggregate
        )

    def share_snapshot(self) -> SharedSnapshot:
        return self._storage.share_snapshot()

    def statistics(self, table: str, range: Range = _ALL) -> TableStatistics:
        return self._storage.statistics(table, range)

    def read_split(self, split: ScanSplit) -> Iterator[RecordBatch]:
        return self._storage.read_split(split)

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
        return self._storage.begin_write(
            table, mode=mode, job_id=job_id, stream=stream, batch=batch, on_missing=on_missing
        )

    def stage(self, job: WriteJob, partition: int, attempt: int, batches: Iterable[RecordBatch]) -> StagedWrite:
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


def consumed(given: Many) -> Many:
    """Return an iterable as a list, to be read more than once; any other argument is left for the table to reject."""
    # A list of a string would be one of characters.
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        return list(given)  # type: ignore[return-value]  # a list of the same elements
    return given
