"""`Housekeeping`: the threads that keep a session alive and let the janitor work."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from structable.backends.hbase.settings import Settings
from structable.backends.hbase.txn.session import Session

from .background import surviving
from .janitor import Janitor

__all__ = ["Housekeeping"]

_BEATS = 6
"""Signs of life in the time after which a session may be declared dead."""


class Housekeeping:
    """Beats, and now and then cleans up.

    Parameters
    ----------
    janitor : Janitor
        Cleans up.
    settings : Settings
        How often.
    """

    def __init__(self, janitor: Janitor, settings: Settings) -> None:
        self._janitor = janitor
        self._pause = settings.session_timeout / _BEATS
        self._between = settings.housekeeping
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, session: Callable[[], Session | None]) -> None:
        """Begin; `session` returns the one to keep alive."""
        # Two, for a round of the janitor may take longer than a session may be silent.
        for name, work in (("structable-heartbeat", self._beat), ("structable-housekeeping", self._clean)):
            thread = threading.Thread(target=work, args=(session,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _beat(self, session: Callable[[], Session | None]) -> None:
        while not self._stopping.wait(self._pause):
            current = session()
            if current is None:
                return
            with surviving("heartbeat"):
                current.beat()

    def _clean(self, session: Callable[[], Session | None]) -> None:
        while not self._stopping.wait(random.uniform(0.5, 1.5) * self._between):
            current = session()
            if current is None:
                return
            with surviving("janitor round"):
                self._janitor.run(current)

    def stop(self, timeout: float) -> None:
        """End, after what is being done, or after so many seconds without waiting for it any longer."""
        self._stopping.set()
        end = time.monotonic() + timeout
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))
