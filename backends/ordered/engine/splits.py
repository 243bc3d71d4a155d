"""`SplitSource`: a snapshot divided into splits, which any process reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from .ordered_map import EngineSnapshot, Pair
from .raw_rows import RawRows, rows_of_pairs
from .traits import EngineTraits

__all__ = ["SharedSplits", "SplitPlan", "SplitSource"]


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
