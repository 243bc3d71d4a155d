"""Resources that a Python worker of Spark keeps open between tasks; closed after a minute without use."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

from structable.spark_bridge.base.store_client import StoreClient
from structable.spark_bridge.coordinator.stores import OpenStores
from structable.spi import Storage

IDLE_SECONDS = 60.0
_ROUND_SECONDS = 10.0


class _Closable(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=_Closable)


@dataclass(slots=True)
class _KeptResource:
    thing: _Closable
    users: int = 0
    idle_since: float = 0.0


class _WorkerResources:
    """The resources that this process keeps open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._things: dict[object, _KeptResource] = {}
        self._closer: threading.Thread | None = None
        self.stores = OpenStores(IDLE_SECONDS)

    def enter(self, name: object, make: Callable[[], _Closable]) -> _KeptResource:
        with self._lock:
            found = self._things.get(name)
            if found is None:
                found = self._things[name] = _KeptResource(make())
            found.users += 1
            return found

    def leave(self, found: _KeptResource) -> None:
        with self._lock:
            found.users -= 1
            found.idle_since = time.monotonic()

    def close_when_idle(self) -> None:
        with self._lock:
            if self._closer is None:
                self._closer = threading.Thread(target=self._close_idle, name="structable-idle", daemon=True)
                self._closer.start()

    def _close_idle(self) -> None:
        while True:
            time.sleep(_ROUND_SECONDS)
            self.stores.close_idle()
            deadline = time.monotonic() - IDLE_SECONDS
            with self._lock:
                idle = [name for name, one in self._things.items() if not one.users and one.idle_since <= deadline]
                closing = [self._things.pop(name) for name in idle]
            for one in closing:
                one.thing.close()


_worker = _WorkerResources()


@contextmanager
def using_store(store: StoreClient) -> Iterator[Storage]:
    """Yield a connection that this process shares between tasks."""
    _worker.close_when_idle()
    with _worker.stores.using(store) as storage:
        yield storage


@contextmanager
def kept(name: object, make: Callable[[], T]) -> Iterator[T]:
    """Yield the object of this name, made at its first use in this process."""
    _worker.close_when_idle()
    found = _worker.enter(name, make)
    try:
        yield cast(T, found.thing)
    finally:
        _worker.leave(found)
