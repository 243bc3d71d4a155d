"""`SharedResources`: resources of a process that stay open for some seconds after their last use, for another use."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

IDLE_SECONDS = 5.0

Key = TypeVar("Key")
Resource = TypeVar("Resource")


@dataclass(slots=True, eq=False)
class _SharedResource(Generic[Resource]):
    resource: Resource
    users: int = 0
    left: float = 0.0


class SharedResources(Generic[Key, Resource]):
    """Resources by their keys, shared by their users, each ended by `close`; safe to share between threads.

    A forked process has none of them: the owner must call `after_fork` there, which abandons and forgets each.
    """

    def __init__(self, close: Callable[[Resource], None], abandon: Callable[[Resource], None]) -> None:
        self._close = close
        self._abandon = abandon
        self._begin()

    def _begin(self) -> None:
        # The garbage collector may drop a resource in a thread that holds the lock.
        self._lock = threading.RLock()
        self._open: dict[Key, _SharedResource[Resource]] = {}
        self._timer: threading.Timer | None = None

    @contextlib.contextmanager
    def using(self, key: Key, open_resource: Callable[[], Resource]) -> Iterator[Resource]:
        """Lend the resource of a key; open it if it is not open."""
        with self._lock:
            entry = self._open.get(key)
            if entry is None:
                entry = self._open[key] = _SharedResource(open_resource())
            entry.users += 1
        try:
            yield entry.resource
        finally:
            with self._lock:
                entry.users -= 1
                entry.left = time.monotonic()
                if not entry.users and self._timer is None:
                    self._wake_up()

    def drop(self, key: Key) -> None:
        """Close the resource of a key now, unless it is in use."""
        with self._lock:
            entry = self._open.get(key)
            if entry is not None and not entry.users:
                del self._open[key]
                self._close(entry.resource)

    def after_fork(self) -> None:
        for entry in self._open.values():
            self._abandon(entry.resource)
        self._begin()  # the lock and the timer belong to threads of the parent

    def _wake_up(self) -> None:
        if sys.is_finalizing():
            # The interpreter closes generators as it ends; a thread started now never runs, and `start` would wait
            # for it forever.
            return
        timer = threading.Timer(IDLE_SECONDS, self._close_idle)
        timer.daemon = True
        with contextlib.suppress(RuntimeError):  # out of threads: the next user that leaves tries again
            timer.start()
            self._timer = timer

    def _close_idle(self) -> None:
        oldest = time.monotonic() - IDLE_SECONDS / 2
        with self._lock:
            self._timer = None
            for key, entry in list(self._open.items()):
                if not entry.users and entry.left < oldest and self._open.pop(key, None) is not None:
                    self._close(entry.resource)
            if any(not entry.users for entry in self._open.values()):
                self._wake_up()
