"""`Throttle`: limits on the load that a backfill puts on a store."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from .batches import MOST_ROWS
from .errors import MigrationError

__all__ = ["BatchSize", "Pace", "Throttle"]

_FIRST = 100
_AIM = 0.05


@dataclass(frozen=True, slots=True)
class Throttle:
    """Limits of a backfill.

    Parameters
    ----------
    rows_per_second : float or None
        The maximum number of rows a second, in each process that fills.
    threads : int
        The number of parts filled at a time in this process: while the store works on one, the next is computed.
    max_conflicts : int
        The number of consecutive conflicts of a batch, with pauses between them, after which the revision pauses.
    """

    rows_per_second: float | None = None
    threads: int = 2
    max_conflicts: int = 100

    def __post_init__(self) -> None:
        if self.rows_per_second is not None and not self.rows_per_second > 0:
            raise MigrationError(
                f"rows_per_second is {self.rows_per_second!r}; it must be above 0, or None for no limit"
            )
        if not 1 <= self.threads <= 64:
            raise MigrationError(f"threads is {self.threads!r}; it must be 1 to 64")
        if self.max_conflicts < 1:
            raise MigrationError(f"max_conflicts is {self.max_conflicts!r}; it must be at least 1")


class Pace:
    """Limits the rows a second of several threads together."""

    def __init__(self, rows_per_second: float | None) -> None:
        self._seconds = 0.0 if rows_per_second is None else 1 / rows_per_second
        self._next = time.monotonic()
        self._lock = threading.Lock()

    def spend(self, rows: int, ended: threading.Event) -> None:
        """Wait after a batch of `rows` rows until the next one may begin, or the event is set."""
        if not self._seconds:
            return
        with self._lock:
            now = time.monotonic()
            self._next = max(self._next, now) + rows * self._seconds
            wait = self._next - now
        ended.wait(wait)


class BatchSize:
    """The number of rows of a part's next batch: it aims at 50 ms, and halves on a conflict."""

    def __init__(self) -> None:
        self.rows = _FIRST

    def took(self, rows: int, seconds: float) -> None:
        """Learn from the time of a batch; the short one at the end of a part is ignored."""
        if rows >= self.rows or seconds > _AIM:
            share = min(2.0, max(0.5, _AIM / max(seconds, 1e-6)))
            self.rows = max(1, min(MOST_ROWS, int(self.rows * share)))

    def conflicted(self) -> None:
        """Learn from a batch that conflicted."""
        self.rows = max(1, self.rows // 2)
