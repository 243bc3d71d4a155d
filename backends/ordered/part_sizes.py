"""How many rows to hold at once, so that they fit into memory, however large they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

__all__ = ["next_rows", "taken"]

One = TypeVar("One")

_MOST_BYTES = 16 << 20
_GROWTH = 4


def taken(rows: Iterator[One], most: int, size_of: Callable[[One], int]) -> list[One]:
    """Take the next rows, `most` or as many as have 16 MiB."""
    part: list[One] = []
    size = 0
    for row in rows:
        part.append(row)
        size += size_of(row)
        if len(part) >= most or size >= _MOST_BYTES:
            break
    return part


def next_rows(read: int, size: int, most: int) -> int:
    """Return how many rows to read next, after some with so many bytes: `most`, or as many as should have 16 MiB.

    It is no large multiple of what was read, since the next may be larger.
    """
    return max(1, min(most, _GROWTH * read, read * _MOST_BYTES // max(size, 1)))
