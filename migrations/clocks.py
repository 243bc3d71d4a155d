"""The clocks of migrations: times for people, and seconds by which beats are judged."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Clock", "Clocks", "Monotonic"]

Clock: TypeAlias = Callable[[], dt.datetime]
Monotonic: TypeAlias = Callable[[], float]

_LOOKS = 0.1
"""Seconds between two looks at a clock that a caller gave, which may run faster than time."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """Two clocks.

    Parameters
    ----------
    clock : callable
        Returns the time, an aware datetime.
    monotonic : callable
        Returns seconds that never go back.
    """

    clock: Clock
    monotonic: Monotonic = time.monotonic

    @classmethod
    def given(cls, clock: Clock | None, monotonic: Monotonic) -> Clocks:
        """Return clocks; None is UTC now."""
        return cls(clock or _utc_now, monotonic)

    def wait(self, seconds: float, ended: threading.Event) -> bool:
        """Wait until so many seconds have passed, or the event is set; return whether it is."""
        end = self.monotonic() + seconds
        while (left := end - self.monotonic()) > 0:
            if ended.wait(left if self.monotonic is time.monotonic else min(left, _LOOKS)):
                return True
        return ended.is_set()


def _utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
