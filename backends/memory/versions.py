"""`VersionedMap`: an ordered map of bytes that keeps every version its open snapshots can still see."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol
from weakref import ref

from structable.spi.authors import LocalSignals

from .sorted_keys import SortedKeys


@dataclass(frozen=True, slots=True)
class Version:
    """The version of a key that one commit wrote; `value` is None if the commit deleted the key."""

    number: int
    value: bytes | None
    step: type | None = None
    """The step from the version before, `Increment` or `Operand`; None if the value was written."""


class MapSnapshot(Protocol):
    """A snapshot of a map."""

    number: int
    epoch: int


class VersionedMap:
    """Keys with their versions, oldest first. Callers hold `lock` around changes; reads take it where necessary.

    An exception from a signal handler may interrupt any call of the main thread. Related fields are therefore changed
    without a call in between, and a commit becomes visible when `number` reaches its number: the next commit removes
    the remains of an interrupted one.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.number = 0
        """The number of the newest commit."""
        self.epoch = 0
        self.schema_changes: dict[bytes, int] = {}
        """Space to the number of the commit that last changed its schema."""
        self.runs: dict[bytes, tuple[str, float, list[tuple[bytes, bytes]]]] = {}
        """Staged runs of write jobs, by reference: owner, time, pairs."""
        self.signals = LocalSignals()
        self._time = 0
        self._versions: dict[bytes, list[Version]] = {}
        self._sorted = SortedKeys()
        self._unsorted: set[bytes] = set()
        """Keys that were added to `_versions` or removed from it since the last scan."""
        self._deletions: deque[tuple[int, bytes]] = deque()
        """The last deletions of keys, in commit order."""
        self._open: dict[ref[MapSnapshot], int] = {}
        """Numbers by open snapshot. Weak references remove themselves, without a call that could be interrupted."""
        self._unfinished: tuple[Iterable[bytes], ...] = ()

    def open_snapshot(self, snapshot: MapSnapshot) -> None:
        """Keep the newest state readable until the snapshot is closed or collected."""
        with self.lock:
            reference = ref(snapshot, self._open.pop)
            snapshot.number, snapshot.epoch = self.number, self.epoch
            self._open[reference] = self.number

    def close_snapshot(self, snapshot: MapSnapshot) -> None:
        self._open.pop(ref(snapshot), None)

    def get(self, key: bytes, number: int) -> bytes | None:
        """Return a key's value in the state after a commit."""
        for version in reversed(self._versions.get(key, ())):
            if version.number <= number:
                return version.value
        return None

    def newest(self, key: bytes) -> bytes | None:
        # In this order: a number read first could be older than every version left.
        versions = self._versions.get(key, ())
        number = self.number
        for version in reversed(versions):
            if version.number <= number:
                return version.value
        return None

    def changed_since(self, key: bytes, number: int, *, but: type | None = None) -> bool:
        """Return whether a later commit changed a key; changes by a step of type `but` do not count."""
        return any(
            version.number > number and (but is None or version.step is not but)
            for version in self._versions.get(key, ())
        )

    def next_time(self) -> int:
        """Return the time of the next commit, in microseconds since 1970, never before the time of an earlier one."""
        self._time = max(time.time_ns() // 1_000, self._time)
        return self._time

    def commit(
        self,
        parts: tuple[Mapping[bytes, bytes | None], ...],
        merged: Mapping[type, Mapping[bytes, bytes]],
        spaces: set[bytes],
    ) -> None:
        """Make changes visible together, and drop the versions that no open snapshot sees; the lock is held.

        `parts` are new values of keys, where None deletes; `merged` are the values that steps made, by the type of the
        steps; `spaces` are the spaces whose schema the commit changes.
        """
        number = self.number + 1
        self._unfinished = (*parts, *merged.values())
        self._forget(self._oldest())
        for values in parts:
            self._add(values, number, None)
        for step, made in merged.items():
            self._add(made, number, step)
        self.schema_changes.update(dict.fromkeys(spaces, number))
        epoch = self.epoch + bool(spaces)
        self.epoch, self.number, self._unfinished = epoch, number, ()

    def _add(
        self, values: Mapping[bytes, bytes | None] | Mapping[bytes, bytes], number: int, step: type | None
    ) -> None:
        oldest = self._oldest()
        for key, value in values.items():
            version = Version(number, value, step)
            if value is None:
                self._deletions.append((number, key))
            versions = self._versions.get(key)
            if versions is None:
                self._unsorted.add(key)
                self._versions[key] = [version]
                continue
            seen = [old for old, newer in zip(versions, [*versions[1:], version], strict=True) if newer.number > oldest]
            # A new list: readers without the lock see the old one or the new one.
            self._versions[key] = [*seen, version]

    def _oldest(self) -> int:
        return min(list(self._open.values()), default=self.number)

    def discard_unfinished(self) -> None:
        """Remove the remains of an interrupted commit; every commit does this first. The lock is held."""
        if not self._unfinished:
            return
        for values in self._unfinished:
            for key in values:
                versions = self._versions.get(key, ())
                kept = [version for version in versions if version.number <= self.number]
                if kept:
                    self._versions[key] = kept
                elif versions:
                    self._remove(key)
        while self._deletions and self._deletions[-1][0] > self.number:
            self._deletions.pop()
        for space, number in list(self.schema_changes.items()):
            self.schema_changes[space] = min(number, self.number)
        self._unfinished = ()

    def _remove(self, key: bytes) -> None:
        self._unsorted.add(key)
        del self._versions[key]

    def _forget(self, oldest: int) -> None:
        """Drop the keys that were deleted before every open snapshot and not put again."""
        while self._deletions and self._deletions[0][0] <= oldest:
            number, key = self._deletions[0]
            versions = self._versions.get(key)
            if versions is not None and versions[-1].number == number:
                self._remove(key)
            self._deletions.popleft()

    def count_keys(self, begin: bytes, end: bytes) -> int:
        """Return the number of keys of begin <= key < end that have any version."""
        with self.lock:
            if self._unsorted:
                self._sort()
            return self._sorted.count(begin, end)

    def keys(self, begin: bytes, end: bytes, *, reverse: bool = False) -> Iterator[bytes]:
        """Yield the keys of begin <= key < end that have any version, page by page."""
        while begin < end:
            with self.lock:
                if self._unsorted:
                    self._sort()
                page = self._sorted.last(begin, end) if reverse else self._sorted.first(begin, end)
            if not page:
                return
            yield from reversed(page) if reverse else page
            if reverse:
                end = page[0]
            else:
                begin = page[-1] + b"\0"

    def _sort(self) -> None:
        """Bring `_sorted` up to date; after an interruption the same changes are made again."""
        changed = tuple(self._unsorted)
        if _FEW * len(changed) > len(self._versions):
            self._sorted = SortedKeys(self._versions)
        else:
            for key in changed:
                if key in self._versions:
                    self._sorted.put(key)
                else:
                    self._sorted.remove(key)
        self._unsorted.difference_update(changed)


_FEW = 4
"""If more than one key in this many has changed, sorting all keys is faster than placing the changed ones."""
