"""`Throttle`: limits on the load that a backfill puts on a store."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass

from .batches import MOST_ROWS
from .errors import MigrationError

_FIRST = 100
_AIM = 0.05
_OPENINGS = 5
_LEAST = 20  # fewer rows would spare a busy store nothing: the batch's own reads and its commit cost as much


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
            # The time that the batch took counts; a slower time of the store is not made up for.
            self._next = max(self._next + rows * self._seconds, now)
            wait = self._next - now
        ended.wait(wait)


class BatchSize:
    """The number of rows of a part's next batch: it aims at 50 ms, and halves on a conflict.

    A store that is far away takes longer for a batch of any size: there it aims at five times the time until the batch
    can read its first row. With a limit of rows a second, a batch has at most the rows of that time: few rows often
    delay others less than many at once.
    """

    def __init__(self, rows_per_second: float | None = None) -> None:
        self._rows_per_second = math.inf if rows_per_second is None else rows_per_second
        self._opening = math.inf
        self.rows = self._bounded(_FIRST, _AIM)

    def took(self, rows: int, seconds: float, opening: float) -> None:
        """Learn from the time of a batch, and until its first row; the short one at the end of a part is ignored."""
        self._opening = min(self._opening, opening)  # a store that is only busy is spared
        aim = max(_AIM, _OPENINGS * self._opening)
        if rows >= self.rows or seconds > aim:
            share = min(2.0, max(0.5, aim / max(seconds, 1e-6)))
            # Rounded up: otherwise a few rows that take more than half of the time would never become more.
            self.rows = self._bounded(max(math.ceil(self.rows * share), min(self.rows, _LEAST)), aim)

    def conflicted(self) -> None:
        """Learn from a batch that conflicted."""
        self.rows = max(1, self.rows // 2)

    def _bounded(self, rows: float, seconds: float) -> int:
        return max(1, int(min(MOST_ROWS, rows, self._rows_per_second * seconds)))
