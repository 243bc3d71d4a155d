"""Engines in memory: one whose processes end between the chunks of a write job, and one that tells nothing of that."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

from structable.backends.memory.engine import MemoryEngine
from structable.backends.memory.versions import VersionedMap
from structable.backends.ordered import BulkApplication, BulkCommit, OrderedStorage, WriteSet
from structable.backends.ordered.engine import entry_pairs

_RESERVED = b"\0\0\0\0\xf0"


class Crash(BaseException):
    """The end of a process."""


class UnorderedEngine(MemoryEngine):
    """Promises nothing about which chunks survive a crash."""

    traits = replace(MemoryEngine.traits, bulk_application=BulkApplication.UNORDERED)


class CrashingEngine(MemoryEngine):
    """Applies bulk commits in order, after a decision that reserves their version, and crashes after some writes."""

    traits = replace(MemoryEngine.traits, bulk_application=BulkApplication.IN_ORDER)

    def __init__(self, stored: VersionedMap, writes: int = -1) -> None:
        super().__init__(stored)
        self._map = stored
        self._writes = writes

    def commit_bulk(self, bulk: BulkCommit) -> None:
        with closing(self.begin(True)) as latest:
            bulk.check(latest)
            if bulk.decision:
                reserved = (self._map.number + 1).to_bytes(8) + (time.time_ns() // 1_000).to_bytes(8)
                self._write({**bulk.decision, _RESERVED: reserved})
            reserved = self.get(_RESERVED) or b""
            version, now = int.from_bytes(reserved[:8]), int.from_bytes(reserved[8:])
            for chunk in bulk.chunks(latest):
                assert bulk.feed or not chunk.appends
                appended = dict(entry_pairs(bulk.feed or b"", version, now, chunk.appends, chunk.first))
                assert all(self.get(key) is None for key in appended), "an entry is written twice"
                self._write({**chunk.changes, **appended})
            self._write(bulk.completion)

    def _write(self, changes: Mapping[bytes, bytes | None]) -> None:
        if not self._writes:
            raise Crash
        self._writes -= 1
        self.commit(None, WriteSet(derived=dict(changes)))


def recovered(stored: VersionedMap, writes: tuple[int, ...] = (1, 2, -1)) -> OrderedStorage:
    """Return a storage after a recovery that ends; those before it crash, each after so many writes."""
    for more in writes:
        storage = OrderedStorage(CrashingEngine(stored, more), "memory://")
        try:
            storage.engine.upcalls.procedures["recover"](b"")
        except Crash:
            continue
        return OrderedStorage(CrashingEngine(stored), "memory://")
    raise AssertionError("no recovery ended by itself")
