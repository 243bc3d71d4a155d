"""`ReadOnlyStorage`: the result of `connect(..., read_only=True)` for every store; it rejects writes."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from typing import NoReturn

from ._admin import TableAdmin
from ._delegation import DelegatingStorage
from ._errors import UnsupportedOperationError
from ._operations import Lookup, RangeWrite, RowWrites, Scan
from ._positions import FeedPosition
from ._rows import Row
from ._scans import PlannedScan, RowIterator, ScanExplanation
from ._specification import TableSpecification
from ._storage import Storage
from ._table import StructuredTable
from ._transactions import Isolation, Transaction
from ._values import Key


class _ReadOnlyRefusal:
    """Rejects a call that would change the store; the error names the masked URL."""

    __slots__ = ("_url",)

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, operation: str) -> NoReturn:
        raise UnsupportedOperationError(
            f"{operation} changes the store, and {self._url} was connected with read_only=True; connect without it"
        )


def _refused(operation: str) -> Callable[..., NoReturn]:
    """Return the method of an operation that would change the store."""

    def refuse(self: ReadOnlyAdmin | ReadOnlyStorage | ReadOnlyTransaction, *_: object, **__: object) -> NoReturn:
        self._refuse(operation)

    return refuse


class ReadOnlyTable(StructuredTable):
    """A table that passes reads on to another table, and rejects writes when they are called."""

    __slots__ = ("_refuse", "_table")

    def __init__(self, table: StructuredTable, refuse: _ReadOnlyRefusal) -> None:
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

    def __init__(self, transaction: Transaction, refuse: _ReadOnlyRefusal) -> None:
        self._transaction = transaction
        self._refuse = refuse

    def table(self, name: str) -> StructuredTable:
        return ReadOnlyTable(self._transaction.table(name), self._refuse)

    def position(self, table: str) -> FeedPosition:
        return self._transaction.position(table)

    signal = _refused("signal")

    def commit(self) -> None:
        self._transaction.commit()

    def rollback(self) -> None:
        self._transaction.rollback()

    @property
    def closed(self) -> bool:
        return self._transaction.closed


class ReadOnlyAdmin(TableAdmin):
    """The admin of a read-only store: passes reads on, and rejects changes."""

    def __init__(self, admin: TableAdmin, refuse: _ReadOnlyRefusal) -> None:
        self._admin = admin
        self._refuse = refuse

    def exists(self, table: str) -> bool:
        return self._admin.exists(table)

    def get_specification(self, table: str) -> TableSpecification:
        return self._admin.get_specification(table)

    def list(self) -> builtins.list[str]:
        return self._admin.list()

    create = _refused("create")
    create_or_update = _refused("create_or_update")
    drop = _refused("drop")
    drop_index = _refused("drop_index")
    set_rules = _refused("set_rules")
    drop_field = _refused("drop_field")


class ReadOnlyStorage(DelegatingStorage):
    """A storage that passes reads on to another storage, and rejects every change; the same for all backends.

    The backend of the other storage was given `read_only=True`, and writes nothing on its own. Feeds are the other
    storage's: it refuses `expire` itself, and sets no marks.
    """

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self._refuse = _ReadOnlyRefusal(storage.url)
        self._admin = ReadOnlyAdmin(storage.admin, self._refuse)

    @property
    def admin(self) -> TableAdmin:
        return self._admin

    def transaction(self, isolation: Isolation = Isolation.SNAPSHOT, read_only: bool = False) -> Transaction:
        return ReadOnlyTransaction(self._storage.transaction(isolation, True), self._refuse)

    def table(self, name: str) -> StructuredTable:
        return ReadOnlyTable(self._storage.table(name), self._refuse)

    _begin_write = _refused("begin_write")
    stage = _refused("stage")
    commit_write = _refused("commit_write")
    abort_write = _refused("abort_write")
    repair = _refused("repair")
    compact = _refused("compact")
