"""The auto-commit view for any backend: each call is a transaction, retried as `Transactional.run` does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from ._errors import UnsupportedOperationError
from ._operations import Answer, Lookup, RangeWrite, RowMove, RowWrites, Scan
from ._rows import Row
from ._runner import retry
from ._scans import PlannedScan, RowIterator, ScanExplanation
from ._specification import TableSpecification
from ._storage import Storage
from ._table import StructuredTable
from ._transactions import Isolation, Transaction, Transactional

Result = TypeVar("Result")
_NO_ROWS: Iterator[Row] = iter(())


class OwningRowIterator(RowIterator):
    """The rows of a scan; exhausting, closing or collecting the iterator ends their transaction."""

    __slots__ = ("_next", "_rows", "_transaction")

    def __init__(self, transaction: Transaction, rows: RowIterator) -> None:
        self._transaction = transaction
        self._rows = rows
        self._next = rows.__next__

    def __next__(self) -> Row:
        try:
            return self._next()
        except BaseException as error:  # StopIteration too: every end of the iteration frees the snapshot
            if isinstance(error, StopIteration):
                self._next = _NO_ROWS.__next__  # the rows of an ended transaction may raise another error
            self._transaction.rollback()
            raise

    def close(self) -> None:
        """Release the snapshot; idempotent."""
        self._rows.close()
        self._transaction.rollback()

    def __del__(self) -> None:
        self._transaction.rollback()


class AutoCommitTable(StructuredTable):
    """The view `storage.table(name)`. A backend with a shorter way for a single operation overrides that method.

    Parameters
    ----------
    storage : Transactional
        The store that runs the transactions.
    name : str
        The table's name; every call looks the table up.
    """

    def __init__(self, storage: Transactional, name: str) -> None:
        self._storage = storage
        self._name = name

    @property
    def auto_commit(self) -> bool:
        return True

    @property
    def specification(self) -> TableSpecification:
        return self._read(lambda table: table.specification)

    def _location(self) -> str:
        return f"{self._name} of {getattr(self._storage, 'url', 'a store')}"

    def _plan(self, scan: Scan) -> PlannedScan | None:
        storage = self._storage
        ranges = list(scan.ranges)
        if not isinstance(storage, Storage) or scan != Scan(scan.ranges, scan.where, scan.columns) or len(ranges) != 1:
            return None
        try:
            plan = storage.plan_scan(self._name, range=ranges[0], where=scan.where, columns=scan.columns)
        except UnsupportedOperationError:
            return None
        return PlannedScan(plan, storage.read_split)

    def _read(self, body: Callable[[StructuredTable], Result]) -> Result:
        """Return the result of `body` in a transaction of its own, which only reads."""
        return self._storage.run(lambda transaction: body(transaction.table(self._name)), read_only=True)

    def _lookup(self, lookup: Lookup) -> list[Row]:
        return self._read(lambda table: table._lookup(lookup))

    def _explain(self, scan: Scan) -> ScanExplanation:
        return self._read(lambda table: table._explain(scan))

    def _count(self, scan: Scan) -> int:
        return self._read(lambda table: table._count(scan))

    def _write(self, writes: RowWrites) -> Answer | None:
        def attempt() -> Answer | None:
            with self._storage.transaction() as transaction:
                return transaction.table(self._name)._write(writes)

        return retry(self._storage, attempt, writes=True)

    def _move(self, move: RowMove) -> None:
        self._storage.run(lambda transaction: transaction.table(self._name)._move(move))

    def _write_range(self, write: RangeWrite) -> int:
        return self._storage.run(lambda transaction: transaction.table(self._name)._write_range(write))

    def _scan(self, scan: Scan) -> RowIterator:
        def open_scan() -> RowIterator:
            transaction = self._storage.transaction(Isolation.SNAPSHOT, True)
            try:
                return self._owning(transaction, transaction.table(self._name)._scan(scan))
            except BaseException:
                transaction.rollback()
                raise

        return retry(self._storage, open_scan)

    def _owning(self, transaction: Transaction, rows: RowIterator) -> RowIterator:
        return OwningRowIterator(transaction, rows)
