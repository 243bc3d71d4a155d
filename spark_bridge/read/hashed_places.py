"""A hash table of numbers, which looks up a whole array at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Hashes: TypeAlias = npt.NDArray[np.uint64]
    Places: TypeAlias = npt.NDArray[np.int64]

_LEAST_BITS = 10


class HashedPlaces:
    """Positions by hashes, with open addressing; of several positions with one hash, the last one counts."""

    def __init__(self) -> None:
        self._count = 0
        self._make(_LEAST_BITS)

    def of(self, hashes: Hashes) -> Places:
        """Return the position of each hash; -1 for those that have none."""
        places = np.full(len(hashes), -1)
        rows, slots = np.arange(len(hashes)), self._first_slots(hashes)
        while len(rows):
            there = self._places[slots]
            same = self._hashes[slots] == hashes[rows]
            places[rows[same]] = there[same]
            rows, slots = self._next(rows, slots, ~same & (there >= 0))
        return places

    def add(self, hashes: Hashes, places: Places) -> None:
        """Give hashes positions."""
        self._count += len(hashes)  # at most: some may be there
        if 2 * self._count > len(self._places):
            used = self._places >= 0
            before = self._hashes[used], self._places[used]
            self._make((4 * self._count).bit_length())
            self._insert(*before)
        self._insert(hashes, places)

    def _make(self, bits: int) -> None:
        self._shift = np.uint64(64 - bits)
        self._hashes = np.zeros(1 << bits, np.uint64)
        self._places = np.full(1 << bits, -1)

    def _insert(self, hashes: Hashes, places: Places) -> None:
        rows, slots = np.arange(len(hashes)), self._first_slots(hashes)
        while len(rows):
            wanted = hashes[rows]
            free = (self._places[slots] < 0) | (self._hashes[slots] == wanted)
            taken = slots[free]  # repeats where hashes share a slot: the last one gets it
            self._hashes[taken], self._places[taken] = wanted[free], places[rows[free]]
            rows, slots = self._next(rows, slots, self._hashes[slots] != wanted)

    def _first_slots(self, hashes: Hashes) -> Places:
        return (hashes >> self._shift).view(np.int64)  # a product's highest bits depend on all of its factors

    def _next(self, rows: Places, slots: Places, which: npt.NDArray[np.bool_]) -> tuple[Places, Places]:
        return rows[which], (slots[which] + 1) & (len(self._places) - 1)
