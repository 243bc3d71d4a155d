"""`Polling`: how long to wait until the next look at a table that may have got something to do."""

from __future__ import annotations

import math
from typing import Protocol

from structable.spi import Storage

__all__ = ["Polling", "Woken"]

_SHORTEST, _LONGEST, _LONGEST_WHERE_WOKEN = 0.05, 1.0, 5.0


class Woken(Protocol):
    """Ends a wait early: an event, or a listener for signals of a store."""

    def wait(self, timeout: float, /) -> bool:
        """Return whether it was woken, as soon as it is, and otherwise after `timeout` seconds."""


class Polling:
    """Waits of 50 ms, doubling to 1 s while nothing is found.

    Parameters
    ----------
    storage : Storage, optional
        The store, for waits on a listener of it: they double to 5 s where signals of other processes arrive.
    """

    def __init__(self, storage: Storage | None = None) -> None:
        self._pause = _SHORTEST
        self._longest = _LONGEST_WHERE_WOKEN if storage is not None and storage.wakes else _LONGEST

    def found(self) -> None:
        """Begin again with the shortest wait."""
        self._pause = _SHORTEST

    def wait(self, woken: Woken, most: float = math.inf) -> None:
        """Wait until it is woken, or it is time for the next look, at most `most` seconds."""
        if woken.wait(min(self._pause, most)):
            self.found()
        else:
            self._pause = min(2 * self._pause, self._longest)
