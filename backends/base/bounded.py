"""Bounds on a process's memory: for cached results that depend on users' calls, and for rows read together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")
One = TypeVar("One")

_MOST_BYTES = 16 << 20
_GROWTH = 4


class Bounded(dict[Key, Value]):
    """A dict that is emptied before it would hold more than `most` entries; safe to share between threads."""

    __slots__ = ("_most",)

    def __init__(self, most: int = 256) -> None:
        super().__init__()
        self._most = most

    def made(self, key: Key, make: Callable[[], Value]) -> Value:
        """Return the entry of a key; make it if it is missing."""
        found = self.get(key)
        if found is None:
            found = self[key] = make()
        return found

    def __setitem__(self, key: Key, value: Value) -> None:
        if len(self) >= self._most:
            self.clear()
        super().__setitem__(key, value)


def taken(rows: Iterator[One], most: int, size_of: Callable[[One], int]) -> list[One]:
    """Take the next rows, at most `most` and about 16 MiB."""
    part: list[One] = []
    size = 0
    for row in rows:
        part.append(row)
        size += size_of(row)
        if len(part) >= most or size >= _MOST_BYTES:
            break
    return part


def next_rows(values: Collection[bytes | None], most: int) -> int:
    """Return how many rows to read after rows with these values: `most`, or as many as should have 16 MiB.

    The number is at most a small multiple of the rows read, since the next rows may be larger.
    """
    read, size = len(values), sum(len(value) for value in values if value is not None)
    return max(1, min(most, _GROWTH * read, read * _MOST_BYTES // max(size, 1)))
