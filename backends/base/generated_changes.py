"""`GeneratedChanges`: an iterator over changes that a generator yields."""

from __future__ import annotations

from collections.abc import Iterator

from structable.spi import Change, ChangeIterator, TransactionClosedError

__all__ = ["GeneratedChanges"]


class GeneratedChanges(ChangeIterator):
    """The changes that a generator yields; what ends it early is raised again, so that the end is not taken for it."""

    __slots__ = ("_changes", "_closed", "_failure")

    def __init__(self, changes: Iterator[Change]) -> None:
        self._changes = changes
        self._closed = False
        self._failure: BaseException | None = None

    def __next__(self) -> Change:
        if self._closed:
            raise TransactionClosedError("the iterator over changes was closed")
        if self._failure is not None:
            raise self._failure
        try:
            return next(self._changes)
        except StopIteration:
            raise
        except BaseException as failure:
            self._failure = failure
            raise

    def close(self) -> None:
        self._closed = True
        close = getattr(self._changes, "close", None)
        if close is not None:
            close()
