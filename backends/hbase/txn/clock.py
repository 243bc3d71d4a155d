"""How long ago something was, for whoever relies on it that others have waited for longer."""

from __future__ import annotations

import time

__all__ = ["now"]

if hasattr(time, "CLOCK_BOOTTIME"):

    def now() -> float:
        """Return seconds since some moment, the time in which the machine was suspended included.

        Others went on meanwhile. Whoever watches them for their silence needs `time.monotonic` instead: what was
        suspended with him was not silent.
        """
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    now = time.monotonic
