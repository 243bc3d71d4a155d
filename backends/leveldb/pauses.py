"""`Pauses`: between the attempts of a caller that waits for another process."""

from __future__ import annotations

import time

__all__ = ["Pauses"]

_FIRST = 0.001
_LONGEST = 0.02


class Pauses:
    """Pauses of growing length, in seconds: the first finds a process that is nearly ready."""

    def __init__(self) -> None:
        self._next = _FIRST

    def pause(self) -> None:
        time.sleep(self._next)
        self._next = min(self._next * 1.5, _LONGEST)
