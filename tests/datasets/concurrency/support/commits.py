"""A storage that calls the test before and after each commit of a transaction that may write."""

from __future__ import annotations

from collections.abc import Callable

from structable.spi import FeedPosition, Isolation, Storage, StructuredTable, Transaction
from structable.spi.authors import DelegatingStorage


class ObservedCommits(DelegatingStorage):
    """A storage that is another one, but for its commits.

    Parameters
    ----------
    storage : Storage
        The other one.
    before, after : callable
        Called before and after each commit; `before` in the thread of the transaction, which is still open.
    """

    def __init__(self, storage: Storage, before: Callable[[], object], after: Callable[[], object]) -> None:
        super().__init__(storage)
        self._before = before
        self._after = after

    def transaction(self, isolation: Isolation = Isolation.SNAPSHOT, read_only: bool = False) -> Transaction:
        transaction = self._storage.transaction(isolation, read_only)
        return transaction if read_only else _ObservedTransaction(transaction, self._before, self._after)


class _ObservedTransaction(Transaction):
    __slots__ = ("_after", "_before", "_transaction")

    def __init__(self, transaction: Transaction, before: Callable[[], object], after: Callable[[], object]) -> None:
        self._transaction = transaction
        self._before = before
        self._after = after

    def table(self, name: str) -> StructuredTable:
        return self._transaction.table(name)

    def position(self, table: str) -> FeedPosition:
        return self._transaction.position(table)

    def signal(self, channel: str) -> None:
        self._transaction.signal(channel)

    def commit(self) -> None:
        self._before()
        self._transaction.commit()
        self._after()

    def rollback(self) -> None:
        self._transaction.rollback()

    @property
    def closed(self) -> bool:
        return self._transaction.closed
