"""`VersionedMap`: an ordered map of bytes that remembers what its open snapshots can still see."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = ["Version", "VersionedMap"]

_PAGE = 256


@dataclass(frozen=True, slots=True)
class Version:
    """What a key became by one commit.

    Parameters
    ----------
    number : int
        The commit's number.
    value : bytes or None
        None is deleted.
    increment : bool
        Whether the commit only incremented it.
    """

    number: int
    value: bytes | None
    increment: bool = False


class VersionedMap:
    """Keys with their versions, oldest first. Callers hold `lock` around changes; reads take it where they must."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.number = 0
        """The number of the newest commit."""
        self.epoch = 0
        self.schema_changes: dict[bytes, int] = {}
        """Spaces to the number of the commit that last changed their schema."""
        self.runs: dict[int, tuple[str, float, list[tuple[bytes, bytes]]]] = {}
        """Staged runs of write jobs by token: job id, time, pairs."""
        self._versions: dict[bytes, list[Version]] = {}
        self._sorted: list[bytes] = []
        self._unsorted: set[bytes] = set()
        # Deletions in the order of their commits, and keys that are still in `_sorted` though they have no version.
        self._deletions: deque[tuple[int, bytes]] = deque()
        self._forgotten: set[bytes] = set()
        self._open: Counter[int] = Counter()

    def open_snapshot(self) -> tuple[int, int]:
        """Keep the newest state readable, and return its number and schema epoch."""
        with self.lock:
            self._open[self.number] += 1
            return self.number, self.epoch

    def close_snapshot(self, number: int) -> None:
        """Give a state up."""
        with self.lock:
            self._open[number] -= 1
            if not self._open[number]:
                del self._open[number]

    def get(self, key: bytes, number: int) -> bytes | None:
        """Return a key's value in the state after a commit."""
        for version in reversed(self._versions.get(key, ())):
            if version.number <= number:
                return version.value
        return None

    def newest(self, key: bytes) -> bytes | None:
        """Return a key's value in the newest state."""
        # In this order: of an older state than that of the versions there may be nothing left.
        versions = self._versions.get(key, ())
        number = self.number
        for version in reversed(versions):
            if version.number <= number:
                return version.value
        return None

    def changed_since(self, key: bytes, number: int, *, but_increments: bool = False) -> bool:
        """Tell whether a later commit changed a key; `but_increments` passes over those that only incremented it."""
        return any(
            version.number > number and not (but_increments and version.increment)
            for version in self._versions.get(key, ())
        )

    def apply(self, changes: Iterable[tuple[bytes, Version]]) -> None:
        """Add versions, and drop those that no open snapshot sees; the lock is held."""
        oldest = min(self._open, default=self.number)
        self._forget(oldest)
        for key, version in changes:
            if version.value is None:
                self._deletions.append((version.number, key))
            versions = self._versions.get(key)
            if versions is None:
                self._versions[key] = [version]
                if key in self._forgotten:
                    self._forgotten.remove(key)
                else:
                    self._unsorted.add(key)
                continue
            seen = [old for old, newer in zip(versions, [*versions[1:], version], strict=True) if newer.number > oldest]
            # A new list: readers without the lock see the old one or the new one.
            self._versions[key] = [*seen, version]

    def _forget(self, oldest: int) -> None:
        """Drop the keys that were deleted before all open snapshots, and not put again."""
        while self._deletions and self._deletions[0][0] <= oldest:
            number, key = self._deletions.popleft()
            versions = self._versions.get(key)
            if versions is not None and versions[-1].number == number:
                del self._versions[key]
                if key in self._unsorted:
                    self._unsorted.remove(key)
                else:
                    self._forgotten.add(key)

    def keys(self, begin: bytes, end: bytes, *, reverse: bool = False) -> Iterator[bytes]:
        """Yield the keys of begin <= key < end that have any version, page by page."""
        while begin < end:
            with self.lock:
                self._sort()
                low, high = bisect_left(self._sorted, begin), bisect_left(self._sorted, end)
                page = self._sorted[max(low, high - _PAGE) : high] if reverse else self._sorted[low : low + _PAGE]
                page = page if reverse else page[: high - low]
            if not page:
                return
            yield from reversed(page) if reverse else page
            if reverse:
                end = page[0]
            else:
                begin = page[-1] + b"\0"

    def _sort(self) -> None:
        if 2 * len(self._forgotten) > len(self._sorted):
            self._sorted = [key for key in self._sorted if key not in self._forgotten]
            self._forgotten.clear()
        if self._unsorted:
            self._sorted.extend(self._unsorted)
            self._sorted.sort()
            self._unsorted.clear()
