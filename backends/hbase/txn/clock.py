"""The clock for durations that other processes wait out."""

from __future__ import annotations

import time

__all__ = ["now"]


def now() -> float:
    """Return seconds since some moment, including the time in which the machine was suspended.

    Other processes continued while this one was suspended. To watch them for silence, use `time.monotonic` instead: a
    process that was suspended with this one was not silent.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)
