"""`CommitNumbers`: commits by number, so that a client's transaction notes its start without a request."""

from __future__ import annotations

import time
from collections.abc import Callable

from structable.spi.errors import TransactionConflictError

from .commit_nodes import CommitNode

__all__ = ["CommitNumbers", "SnapshotLostError"]

_MOST = 1 << 16
"""Limit of commits and keys together: some 15 MB."""


class SnapshotLostError(TransactionConflictError):
    """A client's snapshot can no longer be pinned; a snapshot taken as the transaction began could have been read."""


class CommitNumbers:
    """The newest commits by number; the newest number is in shared memory, where clients note it.

    Numbers start at the clock's nanoseconds, or above the number in shared memory, and rise by one: an owner never
    reuses a number of an earlier owner. The newest commits are kept, up to 65,536 commits and keys together.
    """

    def __init__(self, shared: memoryview[int], tail: CommitNode) -> None:
        self._shared = shared
        self._oldest = self._newest = max(shared[1] + 1, time.time_ns())
        self._nodes = {self._newest: tail}
        self._size = tail.size
        self.find: Callable[[int], CommitNode | None] = self._nodes.get
        """Returns the commit of a number, or None if the number is not among the kept ones."""
        shared[1] = self._newest

    def append(self, node: CommitNode) -> None:
        """Add the newest commit, in the history but not acknowledged yet; for the thread that commits."""
        # An interruption between any two lines leaves a state that the next commit can continue from.
        number = self._newest + 1
        self._nodes[number] = node
        self._size += node.size
        self._newest = number
        while self._size > _MOST and self._oldest < number:
            oldest = self._nodes.pop(self._oldest, None)
            self._oldest += 1
            self._size -= oldest.size if oldest is not None else 0
        self._shared[1] = number
