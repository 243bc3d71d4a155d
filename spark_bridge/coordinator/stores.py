"""The stores that the coordinator has open: connections that close after a time without use."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from structable.spark_bridge.base.store_client import StoreClient
from structable.spi import Storage


@dataclass(slots=True, eq=False)
class _OpenStore:
    lock: threading.Lock = field(default_factory=threading.Lock)
    storage: Storage | None = None
    users: int = 0
    idle_since: float = 0.0


class OpenStores:
    """Connections by store and number, made when first used; safe to share between threads.

    A connection holds a limited number of plans, so a store may need several; they are numbered from 0.
    """

    def __init__(self, idle_seconds: float) -> None:
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self.entries: dict[tuple[StoreClient, int], _OpenStore] = {}

    @contextmanager
    def using(self, store: StoreClient, connection: int = 0) -> Iterator[Storage]:
        entry = self._enter(store, connection)
        try:
            with entry.lock:
                if entry.storage is None or entry.storage.closed:
                    entry.storage = store.connect()
                storage = entry.storage
            yield storage
        finally:
            self.release(store, connection)

    def retain(self, store: StoreClient, connection: int = 0) -> None:
        """Keep a connection open until `release` has been called equally often."""
        self._enter(store, connection)

    def release(self, store: StoreClient, connection: int = 0) -> None:
        """Undo one `retain`."""
        with self._lock:
            entry = self.entries[store, connection]
            entry.users -= 1
            entry.idle_since = time.monotonic()

    def close_idle(self) -> None:
        """Close the connections without users for `idle_seconds`."""
        deadline = time.monotonic() - self._idle_seconds
        with self._lock:
            idle = [entry for entry in self.entries.values() if entry.users == 0 and entry.idle_since <= deadline]
        for entry in idle:
            with entry.lock:
                # The next user waits for this lock and then connects again.
                if entry.users == 0 and entry.storage is not None:
                    entry.storage.close()
                    entry.storage = None

    def close(self) -> None:
        with self._lock:
            entries = list(self.entries.values())
        for entry in entries:
            with entry.lock:
                if entry.storage is not None:
                    entry.storage.close()
                    entry.storage = None

    def _enter(self, store: StoreClient, connection: int) -> _OpenStore:
        with self._lock:
            entry = self.entries.setdefault((store, connection), _OpenStore())
            entry.users += 1
            return entry
