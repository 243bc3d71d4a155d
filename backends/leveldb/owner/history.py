"""`History`: the newest commit and the schema epoch, from which snapshots begin."""

from __future__ import annotations

from .commit_nodes import CommitNode
from .commit_numbers import CommitNumbers, SnapshotLostError

__all__ = ["History"]


class History:
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
        """Take over the epoch of a database that was opened."""
        self.epoch = epoch
        self._shared[0] = epoch

    def append(self, first: CommitNode | None, last: CommitNode, epoch: int | None) -> None:
        """Add commits that were written, the last of which leaves an epoch; for the thread that commits."""
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
        """Add the commits that may have been written although they failed, or were interrupted.

        Never while reads go to a state before those commits: a transaction that began in it would miss a conflict.
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
