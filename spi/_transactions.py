"""`Transaction`, and `Transactional`, which begins and runs transactions."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from ._positions import FeedPosition
from ._rules.signals import check_channel
from ._runner import retry
from ._table import StructuredTable

Result = TypeVar("Result")


class Isolation(enum.Enum):
    """Isolation levels; every backend offers both.

    SNAPSHOT: reads see one state and the transaction's own writes; of two overlapping transactions that wrote one row
    the first to commit wins. SERIALIZABLE also excludes write skew, and keeps real-time order.
    """

    SNAPSHOT = "snapshot"
    SERIALIZABLE = "serializable"


class Transaction(ABC):
    """Reads of one snapshot, and writes that become visible together at the commit.

    As a context manager it commits on leaving. It rolls back on an exception, which propagates unchanged, and after a
    failed commit that leaves it open. After a `TransactionConflictError` or `StorageUnavailableError` it can only be
    left, and leaving it without an exception raises the same error again. It belongs to one thread at a time.
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
    def position(self, table: str) -> FeedPosition:
        """Return the position of this transaction's snapshot in the change feed of a table.

        The snapshot is exactly that version: every later change in the feed was committed after the snapshot. Call it
        before `table`, for as many tables as needed.

        Raises
        ------
        TableNotFoundError
            If there is no such table in the snapshot.
        UnsupportedOperationError
            If `table` was called before, the table has no feed, or the store has no feeds.
        TransactionClosedError
            If the transaction has ended.
        """

    def signal(self, channel: str) -> None:
        """Wake the listeners of a channel once this transaction has been committed, see `Storage.listen`.

        A signal is not a write: it conflicts with nothing, and a transaction may signal without writing. Several
        signals of one channel count as one. A rollback, or a commit that fails, wakes no listener; a signal that cannot
        be sent fails no commit of writes.

        Raises
        ------
        ValueError
            If the channel is not a string of 1 to 200 characters, or has NUL characters or lone surrogates.
        UnsupportedOperationError
            If the transaction is read-only.
        TransactionClosedError
            If the transaction has ended.
        """
        check_channel(channel)  # and no more: `connect` adds signals of this process

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
            The store cannot determine whether the commit happened.
        TransactionClosedError
            The transaction had already ended.
        """

    @abstractmethod
    def rollback(self) -> None:
        """Discard all writes and end the transaction; do nothing if it has ended."""

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
            try:
                self.commit()
            except BaseException:
                self.rollback()
                raise


class Transactional(ABC):
    """A store that runs transactions."""

    @abstractmethod
    def transaction(self, isolation: Isolation = Isolation.SNAPSHOT, read_only: bool = False) -> Transaction:
        """Begin a transaction. Its snapshot is taken no earlier than this call and no later than its first operation.

        Raises
        ------
        StorageUnavailableError
            If the store cannot be reached, or if too many transactions are still open after `pool_timeout` seconds.
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
        """Run `body` in a transaction, commit it, and return its result; retry it if that is safe.

        Parameters
        ----------
        body : callable
            Receives the transaction. It may run more than once: its effects outside the transaction must be idempotent.
        isolation : Isolation
            The isolation level.
        read_only : bool
            Reject writes.
        max_attempts : int, optional
            The maximum number of runs of the body, at least 1. Without it only the deadline limits them.
        deadline : float
            Seconds after which no further attempt begins; 0 or more, and finite.

        Raises
        ------
        TransactionConflictError, StorageUnavailableError
            The last error, when the deadline or the attempts are spent, with a note (`__notes__`) of both. Between
            attempts it pauses in proportion to the last one's duration, with exponential back-off and full jitter. A
            body that writes and has lost for an eighth of its deadline goes first: other writing `run`s of this process
            on the store wait for its attempts, each for a limited time.
        ValueError
            If `max_attempts` or `deadline` is out of its range.
        CommitOutcomeUnknownError
            Never retried, for the commit may have happened.
        """

        def attempt() -> Result:
            with self.transaction(isolation, read_only) as transaction:
                return body(transaction)

        return retry(self, attempt, max_attempts=max_attempts, deadline=deadline, writes=not read_only)

    def _run_at_once(self, body: Callable[[Transaction], Result]) -> Result:
        """Run a body that makes one write and then signals, as `run` does; a store may commit the write at its call."""
        return self.run(body)
