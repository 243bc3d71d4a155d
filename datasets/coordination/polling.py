"""`Polling`: how long to wait until the next look at a table that may have got something to do."""

from __future__ import annotations

import threading

__all__ = ["Polling"]

_SHORTEST, _LONGEST = 0.05, 1.0


class Polling:
    """Waits of 50 ms, doubling to 1 s while nothing is found."""

    def __init__(self) -> None:
        self._pause = _SHORTEST

    def found(self) -> None:
        """Begin again with the shortest wait."""
        self._pause = _SHORTEST

    def wait(self, woken: threading.Event) -> None:
        """Wait until the event is set, or it is time for the next look."""
        woken.wait(self._pause)
        self._pause = min(2 * self._pause, _LONGEST)
