"""Waiting for other threads, processes and servers."""

from __future__ import annotations

import time
from collections.abc import Callable

PROMPT = 25.0
"""Seconds within which a call ends that neither waits nor retries, on the busiest machine; a store retries for 30."""
_LONGEST = 60.0  # seconds


def until(condition: Callable[[], object]) -> None:
    """Return when a condition is met; the test fails after a minute."""
    end = time.monotonic() + _LONGEST
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.01)
