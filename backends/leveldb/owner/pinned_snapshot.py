"""`PinnedSnapshot`: a snapshot pinned to an earlier commit than the one it was taken at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from structable.backends.ordered.engine import Pair, ReadSet

from .commit_nodes import CommitNode, Summary
from .commit_numbers import SnapshotLostError
from .snapshot import LocalSnapshot

__all__ = ["PinnedSnapshot"]


class PinnedSnapshot(LocalSnapshot):
    """The state at the earlier commit `base`, read from the later snapshot `taken`, whose last commit is `last`.

    Keys that no commit between the two has changed are the same in both; a read of any other key is a
    `SnapshotLostError`. Conflicts count from `base`.
    """

    __slots__ = ("_since",)

    def __init__(self, taken: LocalSnapshot, base: CommitNode, last: CommitNode) -> None:
        raw, gate, gaps = taken.hand_over()
        super().__init__(raw, gate, base, taken.epoch, gaps)
        self._since = Summary(base, last)

    def _require_unchanged(self, reads: ReadSet) -> None:
        if self._since.touched_any(reads):
            raise SnapshotLostError(
                "another transaction has committed a change of what this one reads, after this one's first write"
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
