"""The commits after a snapshot, as a linked list, and the check of a write set against them.

A snapshot holds the tail of the list when it began, and a commit walks from there to the present tail. The list points
forward only, so commits that no snapshot reaches any more are freed, without any record of open transactions.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Set

from structable.backends.leveldb.route import VERSION_KEY
from structable.backends.ordered.engine import BlindStep, Operand, ReadSet, WriteSet
from structable.spi import TransactionConflictError

_NOTHING: frozenset[bytes] = frozenset()
_SORT_IN_PLACE_FROM = 1 << 16


class CommitNode:
    """One commit: the keys of its `WriteSet.writes`, and the commit after it."""

    __slots__ = ("next", "written")

    def __init__(self, written: frozenset[bytes] = _NOTHING) -> None:
        self.next: CommitNode | None = None
        self.written = written

    @property
    def size(self) -> int:
        """The approximate size of the node in memory, as a number of keys."""
        return 1 + len(self.written)

    def touched(self) -> Iterable[bytes]:
        return self.written

    def wrote_any(self, changes: WriteSet) -> bool:
        """Return whether a write, an increment or an operand of `changes` conflicts with one of this commit."""
        return not (self.written.isdisjoint(changes.writes) and self.written.isdisjoint(changes.increments))

    def touched_any(self, reads: ReadSet) -> bool:
        """Return whether this commit wrote something in `reads`: rows, index entries or gaps."""
        return _meets(self.written, reads)

    def changed_any(self, spaces: set[bytes]) -> bool:
        """Return whether this commit changed the schema of one of the tables."""
        return False


class _WideNode(CommitNode):
    """A commit that did more than write rows."""

    __slots__ = ("changed_spaces", "derived", "incremented", "operands")

    def __init__(self, changes: WriteSet) -> None:
        super().__init__(frozenset(changes.writes))
        steps = changes.increments
        self.incremented = frozenset(steps)
        self.operands = frozenset([key for key in steps if _are_operands(steps[key])]) if steps else self.incremented
        """The keys among `incremented` whose steps were operands."""
        self.derived = frozenset(changes.derived)
        self.changed_spaces = frozenset(changes.changed_spaces)

    @property
    def size(self) -> int:
        return 1 + len(self.written) + len(self.incremented) + len(self.derived)

    def touched(self) -> Iterable[bytes]:
        return self.written | self.incremented | self.derived

    def wrote_any(self, changes: WriteSet) -> bool:
        if super().wrote_any(changes):
            return True
        incremented, steps = self.incremented, changes.increments
        return bool(incremented) and (
            not incremented.isdisjoint(changes.writes) or not (incremented.isdisjoint(steps) or self._commutes(steps))
        )

    def _commutes(self, steps: Mapping[bytes, tuple[BlindStep, ...]]) -> bool:
        return all(_are_operands(steps[key]) == (key in self.operands) for key in self.incremented & steps.keys())

    def touched_any(self, reads: ReadSet) -> bool:
        return super().touched_any(reads) or _meets(self.incremented, reads) or _meets(self.derived, reads)

    def changed_any(self, spaces: set[bytes]) -> bool:
        return not self.changed_spaces.isdisjoint(spaces)


class BulkNode(CommitNode):
    """A bulk commit, with eight bytes a key. Keys of equal hash conflict needlessly, one in 10^19 pairs."""

    __slots__ = ("_hashes", "_high", "_low")

    def __init__(self) -> None:
        super().__init__()
        self._hashes = array("q")
        self._low: bytes | None = None
        self._high = b""

    @property
    def size(self) -> int:
        return 1 + len(self._hashes) // 8

    def note(self, keys: Iterable[bytes]) -> None:
        self._hashes.extend(map(hash, keys))
        low = min(keys, default=None)
        if low is not None:
            self._low = low if self._low is None else min(self._low, low)
            self._high = max(self._high, *keys)

    def seal(self) -> None:
        """Make the node ready for checks, once all keys are noted."""
        if len(self._hashes) < _SORT_IN_PLACE_FROM:
            self._hashes = array("q", sorted(self._hashes))
        else:
            import numpy as np  # sorts in place, where a list of all hashes would take five times the memory

            np.frombuffer(self._hashes, dtype=np.int64).sort()

    def wrote_any(self, changes: WriteSet) -> bool:
        return self._holds_any(changes.writes) or self._holds_any(changes.increments)

    def touched_any(self, reads: ReadSet) -> bool:
        if self._low is None:
            return False
        low, high = self._low, self._high
        return self._holds_any(reads.keys) or any(begin <= high and low < end for begin, end in reads.intervals)

    def _holds_any(self, keys: Iterable[bytes]) -> bool:
        hashes = self._hashes
        for key in keys:
            wanted = hash(key)
            index = bisect_left(hashes, wanted)
            if index < len(hashes) and hashes[index] == wanted:
                return True
        return False


class Summary:
    """The combined changes of the commits after `base`, up to and including `last`."""

    def __init__(self, base: CommitNode, last: CommitNode) -> None:
        # No node records whether its commit had a version.
        self._keys: set[bytes] = set() if base is last else {VERSION_KEY}
        self._bulks: list[BulkNode] = []
        node: CommitNode | None = base
        while node is not last and node is not None:
            node = node.next
            if isinstance(node, BulkNode):
                self._bulks.append(node)
            elif node is not None:
                self._keys.update(node.touched())

    def touched_any(self, reads: ReadSet) -> bool:
        return _meets(self._keys, reads) or any(bulk.touched_any(reads) for bulk in self._bulks)


def node_of(changes: WriteSet) -> CommitNode:
    """Return the node of a write set: its keys without the values."""
    if changes.increments or changes.derived or changes.changed_spaces:
        return _WideNode(changes)
    return CommitNode(frozenset(changes.writes))


def check_conflicts(first: CommitNode | None, changes: WriteSet) -> None:
    """Raise a conflict if a commit, or one after it, changed something that a write set depends on."""
    reads, spaces = changes.reads, changes.spaces
    node = first
    while node is not None:
        if node.wrote_any(changes):
            raise TransactionConflictError("another transaction wrote a row that this one writes")
        if reads is not None and node.touched_any(reads):
            raise TransactionConflictError("another transaction wrote a row that this one read")
        if node.changed_any(spaces):
            raise TransactionConflictError("a table's schema was changed since the transaction began")
        node = node.next


def _are_operands(steps: tuple[BlindStep, ...]) -> bool:
    return steps[0].__class__ is Operand


def _meets(keys: Set[bytes], reads: ReadSet) -> bool:
    if not reads.keys.isdisjoint(keys):
        return True
    intervals = reads.intervals
    return bool(keys) and any(begin <= key < end for begin, end in intervals for key in keys)
