"""The auto-commit view for any backend: each call in a transaction of its own, retried as `Transactional.run` does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from .filters import Filter
from .ranges import Range
from .rows import Row
from .runner import retry
from .scans import RowIterator, ScanExplanation
from .specification import TableSpecification
from .storage import Isolation, Transaction, Transactional
from .table import StructuredTable
from .values import Key, Value

__all__ = ["AutoCommitTable", "OwningRowIterator", "consumed"]

Result = TypeVar("Result")
Many = TypeVar("Many")
_ALL = Range()


class OwningRowIterator(RowIterator):
    """The rows of a scan together with the transaction that holds their snapshot and ends with them.

    Parameters
    ----------
    transaction : Transaction
        Ended when the rows are exhausted, closed or collected.
    rows : RowIterator
        The scan.
    """

    __slots__ = ("_rows", "_transaction")

    def __init__(self, transaction: Transaction, rows: RowIterator) -> None:
        self._transaction = transaction
        self._rows = rows

    def __next__(self) -> Row:
        try:
            return next(self._rows)
        except BaseException:  # StopIteration as well: whatever ends the iteration frees the snapshot
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
        Where the transactions are run.
    name : str
        The table, which is looked up anew by every call.
    """

    def __init__(self, storage: Transactional, name: str) -> None:
        self._storage = storage
        self._name = name

    def _run(self, body: Callable[[StructuredTable], Result], *, read_only: bool = False) -> Result:
        def in_transaction(transaction: Transaction) -> Result:
            return body(transaction.table(self._name))

        return self._storage.run(in_transaction, read_only=read_only)

    def _scan(self, body: Callable[[StructuredTable], RowIterator]) -> RowIterator:
        def open_scan() -> RowIterator:
            transaction = self._storage.transaction(Isolation.SNAPSHOT, True)
            try:
                return self._owning(transaction, body(transaction.table(self._name)))
            except BaseException:
                transaction.rollback()
                raise

        return retry(self._storage, open_scan)

    def _owning(self, transaction: Transaction, rows: RowIterator) -> RowIterator:
        return OwningRowIterator(transaction, rows)

    @property
    def specification(self) -> TableSpecification:
        """The table's schema as of now."""
        return self._run(lambda table: table.specification, read_only=True)

    def upsert(self, row: Mapping[str, Value]) -> None:
        self._run(lambda table: table.upsert(row))

    def upsert_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        given = consumed(rows)
        self._run(lambda table: table.upsert_many(given))

    def replace(self, row: Mapping[str, Value]) -> None:
        self._run(lambda table: table.replace(row))

    def insert(self, row: Mapping[str, Value]) -> None:
        self._run(lambda table: table.insert(row))

    def update(self, row: Mapping[str, Value], default: Mapping[str, Value] | None = None) -> None:
        self._run(lambda table: table.update(row, default))

    def read(self, key: Key, columns: Iterable[str] | None = None) -> Row | None:
        names = consumed(columns)
        return self._run(lambda table: table.read(key, names), read_only=True)

    def multi_read(self, keys: Iterable[Key], columns: Iterable[str] | None = None) -> list[Row]:
        given, names = consumed(keys), consumed(columns)
        return self._run(lambda table: table.multi_read(given, names), read_only=True)

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
    ) -> RowIterator:
        given, names = consumed(ranges), consumed(columns)
        return self._scan(
            lambda table: table.multi_scan(
                given, where=where, columns=names, order_by=order_by, reverse=reverse, limit=limit
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
        return self._run(
            lambda table: table.explain(
                range, where=where, columns=names, order_by=order_by, reverse=reverse, limit=limit
            ),
            read_only=True,
        )

    def count(self, ranges: Iterable[Range] | None = None, where: Filter | None = None) -> int:
        given = consumed(ranges)
        return self._run(lambda table: table.count(given, where), read_only=True)

    def compare_and_swap(self, key: Key, field: str, expected: Value, value: Value) -> bool:
        return self._run(lambda table: table.compare_and_swap(key, field, expected, value))

    def increment(self, key: Key, field: str, amount: int = 1) -> None:
        self._run(lambda table: table.increment(key, field, amount))

    def delete(self, key: Key) -> None:
        self._run(lambda table: table.delete(key))

    def delete_all(self, range: Range, where: Filter | None = None) -> int:
        return self._run(lambda table: table.delete_all(range, where))

    def update_all(self, range: Range, changes: Mapping[str, Value], where: Filter | None = None) -> int:
        return self._run(lambda table: table.update_all(range, changes, where))


def consumed(given: Many) -> Many:
    """Return what can be read more than once, or what was given if it is no list: the table refuses that."""
    # As a list, a text would be a list of letters.
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        return list(given)  # type: ignore[return-value]  # an iterable of the same
    return given
