"""`CommitHistory`: the newest commit, from which snapshots begin, the newest numbers, and the schema epoch."""

from __future__ import annotations

import time
from collections.abc import Callable

from structable.spi import TransactionConflictError

from .commit_nodes import CommitNode

_MOST_NUMBERED = 1 << 16
"""Limit of numbered commits and their keys together: some 15 MB."""


class CommitHistory:
    """The commits of a store. It holds the newest one; each snapshot holds the commits after it, in a linked list."""

    __slots__ = ("_shared", "epoch", "numbers", "tail", "unsettled")

    def __init__(self, shared: memoryview[int]) -> None:
        self._shared = shared
        self.tail = CommitNode()
        """The newest commit."""
        self.epoch: int | None = 0
        """The number of the newest schema change; None while one is being written."""
        self.unsettled: CommitNode | None = None
        """The first of the commits that may have been written but are not in the history yet."""
        self.numbers: CommitNumbers | None = None
        """The numbers of the newest commits, if there are clients."""

    def begin(self, epoch: int) -> None:
        """Load the epoch of a database that was just opened."""
        self.epoch = epoch
        self._shared[0] = epoch

    def append(self, first: CommitNode | None, last: CommitNode, epoch: int | None) -> None:
        """Add written commits and set the epoch after the last one; for the thread that commits."""
        # The epoch before the numbers: a client that notes the number of the commit also sees its epoch.
        if epoch is not None and epoch != self.epoch:
            self._shared[0] = epoch
        self.tail.next = first
        self.tail = last
        self.epoch = epoch
        numbers, node = self.numbers, first
        while numbers is not None and node is not None:
            numbers.append(node)
            node = node.next

    def settle(self) -> None:
        """Add commits that failed or were interrupted and may still have been written.

        Never while reads go to a state before those commits: a transaction that began there would miss a conflict.
        """
        first = self.unsettled
        if first is None:
            return
        last = first
        while last.next is not None:
            last = last.next
        if last is not self.tail:
            self.append(first, last, self.epoch)
        self.unsettled = None

    def count_commits(self) -> None:
        """Number commits from now on, in shared memory, for clients to note; by one thread at a time."""
        if self.numbers is None:
            self.numbers = CommitNumbers(self._shared, self.tail)

    def find(self, number: int) -> CommitNode:
        """Return the commit of a number that a client noted; `SnapshotLostError` if it is not known."""
        node = None if self.numbers is None else self.numbers.find(number)
        if node is None:
            raise SnapshotLostError("the transaction began too many commits ago, or under an owner that has ended")
        return node


class SnapshotLostError(TransactionConflictError):
    """A client's snapshot can no longer be pinned; a snapshot taken as the transaction began could have been read."""


class CommitNumbers:
    """The newest commits by number, so that a client's transaction notes its start without a request.

    The newest number is in shared memory, where clients note it.

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
        while self._size > _MOST_NUMBERED and self._oldest < number:
            oldest = self._nodes.pop(self._oldest, None)
            self._oldest += 1
            self._size -= oldest.size if oldest is not None else 0
        self._shared[1] = number
