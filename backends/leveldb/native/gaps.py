"""`Gaps`: intervals of keys without rows, so that a scan need not step over the rows that were deleted there.

LevelDB keeps a tombstone for each deleted row until a compaction drops it, and a scan steps over all of them: finding
the head of a queue costs more with each row taken from the queue. (Compacting the interval does not help. LevelDB first
moves the tombstones down a level, where stepping over them takes ten times as long, and drops them much later.)

A scan that took long to find its first row is recorded, and the next commit looks for that row again. The interval
before the row is then a gap, until a row is put into it. A gap is valid in the state in which it was found and in later
states, so a snapshot uses the gaps that were known when it was taken.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping

_MOST = 1_000


class Gaps:
    """Disjoint intervals of keys, sorted; immutable."""

    __slots__ = ("_begins", "_ends")

    def __init__(self, begins: tuple[bytes, ...] = (), ends: tuple[bytes, ...] = ()) -> None:
        self._begins = begins
        self._ends = ends

    def __len__(self) -> int:
        return len(self._begins)

    def holds(self, key: bytes) -> bool:
        """Return whether a key lies in a gap."""
        position = bisect_right(self._begins, key) - 1
        return position >= 0 and key < self._ends[position]

    def skip(self, key: bytes) -> bytes:
        """Return the end of the gap that a key lies in, or the key itself."""
        position = bisect_right(self._begins, key) - 1
        return max(key, self._ends[position]) if position >= 0 else key

    def adding(self, begin: bytes, end: bytes) -> Gaps:
        """Return the gaps with another one, which may touch or overlap them; of too many, only the new one is kept."""
        if len(self._begins) >= _MOST:
            return Gaps((begin,), (end,))
        first, last = bisect_left(self._ends, begin), bisect_right(self._begins, end)
        if first < last:
            begin, end = min(begin, self._begins[first]), max(end, self._ends[last - 1])
        return Gaps(
            (*self._begins[:first], begin, *self._begins[last:]), (*self._ends[:first], end, *self._ends[last:])
        )

    def without(self, parts: Iterable[Mapping[bytes, bytes | None]]) -> Gaps:
        """Return the gaps that remain after a write, each cut short before the first row that is put into it."""
        begins, ends = self._begins, self._ends
        cut: dict[int, bytes] = {}
        for part in parts:
            for key, value in part.items():
                position = bisect_right(begins, key) - 1
                if position >= 0 and value is not None and key < cut.get(position, ends[position]):
                    cut[position] = key
        if not cut:
            return self
        kept = [(begin, cut.get(n, ends[n])) for n, begin in enumerate(begins) if cut.get(n) != begin]
        return Gaps(tuple([gap[0] for gap in kept]), tuple([gap[1] for gap in kept]))
