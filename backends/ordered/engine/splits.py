"""`SplitSource`: a snapshot divided into splits, which any process reads, many rows at once as `RawRows`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from .ordered_map import EngineSnapshot, Pair
from .traits import EngineTraits

BATCH_ROWS = 8192
"""The rows of a batch. With fewer, calls into Arrow dominate; with more, rows no longer fit the processor's caches."""
BATCH_BYTES = 16 * 1024 * 1024
"""The approximate bytes of raw rows in a batch; large rows make smaller batches."""
_FIRST_ROWS = 64
_SAMPLED = 16


class RawRows(NamedTuple):
    """The keys and the values of rows, at least one, in key order."""

    keys: list[bytes]
    """Empty if the reader needs no keys."""
    values: list[bytes]


def rows_of_pairs(pairs: Iterator[Pair], rows: int = BATCH_ROWS) -> Iterator[RawRows]:
    """Yield pairs as at most `rows` rows at once, fewer where rows are large."""
    count = min(rows, _FIRST_ROWS)
    while True:
        found = RawRows([], [])
        # Flat, because the garbage collector spends more on retained tuples than decoding them costs.
        add_key, add_value = found.keys.append, found.values.append
        for key, value in islice(pairs, count):
            add_key(key)
            add_value(value)
        if not found.values:
            return
        count = _fitting(found.values, rows)
        yield found


def rows_of_values(values: Iterator[bytes]) -> Iterator[RawRows]:
    """Yield values as rows without keys, as `rows_of_pairs` does."""
    count = _FIRST_ROWS
    while found := list(islice(values, count)):
        count = _fitting(found, BATCH_ROWS)
        yield RawRows([], found)


def _fitting(values: list[bytes], rows: int) -> int:
    """Return how many rows to read after rows with these values."""
    sample = values[::_SAMPLED]
    return max(1, min(rows, BATCH_BYTES * len(sample) // (sum(map(len, sample)) + 1)))


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """A snapshot divided for reading from many processes.

    Parameters
    ----------
    states : list of bytes
        One per split, the argument of `SplitSource.read_split` in any process.
    release : callable
        Frees the snapshot; after it, `read_split` raises `TransactionClosedError`. Must not refer to the storage.
    epoch : int
        The engine's schema epoch in the snapshot.
    version : int or None
        The commit version of the snapshot, as from `EngineSnapshot.settled_version` for the given feed.
    """

    states: list[bytes]
    release: Callable[[], None]
    epoch: int
    version: int | None = None


class SharedSplits(ABC):
    """A snapshot that several plans divide, one after the other; its splits are read like all others.

    Attributes
    ----------
    snapshot : EngineSnapshot
        The snapshot. Its `epoch` means nothing.
    """

    snapshot: EngineSnapshot

    @abstractmethod
    def plan_splits(self, begin: bytes, end: bytes, count: int, *, feed: bytes | None = None) -> SplitPlan:
        """Divide the snapshot, as `SplitSource.plan_splits` does; `SplitPlan.release` leaves the snapshot."""

    @abstractmethod
    def release(self) -> None:
        """Free the snapshot, after which no split is read; called once, by any thread.

        Must not refer to the storage.
        """


class SplitSource(ABC):
    """Reads one snapshot of the map in many processes at once."""

    traits: EngineTraits

    def plan_splits(self, begin: bytes, end: bytes, count: int, *, feed: bytes | None = None) -> SplitPlan:
        """Take a snapshot of begin <= key < end and divide it into about `count` about equal parts, at least one.

        `feed` is the space of a change feed: given to an engine that `keeps_versions`, for `SplitPlan.version`. By
        default the only plan of a shared snapshot.

        Raises
        ------
        UnsupportedOperationError
            If other processes cannot read the store.
        """
        shared = self.share_snapshot()
        try:
            plan = shared.plan_splits(begin, end, count, feed=feed)
        except BaseException:
            shared.release()
            raise

        def release() -> None:
            plan.release()
            shared.release()

        return replace(plan, release=release)

    @abstractmethod
    def estimate(self, begin: bytes, end: bytes) -> tuple[int, int]:
        """Return the approximate number of pairs in begin <= key < end, and of their bytes.

        The cost must not grow with the pairs. Called only if there are at least some thousand.
        """

    @abstractmethod
    def read_split(self, state: bytes, intervals: Sequence[tuple[bytes, bytes]] | None = None) -> Iterator[Pair]:
        """Yield the pairs of a split, in key order; a generator, to be closed early.

        Parameters
        ----------
        state : bytes
            One of `SplitPlan.states`.
        intervals : sequence of tuple of bytes, optional
            The intervals of the pairs to yield; half-open, sorted and disjoint.

        Raises
        ------
        TransactionClosedError
            If the plan's snapshot no longer exists.
        """

    def read_rows(
        self, state: bytes, intervals: Sequence[tuple[bytes, bytes]] | None = None, *, keyed: bool
    ) -> Iterator[RawRows]:
        """Yield what `read_split` yields, many pairs at once; keys may be left out unless `keyed`."""
        return rows_of_pairs(self.read_split(state, intervals))

    @abstractmethod
    def share_snapshot(self) -> SharedSplits:
        """Take a snapshot that several plans divide."""

    def read_planned(self, state: bytes, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of any keys, in their order, in the snapshot of a split; if `plans_hold_everything`.

        Raises
        ------
        TransactionClosedError
            If the plan's snapshot no longer exists.
        """
        raise NotImplementedError(f"{type(self).__name__} reads only the intervals of its splits")
