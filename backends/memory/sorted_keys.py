"""`SortedKeys`: distinct keys in order, in blocks, so that a new key moves only the keys of its block."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import itemgetter

_BLOCK = 512
_PAGE = 256
_first = itemgetter(0)


class SortedKeys:
    """Sorted distinct keys. Every change is one step: an interruption leaves the keys before or after it."""

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        ordered = sorted(keys)
        # Only the first block may be empty. Its own first key bounds nothing.
        self._blocks = [ordered[start : start + _BLOCK] for start in range(0, len(ordered), _BLOCK)] or [[]]

    def _block_of(self, key: bytes) -> int:
        return bisect_right(self._blocks, key, 1, key=_first) - 1

    def put(self, key: bytes) -> None:
        """Add a key; a repeated call does nothing."""
        number = self._block_of(key)
        block = self._blocks[number]
        place = bisect_left(block, key)
        if block[place : place + 1] == [key]:
            return
        block.insert(place, key)
        if len(block) > 2 * _BLOCK:
            # A key past the end most likely has successors, so a full block stays full.
            middle = _BLOCK if number < len(self._blocks) - 1 else len(block) - 1
            self._blocks[number : number + 1] = [block[:middle], block[middle:]]

    def remove(self, key: bytes) -> None:
        """Remove a key, if it is there."""
        number = self._block_of(key)
        block = self._blocks[number]
        place = bisect_left(block, key)
        if block[place : place + 1] != [key]:
            return
        if len(block) == 1 and number > 0:
            del self._blocks[number]
        else:
            del block[place]

    def count(self, begin: bytes, end: bytes) -> int:
        """Return the number of keys of begin <= key < end."""
        return max(0, self._rank(end) - self._rank(begin))

    def _rank(self, key: bytes) -> int:
        number = self._block_of(key)
        return sum(map(len, self._blocks[:number])) + bisect_left(self._blocks[number], key)

    def first(self, begin: bytes, end: bytes) -> list[bytes]:
        """Return some first keys of begin <= key < end, at least one if there are any."""
        number = self._block_of(begin)
        block = self._blocks[number]
        place = bisect_left(block, begin)
        if place == len(block) and number + 1 < len(self._blocks):
            block, place = self._blocks[number + 1], 0
        page = block[place : place + _PAGE]
        return page if page and page[-1] < end else page[: bisect_left(page, end)]

    def last(self, begin: bytes, end: bytes) -> list[bytes]:
        """Return some last keys of begin <= key < end, in ascending order, at least one if there are any."""
        number = self._block_of(end)
        block = self._blocks[number]
        place = bisect_left(block, end)
        if place == 0 and number > 0:
            block = self._blocks[number - 1]
            place = len(block)
        page = block[max(0, place - _PAGE) : place]
        return page[bisect_left(page, begin) :]
