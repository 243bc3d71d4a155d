"""`Watch`: which beats stood still for their ttl, on this process's monotonic clock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

__all__ = ["Watch", "check_ttl"]

MOST_TTL = 2**31 - 1


class Watch:
    """The beats of other processes, as this process saw them. Safe to share between threads.

    Parameters
    ----------
    monotonic : callable
        Returns seconds that never go back.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        self._seen: dict[tuple[object, ...], tuple[int, int, float]] = {}
        self._lock = threading.Lock()

    def expired(self, key: tuple[object, ...], token: int, beat: int, ttl: int, now: float) -> bool:
        """Return whether the beat was the same in all that was read for `ttl` seconds until `now`.

        Parameters
        ----------
        now : float
            The monotonic time before the read that gave token and beat.
        """
        with self._lock:
            seen = self._seen.get(key)
            if seen is not None and seen[:2] == (token, beat):
                return now - seen[2] >= ttl
            # The owner may have renewed it until the read, which is over.
            self._seen[key] = (token, beat, self.monotonic())
            return False

    def forget(self, key: tuple[object, ...]) -> None:
        """Forget what was seen of a row that is free, or this process's."""
        with self._lock:
            self._seen.pop(key, None)

    def keep(self, keys: Iterable[tuple[object, ...]]) -> None:
        """Forget what was seen of all rows but these."""
        kept = set(keys)
        with self._lock:
            self._seen = {key: seen for key, seen in self._seen.items() if key in kept}


def check_ttl(ttl: int) -> int:
    """Return the ttl, whole seconds from 1.

    Raises
    ------
    ValueError
        If it is another value.
    """
    if not isinstance(ttl, int) or isinstance(ttl, bool) or not 1 <= ttl <= MOST_TTL:
        raise ValueError(f"ttl is {ttl!r}; it must be whole seconds, 1 to {MOST_TTL}")
    return ttl
