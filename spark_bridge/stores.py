"""The stores that the keeper has open: one connection each, closed when nobody has used it for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from structable.spi import Storage

from .options import StoreAddress

__all__ = ["OpenStores"]


@dataclass(slots=True, eq=False)
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    storage: Storage | None = None
    users: int = 0
    idle_since: float = 0.0


class OpenStores:
    """Connections by address and lane, made when first used; safe to share between threads.

    A connection can hold so many plans only; more lanes are more connections to the same store.

    Parameters
    ----------
    idle_seconds : float
        How long a connection without users stays open.
    """

    def __init__(self, idle_seconds: float) -> None:
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._entries: dict[tuple[StoreAddress, int], _Entry] = {}

    @contextmanager
    def using(self, address: StoreAddress, lane: int = 0) -> Iterator[Storage]:
        """Give the store, connected, for the time of a `with` block."""
        entry = self._enter(address, lane)
        try:
            with entry.lock:
                if entry.storage is None or entry.storage.closed:
                    entry.storage = address.connect()
                storage = entry.storage
            yield storage
        finally:
            self.release(address, lane)

    def retain(self, address: StoreAddress, lane: int = 0) -> None:
        """Keep the store open, until `release` is called as often."""
        self._enter(address, lane)

    def release(self, address: StoreAddress, lane: int = 0) -> None:
        """Take back one `retain`."""
        with self._lock:
            entry = self._entries[address, lane]
            entry.users -= 1
            entry.idle_since = time.monotonic()

    def close_idle(self) -> None:
        """Close the connections that nobody has used for `idle_seconds`."""
        deadline = time.monotonic() - self._idle_seconds
        with self._lock:
            idle = [entry for entry in self._entries.values() if entry.users == 0 and entry.idle_since <= deadline]
        for entry in idle:
            with entry.lock:
                # Its next user waits for this lock before it connects anew.
                if entry.users == 0 and entry.storage is not None:
                    entry.storage.close()
                    entry.storage = None

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            entries = list(self._entries.values())
        for entry in entries:
            with entry.lock:
                if entry.storage is not None:
                    entry.storage.close()
                    entry.storage = None

    def _enter(self, address: StoreAddress, lane: int) -> _Entry:
        with self._lock:
            entry = self._entries.setdefault((address, lane), _Entry())
            entry.users += 1
            return entry
