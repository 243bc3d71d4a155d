"""The distributions of keys, as YCSB defines them, many draws at a time."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.int64]

THETA = 0.99
"""YCSB's `ZIPFIAN_CONSTANT`."""

SCRAMBLED_ITEMS = 10_000_000_000
SCRAMBLED_ZETA = 26.46902820178302
"""The items of which YCSB draws scrambled ranks, whatever the number of records; it has their zeta as a constant."""

_FNV_OFFSET = np.uint64(0xCBF29CE484222325)
_FNV_PRIME = np.uint64(1099511628211)


def zeta(items: int, theta: float = THETA) -> float:
    """Return the sum of `1 / rank ** theta` of all ranks from 1."""
    return float(np.sum(1.0 / np.arange(1, items + 1, dtype=np.float64) ** theta))


class Zipfian:
    """Ranks from 0; rank r is drawn in proportion to `1 / (r + 1) ** theta`.

    The method is that of "Quickly Generating Billion-Record Synthetic Databases", Gray and others, 1994, which YCSB
    uses: exact for the first two ranks, close for all others.

    Parameters
    ----------
    items : int
        The number of ranks, at least 2.
    theta : float
        The skew, below 1.
    total : float, optional
        `zeta(items, theta)`, if it is known.
    """

    def __init__(self, items: int, theta: float = THETA, total: float | None = None) -> None:
        self._items = items
        self._total = zeta(items, theta) if total is None else total
        self._second = 1.0 + 0.5**theta
        self._alpha = 1.0 / (1.0 - theta)
        self._eta = (1.0 - (2.0 / items) ** (1.0 - theta)) / (1.0 - self._second / self._total)

    def draw(self, chosen: Generator, count: int) -> Numbers:
        """Return random ranks."""
        uniform = chosen.random(count)
        ranks: Numbers = (self._items * (self._eta * uniform - self._eta + 1.0) ** self._alpha).astype(np.int64)
        ranks[uniform * self._total < self._second] = 1
        ranks[uniform * self._total < 1.0] = 0
        ranks[ranks >= self._items] = self._items - 1
        return ranks


class ScrambledZipfian:
    """Numbers below `items`, a few of them frequent, which the FNV hash scatters over all.

    Parameters
    ----------
    items : int
        The number of records.
    """

    def __init__(self, items: int) -> None:
        self._items = items
        self._ranks = Zipfian(SCRAMBLED_ITEMS, total=SCRAMBLED_ZETA)

    def draw(self, chosen: Generator, count: int) -> Numbers:
        """Return random numbers of records."""
        return scatter(self._ranks.draw(chosen, count)) % self._items


def scatter(numbers: Numbers) -> Numbers:
    """Return YCSB's `fnvhash64` of each number: FNV-1a of its eight bytes, the lowest first, without its sign."""
    rest = numbers.astype(np.uint64)
    hashed = np.full(rest.shape, _FNV_OFFSET)
    for _ in range(8):
        hashed = (hashed ^ (rest & np.uint64(0xFF))) * _FNV_PRIME
        rest = rest >> np.uint64(8)
    signed: Numbers = np.abs(hashed.astype(np.int64))
    return signed


def keys_of(numbers: Numbers) -> list[str]:
    """Return the keys of records."""
    return [f"user{number}" for number in scatter(numbers).tolist()]
