"""`Notifier`: sends NOTIFY after commits, in a thread of its own."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable

from structable.spi import StructableError

from .errors import PostgreSQLError
from .pool import ServerPool
from .statement import command

__all__ = ["Notifier", "notify"]

_log = logging.getLogger("structable.postgresql")

_TOGETHER = 0.02
"""Seconds in which the notifications of a name are one, but for the first."""
_IDLE = 5.0
"""Seconds after which the thread ends that has nothing to send."""
_LAST = 1.0
"""Seconds that closing waits until the last ones are sent."""


def notify(pool: ServerPool, names: Iterable[str], payload: str) -> None:
    """Notify all who listen to some names, by one statement.

    Raises
    ------
    PostgreSQLError, StorageUnavailableError
        If nobody may have been notified.
    """
    calls = ", ".join(f"pg_notify('{name}', '{payload}')" for name in names)
    with pool.connection() as connection:
        connection.pipeline((command(f"select {calls}"),))


class Notifier:
    """Sends the first notification of a name at once, and those of the next 20 ms as one. Thread-safe.

    Its errors are logged, for what they announce was committed.
    """

    def __init__(self, pool: ServerPool, payload: str) -> None:
        self._pool = pool
        self._payload = payload
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._due: dict[str, float] = {}
        self._sent: dict[str, float] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def send(self, names: Iterable[str]) -> None:
        """Let the thread send notifications of some names."""
        with self._changed:
            now = time.monotonic()
            for name in names:
                self._due.setdefault(name, max(now, self._sent.get(name, 0.0) + _TOGETHER))
            if self._closed or not self._due:
                return
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="structable signals", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    self._due.clear()
                    _log.warning("a commit woke no other process: %s", error)
                    return
                self._thread = thread
            self._changed.notify()

    def _run(self) -> None:
        while names := self._next():
            try:
                notify(self._pool, names, self._payload)
            except (PostgreSQLError, StructableError) as error:
                _log.warning("a commit woke no other process: %s", error)

    def _next(self) -> list[str]:
        """Return the names that are due, once there are some; none when the thread has to end."""
        with self._changed:
            while True:
                now = time.monotonic()
                names = [name for name, at in self._due.items() if at <= now or self._closed]
                if names:
                    self._sent = {name: at for name, at in self._sent.items() if at > now - _TOGETHER}
                    for name in names:
                        del self._due[name]
                        self._sent[name] = now
                    return names
                soon = min(self._due.values(), default=now + _IDLE) - now
                if self._closed or not (self._changed.wait(soon) or self._due):
                    self._thread = None
                    return []

    def close(self) -> None:
        """Send what is due, if the server takes it soon, and end the thread; idempotent."""
        if os.getpid() != self._process:
            return
        with self._changed:
            self._closed = True
            thread = self._thread
            self._changed.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_LAST)
