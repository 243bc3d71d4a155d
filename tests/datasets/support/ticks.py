"""A monotonic clock that tests set."""

from __future__ import annotations


class Ticks:
    """Gives the seconds that it was set to: `SystemData.open(..., monotonic=ticks)`."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds

    def tick(self, seconds: float) -> None:
        """Let time pass."""
        self.seconds += seconds
