"""The snapshots that the scans of one query share: one for each store that it reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, field

from structable.spark_bridge.base.store_client import StoreClient
from structable.spi import SharedSnapshot, Storage, UnsupportedOperationError

from .held_plans import YOUNG_SECONDS, Executions
from .stores import OpenStores


@dataclass(frozen=True, slots=True, eq=False)
class _Shared:
    snapshot: SharedSnapshot
    connection: int
    since: float = field(default_factory=time.monotonic)


class QuerySnapshots:
    """Shared snapshots by execution and store, each kept until its execution has ended; safe to share between threads.

    Plans of a snapshot are held as any others, and free it with the last of them.
    """

    def __init__(self, stores: OpenStores) -> None:
        self._stores = stores
        self._lock = threading.Lock()
        self._shared: dict[tuple[int, StoreClient], _Shared] = {}

    def connection_of(self, execution: int | None, store: StoreClient, otherwise: int) -> int:
        """Return the number of the connection over which an execution reads a store, if it does already."""
        with self._lock:
            found = None if execution is None else self._shared.get((execution, store))
        return otherwise if found is None else found.connection

    def of(
        self, execution: int | None, store: StoreClient, storage: Storage, connection: int
    ) -> tuple[SharedSnapshot | Storage, int]:
        """Return the snapshot of an execution and the number of its connection.

        Without an execution, or if the store shares no snapshots, it is the storage itself, over the given connection.
        """
        if execution is None:
            return storage, connection
        with self._lock:
            found = self._shared.get((execution, store))
            if found is None:
                try:
                    found = _Shared(storage.share_snapshot(), connection)
                except UnsupportedOperationError:
                    return storage, connection
                self._stores.retain(store, connection)
                self._shared[execution, store] = found
        return found.snapshot, found.connection

    def expire(self, executions: Executions, planned: Collection[int | None]) -> None:
        """Close the snapshots of executions that have ended; their plans stay.

        If Spark cannot say what runs, snapshots without a plan end, too, after at least a minute: `planned` are the
        executions that have plans.
        """
        young = time.monotonic() - YOUNG_SECONDS
        with self._lock:
            unplanned = {key for key, one in self._shared.items() if key[0] not in planned and one.since < young}
            keys = list(self._shared)
        for key in keys:
            if key in unplanned or not executions.runs(key[0]):
                self._close(key)

    def __len__(self) -> int:
        with self._lock:
            return len(self._shared)

    def close(self) -> None:
        with self._lock:
            keys = list(self._shared)
        for key in keys:
            self._close(key)

    def _close(self, key: tuple[int, StoreClient]) -> None:
        with self._lock:
            found = self._shared.pop(key, None)
        if found is not None:
            try:
                found.snapshot.close()
            finally:
                self._stores.release(key[1], found.connection)
