"""A clock that tests set."""

from __future__ import annotations

import datetime as dt


class Clock:
    """Gives the time that it was set to: `SystemData.open(..., clock=clock)`."""

    def __init__(self) -> None:
        self.time = dt.datetime(2026, 1, 5, 12, tzinfo=dt.UTC)

    def __call__(self) -> dt.datetime:
        return self.time

    def tick(self, seconds: float = 1) -> dt.datetime:
        """Let time pass, and return the new time."""
        self.time += dt.timedelta(seconds=seconds)
        return self.time
