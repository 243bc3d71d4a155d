"""`Notifier`: sends NOTIFY after commits, in a separate thread."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable
from queue import Empty, SimpleQueue

from structable.spi import StructableError

from .errors import PostgreSQLError
from .pool import ServerPool
from .statement import command

_log = logging.getLogger("structable.postgresql")

_TOGETHER = 0.02
"""Seconds in which notifications of a name after the first are combined into one."""
_IDLE = 5.0
"""Seconds after which an idle thread ends."""
_LAST = 1.0
"""Seconds that closing waits for the last notifications to be sent."""


def notify(pool: ServerPool, names: Iterable[str], payload: str) -> None:
    """Notify all who listen to some names, by one statement.

    Raises
    ------
    PostgreSQLError, StorageUnavailableError
        If listeners may not have been notified.
    """
    listed = ", ".join(f"'{name}'" for name in names)
    # Its commit need not wait for the disk: the announced changes are already committed.
    calls = f"set_config('synchronous_commit', 'off', true), pg_notify(channel, '{payload}')"
    with pool.connection() as connection:
        connection.pipeline((command(f"select {calls} from unnest(array[{listed}]) as channel"),))


class Notifier:
    """Sends the first notification of a name at once, and further ones of the next 20 ms as one. Thread-safe.

    Errors are only logged: the announced changes are already committed.
    """

    def __init__(self, pool: ServerPool, payload: str) -> None:
        self._pool = pool
        self._payload = payload
        self._process = os.getpid()
        # Written in C: no signal handler that raises can leave it locked.
        self._asked: SimpleQueue[tuple[str, ...] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._due: dict[str, float] = {}
        """The times at which to notify names. Only `_run` writes it, and removes a name before it notifies."""

    def send(self, names: Iterable[str]) -> None:
        """Let a thread send notifications of some names."""
        asked, due = tuple(names), self._due
        if self._thread is not None:
            if not all(name in due for name in asked):  # waking the thread for each commit would slow a busy writer
                self._asked.put(asked)
            return
        self._asked.put(asked)
        thread = threading.Thread(target=self._run, name="structable signals", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            _log.warning("a commit wakes no other process yet: %s", error)
        else:
            self._thread = thread

    def _run(self) -> None:
        due = self._due
        sent: dict[str, float] = {}
        closing = False
        while not closing or due:
            now = time.monotonic()
            waiting = list(due.items())  # one copy: a thread that was about to end may still run next to its successor
            names = [name for name, at in waiting if closing or at <= now]
            if names:
                sent = {name: at for name, at in sent.items() if at > now - _TOGETHER} | dict.fromkeys(names, now)
                for name in names:
                    due.pop(name, None)
                self._notify(names)
                continue
            try:
                asked = self._asked.get(timeout=min((at for _, at in waiting), default=now + _IDLE) - now)
            except Empty:
                if not due and self._ends():
                    return
                continue
            closing = asked is None
            for name in asked or ():
                due.setdefault(name, sent.get(name, -_TOGETHER) + _TOGETHER)

    def _ends(self) -> bool:
        """End the thread, unless new notifications have come; another thread may be started from now on."""
        self._thread = None
        return self._asked.empty()

    def _notify(self, names: list[str]) -> None:
        try:
            notify(self._pool, names, self._payload)
        except (PostgreSQLError, StructableError) as error:
            _log.warning("a commit woke no other process: %s", error)

    def close(self) -> None:
        """Send the notifications that are due, if the server takes them soon, and end the thread; idempotent."""
        thread = self._thread
        if thread is not None and os.getpid() == self._process:
            self._asked.put(None)
            thread.join(_LAST)
