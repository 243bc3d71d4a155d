"""`BackgroundThread`, `NotifiedThread`: threads that live while there is work, and rest between steps."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from time import perf_counter

from .uninterrupted import uninterrupted

_REST = 3
"""How many times as long as a step the thread rests after it: for most of a step it holds the interpreter's lock."""
_LONGEST_REST = 0.1  # seconds


def resting(stopping: threading.Event) -> Callable[[], bool]:
    """Return a function to call between the steps of background work: it rests, and returns whether to stop.

    So foreground threads have the interpreter's lock for three quarters of the time. The rest ends once the event is
    set.
    """
    since = perf_counter()

    def rest() -> bool:
        nonlocal since
        stopped = stopping.wait(min(_REST * (perf_counter() - since), _LONGEST_REST))
        since = perf_counter()
        return stopped

    return rest


class BackgroundThread:
    """At most one daemon thread that runs `work`, which calls `end` under `lock` and returns when nothing is left."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self._name = name
        self._work = work
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self.lock = threading.Lock()
        """Guards the thread's beginning and end, and its owner's records for it."""
        self.stopping = threading.Event()

    @property
    def running(self) -> bool:
        """Whether the thread has work."""
        return self._thread is not None

    def begin(self) -> bool:
        """Start the thread unless it runs; False if that is not possible now. Under `lock`."""
        if self.stopping.is_set():
            return False
        if self._thread is None:
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False  # no thread can start now
            self._thread = thread
        return True

    def end(self) -> None:
        """Record that the thread returns. Under `lock`."""
        self._thread = None

    def stop(self) -> None:
        """Stop after the current step of the work, and wait for that; idempotent."""
        uninterrupted(self._stop)

    def _stop(self) -> None:
        if os.getpid() != self._process:
            return  # a forked process has no such thread, and a thread of its parent may hold the locks
        self.stopping.set()
        with self.lock:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()


class NotifiedThread:
    """Runs `work` in the background after a notification, and once more if others came while it ran."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self._work = work
        self._again = False
        self._background = BackgroundThread(name, self._run)
        self.stopping = self._background.stopping

    def notify(self) -> None:
        """Announce that there may be work."""
        with self._background.lock:
            self._again = True
            self._background.begin()

    def stop(self) -> None:
        """Stop after the current step of the work, and wait for that; idempotent."""
        self._background.stop()

    def _run(self) -> None:
        while True:
            with self._background.lock:
                if not self._again or self.stopping.is_set():
                    self._background.end()
                    return
                self._again = False
            self._work()
