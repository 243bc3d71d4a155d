"""`LateSnapshot`: a snapshot taken later than its transaction's first operation, which does not show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from structable.backends.leveldb.native.database import LocalSnapshot
from structable.backends.ordered.engine import Pair, ReadSet

from .commit_numbers import PlaceLostError
from .history import CommitNode, Summary

__all__ = ["LateSnapshot"]


class LateSnapshot(LocalSnapshot):
    """The state at an earlier place in the history, read from a later snapshot.

    Where nobody has changed what is read between the two, they are the same, and elsewhere a read is refused.

    Parameters
    ----------
    taken : LocalSnapshot
        The later snapshot, which it takes over.
    place : CommitNode
        The earlier place; conflicts count from it.
    last : CommitNode
        The last commit that can be seen in the later snapshot.

    Raises
    ------
    PlaceLostError
        By each read of what was changed in between.
    """

    __slots__ = ("_meanwhile",)

    def __init__(self, taken: LocalSnapshot, place: CommitNode, last: CommitNode) -> None:
        super().__init__(*taken.hand_over(), place, taken.epoch)
        self._meanwhile = Summary(place, last)

    def _require_unchanged(self, reads: ReadSet) -> None:
        if self._meanwhile.touched_any(reads):
            raise PlaceLostError(
                "another transaction has committed to what this one reads, after this one's first write"
            )

    def get(self, key: bytes) -> bytes | None:
        self._require_unchanged(ReadSet({key}))
        return super().get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._require_unchanged(ReadSet(set(keys)))
        return super().get_many(keys)

    def scan(self, begin: bytes, end: bytes, *, reverse: bool = False) -> Iterator[Pair]:
        self._require_unchanged(ReadSet(set(), [(begin, end)]))
        return super().scan(begin, end, reverse=reverse)
