"""`Slots`: a limited number of permits, counted by the objects that are alive.

A counter that is raised before a `try` and lowered in its `finally` stays wrong if a signal handler raises in between,
which can happen after every call of the main thread. Here the objects that `take` returned and that were not collected
yet are the count: a slot lost on the way is free again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar
from weakref import ref

Found = TypeVar("Found")

_LOOK_SECONDS = 0.05


class Slot:
    """A permit, returned when it is collected."""

    __slots__ = ("__weakref__",)


class Slots:
    """At most `size` slots. Threads may share it.

    The garbage collector returns slots in the middle of any code, so returning takes no lock.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._taken: dict[ref[Slot], None] = {}
        """Weak references that remove themselves, without a call that could be interrupted."""
        self._lock = threading.Lock()
        self._waiting: deque[SimpleQueue[None]] = deque()

    def take(self) -> Slot | None:
        """Return a slot, or None if all are taken."""
        slot = Slot()
        with self._lock:
            if len(self._taken) < self._size:
                self._taken[ref(slot, self._taken.pop)] = None
                return slot
        return None

    def wait(self, attempt: Callable[[], Found | None], seconds: float) -> Found | None:
        """Repeat an attempt each time a slot is returned, and return its result; None if none succeeded in time."""
        found = attempt()
        if found is not None or seconds <= 0:
            return found
        deadline = time.monotonic() + seconds
        turn: SimpleQueue[None] = SimpleQueue()
        self._waiting.append(turn)
        try:
            while (found := attempt()) is None and (left := deadline - time.monotonic()) > 0:
                # Poll as well: a lost slot sends no wake-up.
                try:
                    turn.get(timeout=min(left, _LOOK_SECONDS))
                except Empty:
                    continue
                self._waiting.append(turn)
        finally:
            # If an interruption leaves the lock taken here, one call of `wake` from another thread releases it.
            try:
                self._waiting.remove(turn)
            except ValueError:
                self.wake()
        return found

    def wake(self) -> None:
        """Let a waiting thread try again: a slot was returned."""
        if self._waiting:
            try:
                self._waiting.popleft().put(None)
            except IndexError:  # another thread was faster
                return
