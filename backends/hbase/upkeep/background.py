"""`UpkeepThreads`: the threads that keep a session alive and run the janitor; they outlive errors."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from structable.backends.hbase.failpoints import reach
from structable.backends.hbase.txn.context import ProtocolSettings
from structable.backends.hbase.txn.session import ProcessSession
from structable.spi import StructableError

from .janitor import Janitor

_HEARTBEATS = 6
"""The number of heartbeats in the time after which a session may be declared dead."""

_log = logging.getLogger("structable.hbase")


_chance = random.Random()
"""A generator for these threads alone, so that a program that seeds the common one gets reproducible numbers."""


class UpkeepThreads:
    """The threads of one storage."""

    def __init__(self, janitor: Janitor, settings: ProtocolSettings) -> None:
        self._janitor = janitor
        self._pause = settings.session_timeout / _HEARTBEATS
        self._between = settings.housekeeping
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, session: Callable[[], ProcessSession | None]) -> None:
        """Start the threads; `session` returns the session to keep alive, or None to end them."""
        # Two, because a round of the janitor may take longer than a session may be silent.
        for name, work in (("structable-heartbeat", self._keep_alive), ("structable-janitor", self._clean)):
            thread = threading.Thread(target=work, args=(session,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _keep_alive(self, session: Callable[[], ProcessSession | None]) -> None:
        while not self._stopping.wait(self._pause):
            current = session()
            if current is None:
                return
            with _surviving("heartbeat"):
                current.heartbeat()

    def _clean(self, session: Callable[[], ProcessSession | None]) -> None:
        while not self._stopping.wait(_chance.uniform(0.5, 1.5) * self._between):
            current = session()
            if current is None:
                return
            with _surviving("janitor round"):
                self._janitor.run(current)

    def stop(self, timeout: float) -> None:
        """End the threads, waiting at most `timeout` seconds for their current work."""
        self._stopping.set()
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))


@contextmanager
def _surviving(work: str) -> Iterator[None]:
    """Log an error and continue: the next round may succeed, and snapshots notice a session without heartbeat."""
    try:
        yield
    except StructableError as error:
        _log.warning("%s failed and will be repeated: %s", work, error)
        reach("housekeeping_failed")
    except Exception:
        _log.exception("%s failed unexpectedly and will be repeated", work)
