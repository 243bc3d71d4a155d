"""`RawRows`: many rows of a split at once, as lists, which cost less than pairs one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from .ordered_map import Pair

__all__ = ["BATCH_BYTES", "BATCH_ROWS", "RawRows", "rows_of_pairs", "rows_of_values"]

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
