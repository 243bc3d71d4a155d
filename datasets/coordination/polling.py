"""`Polling`: how long to wait before looking for work in a table again."""

from __future__ import annotations

import math
from typing import Protocol

from structable.spi import Storage

LONGEST = 5.0
"""The longest wait, in seconds, where signals of other processes arrive."""
_SHORTEST, _LONGEST_WHERE_NOT_WOKEN = 0.05, 1.0


class Woken(Protocol):
    """Ends a wait early: an event, or a listener for signals of a store."""

    def wait(self, timeout: float, /) -> bool:
        """Return True as soon as it is woken, and False after `timeout` seconds."""


class Polling:
    """Waits of 50 ms, doubling while nothing is found: to 5 s where signals of other processes arrive, else to 1 s.

    Parameters
    ----------
    storage : Storage
        The store, whose signals end the waits.
    """

    def __init__(self, storage: Storage) -> None:
        self._pause = _SHORTEST
        self._longest = LONGEST if storage.wakes else _LONGEST_WHERE_NOT_WOKEN

    def found(self) -> None:
        """Begin again with the shortest wait."""
        self._pause = _SHORTEST

    def wait(self, woken: Woken, most: float = math.inf) -> None:
        """Wait until it is woken, or it is time for the next look, at most `most` seconds."""
        if woken.wait(min(self._pause, most)):
            self.found()
        else:
            self._pause = min(2 * self._pause, self._longest)
