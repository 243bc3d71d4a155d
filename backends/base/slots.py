"""`Slots`: so many of something at once, counted by what is alive.

A counter that is raised before a `try` and lowered in its `finally` is wrong for good where the exception of a signal's
handler comes in between, as it may after every call that the main thread makes. Counted here are the objects that
`take` has returned and that were not collected yet: one that is lost on the way is free again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar
from weakref import ref

__all__ = ["Slot", "Slots"]

Found = TypeVar("Found")

_LOOK_SECONDS = 0.05


class Slot:
    """One of so many; free again when it is collected."""

    __slots__ = ("__weakref__",)


class Slots:
    """At most so many slots. Safe to share between threads.

    Slots are given back in whatever a thread is doing, by the garbage collector: that takes no lock.

    Parameters
    ----------
    size : int
        How many there are.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._taken: dict[ref[Slot], None] = {}
        """References remove themselves, without a call that could be interrupted."""
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
        """Return what an attempt returns, repeated when something was given back; None if there was nothing in time."""
        found = attempt()
        if found is not None or seconds <= 0:
            return found
        deadline = time.monotonic() + seconds
        turn: SimpleQueue[None] = SimpleQueue()
        self._waiting.append(turn)
        try:
            while (found := attempt()) is None and (left := deadline - time.monotonic()) > 0:
                # Look again soon: a slot that was lost sends no wake-up.
                try:
                    turn.get(timeout=min(left, _LOOK_SECONDS))
                except Empty:
                    continue
                self._waiting.append(turn)
        finally:
            # One that stays, because this is interrupted, takes one call of `wake` from the others.
            try:
                self._waiting.remove(turn)
            except ValueError:
                self.wake()
        return found

    def wake(self) -> None:
        """Let one that waits attempt again: something was given back."""
        if self._waiting:
            try:
                self._waiting.popleft().put(None)
            except IndexError:  # another thread was faster
                return
