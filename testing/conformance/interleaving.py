"""`ConcurrentTransaction`: a transaction in a thread of its own, to interleave steps, whether or not a store waits.

The contract lets a write wait for another transaction, and lets a conflict show up at the write or at the commit. A
test states its steps in order; a step that waits is left behind and finishes when the transaction it waits for ends.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Generic, TypeVar, cast

from structable.spi import Isolation, Key, Row, Storage, Transaction, TransactionConflictError

Result = TypeVar("Result")

PATIENCE = 0.25
"""Default of the seconds after which a step counts as waiting for another transaction."""
_LONGEST = 60.0
"""Seconds after which a waiting step fails the test: nothing is left to wait for."""


class StepOutcome(Generic[Result]):
    """One step of a session: done, waiting, or ended by a conflict."""

    def __init__(self, session: ConcurrentTransaction, future: Future[Result | None]) -> None:
        self._session = session
        self._future = future

    @property
    def value(self) -> Result:
        """The result of the step. A step with a conflict has no value: the test fails."""
        value = self._future.result(_LONGEST)
        if self._session.conflict is not None:
            raise AssertionError(f"this step must not conflict, but: {self._session.conflict}")
        return cast("Result", value)

    @property
    def value_or_conflict(self) -> Result | TransactionConflictError:
        """The result of the step, or the conflict that ended the session before or during it."""
        value = self._future.result(_LONGEST)
        return cast("Result", value) if self._session.conflict is None else self._session.conflict


class ConcurrentTransaction:
    """A transaction in its own thread, begun at once; a step counts as waiting after `patience` seconds."""

    def __init__(self, storage: Storage, isolation: Isolation = Isolation.SNAPSHOT, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="session")
        self.conflict: TransactionConflictError | None = None
        self.transaction: Transaction = self._thread.submit(storage.transaction, isolation).result(_LONGEST)

    def step(self, action: Callable[[Transaction], Result]) -> StepOutcome[Result]:
        """Run an action on the transaction, and return when it is done or seems to wait for another transaction.

        After a conflict, further actions are skipped. Any other error is raised here, or when the value is read.
        """
        future = self._thread.submit(self._run, action)
        try:
            future.result(self._patience)
        except FutureTimeoutError:
            if future.done():
                raise  # the action's own
        return StepOutcome(self, future)

    def read(self, table: str, key: Key) -> Row | None:
        """Read a row; as the first step this takes the snapshot."""
        return self.step(lambda transaction: transaction.table(table).read(key)).value

    def commit(self) -> bool:
        """Commit, and return whether that succeeded: False after a conflict in any step."""

        def commit_or_leave(transaction: Transaction) -> bool:
            if self.conflict is None:
                try:
                    transaction.commit()
                except TransactionConflictError as conflict:
                    self.conflict = conflict
            if self.conflict is not None:
                transaction.rollback()
            return self.conflict is None

        return self._thread.submit(commit_or_leave, self.transaction).result(_LONGEST)

    def rollback(self) -> None:
        self._thread.submit(self.transaction.rollback).result(_LONGEST)

    def _run(self, action: Callable[[Transaction], Result]) -> Result | None:
        if self.conflict is not None:
            return None
        try:
            return action(self.transaction)
        except TransactionConflictError as conflict:
            self.conflict = conflict
            return None

    def leave(self) -> None:
        """Roll back an open transaction, without waiting for it."""
        self._thread.submit(self.transaction.rollback)

    def join(self) -> None:
        """Wait until the thread has ended; transactions that its steps wait for must have ended before."""
        self._thread.shutdown()
