"""`ReadOnlyStorage`: the result of `connect(..., read_only=True)` for every store; it rejects writes."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, NoReturn, TypeVar

from .admin import TableAdmin
from .bulk import CommitResult, StagedWrite, WriteJob, WriteMode
from .changes import Change, RowKind
from .compaction import CompactionProgress
from .delegation import DelegatingStorage, DelegatingTable
from .diagnosis import Finding
from .errors import UnsupportedOperationError
from .positions import FeedPosition
from .rows import Row
from .scans import RowIterator
from .specification import TableSpecification
from .storage import Storage
from .table import StructuredTable
from .transactions import Isolation, Transaction
from .updates import UpdateMessage
from .values import Key, Value

if TYPE_CHECKING:
    from pyarrow import RecordBatch

__all__ = ["ReadOnlyStorage"]

Result = TypeVar("Result")


class _Refusal:
    """Rejects a call that would change the store; the error names the masked URL."""

    __slots__ = ("_url",)

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, operation: str) -> NoReturn:
        raise UnsupportedOperationError(
            f"{operation} changes the store, and {self._url} was connected with read_only=True; connect without it"
        )


class ReadOnlyTable(DelegatingTable):
    """A table that passes reads on to another table, and rejects writes when they are called."""

    __slots__ = ("_refuse", "_table")

    def __init__(self, table: StructuredTable, refuse: _Refusal) -> None:
        self._table = table
        self._refuse = refuse

    @property
    def auto_commit(self) -> bool:
        return self._table.auto_commit

    def read(self, key: Key, columns: Iterable[str] | None = None) -> Row | None:
        return self._table.read(key, columns)

    def upsert_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        self._refuse("upsert_many")  # without consuming the rows

    def replace_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        self._refuse("replace_many")

    def insert_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        self._refuse("insert_many")

    def apply_changes(self, changes: Iterable[Change | tuple[RowKind | str, Mapping[str, Value]]]) -> None:
        self._refuse("apply_changes")

    def update_many(
        self, updates: Iterable[Mapping[str, Value] | UpdateMessage], default: Mapping[str, Value] | None = None
    ) -> list[tuple[Value, ...]]:
        self._refuse("update_many")

    def _read(self, body: Callable[[StructuredTable], Result]) -> Result:
        return body(self._table)

    def _scan(self, body: Callable[[StructuredTable], RowIterator]) -> RowIterator:
        return body(self._table)

    def _write(self, operation: str, body: object) -> NoReturn:
        self._refuse(operation)


class ReadOnlyTransaction(Transaction):
    """A transaction, begun read-only, whose tables name the storage when they reject a write."""

    __slots__ = ("_refuse", "_transaction")

    def __init__(self, transaction: Transaction, refuse: _Refusal) -> None:
        self._transaction = transaction
        self._refuse = refuse

    def table(self, name: str) -> StructuredTable:
        return ReadOnlyTable(self._transaction.table(name), self._refuse)

    def position(self, table: str) -> FeedPosition:
        return self._transaction.position(table)

    def commit(self) -> None:
        self._transaction.commit()

    def rollback(self) -> None:
        self._transaction.rollback()

    @property
    def closed(self) -> bool:
        return self._transaction.closed


class ReadOnlyAdmin(TableAdmin):
    """The admin of a read-only store: passes reads on, and rejects changes."""

    def __init__(self, admin: TableAdmin, refuse: _Refusal) -> None:
        self._admin = admin
        self._refuse = refuse

    def exists(self, table: str) -> bool:
        return self._admin.exists(table)

    def get_specification(self, table: str) -> TableSpecification:
        return self._admin.get_specification(table)

    def list(self) -> builtins.list[str]:
        return self._admin.list()

    def create(self, spec: TableSpecification) -> None:
        self._refuse("create")

    def create_or_update(self, spec: TableSpecification) -> None:
        self._refuse("create_or_update")

    def drop(self, table: str) -> None:
        self._refuse("drop")

    def drop_index(self, table: str, field: str) -> None:
        self._refuse("drop_index")


class ReadOnlyStorage(DelegatingStorage):
    """A storage that passes reads on to another storage, and rejects every change; the same for all backends.

    The backend of the other storage was given `read_only=True`, and writes nothing on its own. Feeds are the other
    storage's: it refuses `expire` itself, and sets no marks.
    """

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self._refuse = _Refusal(storage.url)
        self._admin = ReadOnlyAdmin(storage.admin, self._refuse)

    @property
    def admin(self) -> TableAdmin:
        return self._admin

    def transaction(self, isolation: Isolation = Isolation.SNAPSHOT, read_only: bool = False) -> Transaction:
        return ReadOnlyTransaction(self._storage.transaction(isolation, True), self._refuse)

    def table(self, name: str) -> StructuredTable:
        return ReadOnlyTable(self._storage.table(name), self._refuse)

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
        self._refuse("begin_write")

    def stage(self, job: WriteJob, partition: int, attempt: int, batches: Iterable[RecordBatch]) -> StagedWrite:
        self._refuse("stage")

    def commit_write(self, job: WriteJob, staged: Iterable[StagedWrite]) -> CommitResult:
        self._refuse("commit_write")

    def abort_write(self, job: WriteJob) -> None:
        self._refuse("abort_write")

    def repair(self) -> Iterator[Finding]:
        self._refuse("repair")

    def compact(self) -> Iterator[CompactionProgress]:
        self._refuse("compact")
