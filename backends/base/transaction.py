"""`TransactionLifecycle`: how a transaction ends, the same in every store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import NoReturn

from structable.spi import StructableError, TransactionClosedError, UnsupportedOperationError
from structable.spi.authors import check_channel


class TransactionLifecycle(ABC):
    """A transaction is usable, has failed and must be left, or has ended.

    A failure that ends the transaction, such as a conflict, is raised again by every later operation until the caller
    leaves the transaction by `rollback`, or by `commit` or the end of the `with` block, which raise it once more.
    """

    # Class attributes until they differ: a transaction that is interrupted before it assigns its own can also end.
    usable = True
    """Whether operations may continue; each operation checks this first."""
    writable = True
    """Whether writes may continue; each write checks this first. False once the transaction is not usable."""
    signals: frozenset[str] = frozenset()
    """The channels that the commit signals."""
    _failure: StructableError | None = None

    @property
    def closed(self) -> bool:
        """Whether the transaction has ended and, if it failed, was left."""
        return not self.usable and self._failure is None

    def signal(self, channel: str) -> None:
        if not self.writable:
            self.refuse_write()
        self.signals |= {check_channel(channel)}

    def refuse(self) -> NoReturn:
        if self._failure is not None:
            raise self._failure
        raise TransactionClosedError("the transaction has ended; begin a new one")

    def refuse_write(self) -> NoReturn:
        """Raise the reason why the transaction is not usable for writes."""
        if not self.usable:
            self.refuse()
        raise UnsupportedOperationError("the transaction is read-only; begin one with read_only=False to write")

    def refuse_commit(self) -> NoReturn:
        """Raise the reason why the transaction is not usable; this leaves a failed transaction."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        self.refuse()

    def fail(self, error: Exception) -> NoReturn:
        """Raise an error; an error of the contract ends the transaction, which must then be left."""
        if self.usable and isinstance(error, StructableError):
            self._end()
            self._failure = error
        raise error

    @abstractmethod
    def commit(self) -> None:
        """Make all writes visible; `refuse_commit` unless usable. See `Transaction.commit`."""

    def rollback(self) -> None:
        self._failure = None
        if self.usable:
            self._end()

    @abstractmethod
    def _end(self) -> None:
        """Make the transaction unusable, discard its writes and free its resources; idempotent."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self.rollback()
        elif self.usable or self._failure is not None:
            try:
                self.commit()
            except BaseException:
                # A transaction that is too large cannot become smaller; an interruption leaves nothing open.
                self._end()
                self._failure = None
                raise

    def __del__(self) -> None:
        if self.usable:
            self._end()
