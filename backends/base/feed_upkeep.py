"""`FeedUpkeep`: drops the changes that are too old, in the background, where feeds are written or read."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from structable.spi import StructableError, TableNotFoundError, UnsupportedOperationError

from .background import BackgroundThread, resting

_log = logging.getLogger("structable.feeds")
_FIRST = 1.0
"""Seconds from the first use of a feed to its first expiry. Shorter programs leave the expiry to others."""
_PAUSE = 60.0
"""The minimum number of seconds between two expiries of a feed."""


class FeedUpkeep:
    """Expires feeds in a thread that lives while one of them is due.

    Parameters
    ----------
    expire : callable
        Drops changes of a table's feed that are too old; ends early once `stopped`.
    first, pause : float
        Seconds from the first use of a feed to its first expiry, and between two of them.
    """

    def __init__(self, expire: Callable[[str], object], *, first: float = _FIRST, pause: float = _PAUSE) -> None:
        self._expire = expire
        self._first = first
        self._pause = pause
        self._due: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._background = BackgroundThread("structable-feeds", self._work)

    def stopped(self) -> bool:
        """Return whether `stop` was called."""
        return self._background.stopping.is_set()

    def resting(self) -> Callable[[], bool]:
        """Return a function to call between the steps of an expiry: it rests, and returns whether `stop` was called."""
        return resting(self._background.stopping)

    def noticed(self, table: str) -> None:
        """Record that the feed of a table was written or read; cheap if it is already recorded."""
        if table in self._due:
            return
        last = self._last.get(table)
        now = time.monotonic()
        with self._background.lock:
            if not self._background.begin():
                return
            self._due[table] = now + self._first if last is None else max(now, last + self._pause)

    def stop(self) -> None:
        """Stop after the current step of an expiry."""
        self._background.stop()

    def _work(self) -> None:
        while True:
            with self._background.lock:
                if not self._due or self._background.stopping.is_set():
                    self._background.end()
                    return
                table = min(self._due, key=self._due.__getitem__)
                due = self._due[table]
            if self._background.stopping.wait(max(0.0, due - time.monotonic())):
                continue
            again = self._expired(table)
            with self._background.lock:
                self._last[table] = time.monotonic()
                self._due.pop(table, None)
                if again:
                    self._due[table] = self._last[table] + self._pause

    def _expired(self, table: str) -> bool:
        """Expire the feed of a table, and return whether it failed and must be repeated."""
        try:
            self._expire(table)
        except (TableNotFoundError, UnsupportedOperationError):
            return False  # the table or its feed is gone
        except StructableError as error:
            if not self._background.stopping.is_set():
                _log.warning("dropping old changes of table %r failed and will be repeated: %s", table, error)
        except Exception:
            _log.exception("dropping old changes of table %r failed unexpectedly and will be repeated", table)
        else:
            return False
        return True
