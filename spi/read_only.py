"""`ReadOnlyStorage`: the result of `connect(..., read_only=True)` for every store; it rejects writes."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator
from typing import NoReturn

from .admin import Progress, TableAdmin
from .bulk import CommitResult, StagedData, StagedWrite, WriteJob
from .delegation import DelegatingStorage
from .errors import UnsupportedOperationError
from .field_rules import FieldRule
from .operations import BeginWrite, Lookup, RangeWrite, RowWrites, Scan
from .positions import FeedPosition
from .rows import Row
from .scans import PlannedScan, RowIterator, ScanExplanation
from .specification import TableSpecification
from .storage import Storage
from .store_reports import CompactionProgress, Finding
from .table import StructuredTable
from .transactions import Isolation, Transaction
from .values import Key

__all__ = ["ReadOnlyStorage"]


class _Refusal:
    """Rejects a call that would change the store; the error names the masked URL."""

    __slots__ = ("_url",)

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, operation: str) -> NoReturn:
        raise UnsupportedOperationError(
            f"{operation} changes the store, and {self._url} was connected with read_only=True; connect without it"
        )


class ReadOnlyTable(StructuredTable):
    """A table that passes reads on to another table, and rejects writes when they are called."""

    __slots__ = ("_refuse", "_table")

    def __init__(self, table: StructuredTable, refuse: _Refusal) -> None:
        self._table = table
        self._refuse = refuse

    @property
    def specification(self) -> TableSpecification:
        return self._table.specification

    @property
    def auto_commit(self) -> bool:
        return self._table.auto_commit

    def read(self, key: Key, columns: Iterable[str] | None = None) -> Row | None:
        return self._table.read(key, columns)

    def _lookup(self, lookup: Lookup) -> list[Row]:
        return self._table._lookup(lookup)

    def _scan(self, scan: Scan) -> RowIterator:
        return self._table._scan(scan)

    def _plan(self, scan: Scan) -> PlannedScan | None:
        return self._table._plan(scan)

    def _location(self) -> str:
        return self._table._location()

    def _explain(self, scan: Scan) -> ScanExplanation:
        return self._table._explain(scan)

    def _count(self, scan: Scan) -> int:
        return self._table._count(scan)

    def _stored(self) -> StructuredTable:
        return ReadOnlyTable(self._table._stored(), self._refuse)

    def _admit(self, operation: str) -> NoReturn:
        self._refuse(operation)

    def _write(self, writes: RowWrites) -> NoReturn:
        self._refuse(writes.verb.name)

    def _write_range(self, write: RangeWrite) -> NoReturn:
        self._refuse(write.name)


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

    def signal(self, channel: str) -> None:
        self._refuse("signal")

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

    def create_or_update(
        self, spec: TableSpecification, *, progress: Progress | None = None, revision: int | None = None
    ) -> None:
        self._refuse("create_or_update")

    def drop(self, table: str) -> None:
        self._refuse("drop")

    def drop_index(self, table: str, field: str, *, revision: int | None = None) -> None:
        self._refuse("drop_index")

    def set_rules(
        self,
        table: str,
        rules: Iterable[FieldRule],
        *,
        expected: Iterable[FieldRule] | None = None,
        revision: int | None = None,
    ) -> None:
        self._refuse("set_rules")

    def drop_field(self, table: str, field: str, *, revision: int | None = None) -> None:
        self._refuse("drop_field")


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

    def _begin_write(self, request: BeginWrite) -> WriteJob:
        self._refuse("begin_write")

    def stage(self, job: WriteJob, partition: int, attempt: int, batches: StagedData) -> StagedWrite:
        self._refuse("stage")

    def commit_write(self, job: WriteJob, staged: Iterable[StagedWrite]) -> CommitResult:
        self._refuse("commit_write")

    def abort_write(self, job: WriteJob) -> None:
        self._refuse("abort_write")

    def repair(self) -> Iterator[Finding]:
        self._refuse("repair")

    def compact(self) -> Iterator[CompactionProgress]:
        self._refuse("compact")
