"""`SharedListener`: looks at the signals that the owner of a database counts in shared memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from structable.spi import Listener
from structable.spi.rules.signals import check_timeout

__all__ = ["SharedListener"]

_LOOK = 0.005
"""Seconds between two looks."""


class Counting(Protocol):
    """An engine over shared memory."""

    closed: bool

    def signals(self, cells: Sequence[int]) -> list[int]: ...


class SharedListener(Listener):
    """A listener that reads its cells every 5 ms during a `wait`, and closes with its engine.

    A new owner may map other memory: the change counts as a signal.
    """

    __slots__ = ("_cells", "_closed", "_engine", "_seen")

    def __init__(self, engine: Counting, cells: Sequence[int]) -> None:
        self._engine = engine
        self._cells = cells
        self._seen = engine.signals(cells)
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._engine.closed or self._closed

    def wait(self, timeout: float) -> bool:
        end = time.monotonic() + check_timeout(timeout)
        while not self.closed:
            found = self._engine.signals(self._cells)
            if found != self._seen:
                self._seen = found
                return True
            rest = end - time.monotonic()
            if rest <= 0:
                break
            time.sleep(min(rest, _LOOK))
        return False

    def close(self) -> None:
        self._closed = True
