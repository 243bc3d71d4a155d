"""Beats: `Beating` shows other processes that an owner is alive; `Watch` finds beats that have stopped."""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterable

from structable.datasets.errors import LeaseLostError

_log = logging.getLogger("structable.datasets")

MOST_TTL = 2**31 - 1


def member_name() -> str:
    """Return a unique name for an owner: host, process and a random number."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


class Beating:
    """A daemon thread that beats until it is stopped, or until the lease, permit or group is lost.

    Parameters
    ----------
    name : str
        The name of the kept row, for the log.
    beat : callable
        Writes a beat; raises `LeaseLostError` if there is another owner.
    every : float
        Seconds between two beats.
    """

    def __init__(self, name: str, beat: Callable[[], None], every: float) -> None:
        self._name = name
        self._beat = beat
        self._every = every
        self._stop = threading.Event()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def stop(self) -> None:
        """End the thread, without waiting for it; idempotent."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            try:
                self._beat()
            except LeaseLostError:
                if not self._stop.is_set():
                    _log.warning("the %s was lost", self._name)
                return
            except Exception:
                # The next beat may succeed; if none does, another owner takes over, and writes of this one fail.
                if not self._stop.is_set():
                    _log.warning("the %s could not be renewed", self._name, exc_info=True)


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
        """Return whether every read in the `ttl` seconds before `now` found the same beat.

        Parameters
        ----------
        now : float
            The monotonic time before token and beat were read.
        """
        with self._lock:
            seen = self._seen.get(key)
            if seen is not None and seen[:2] == (token, beat):
                return now - seen[2] >= ttl
            # Count from now, not from `now`: the owner may have renewed it until the read ended.
            self._seen[key] = (token, beat, self.monotonic())
            return False

    def forget(self, key: tuple[object, ...]) -> None:
        """Forget the beats of a row that is free, or held by this process."""
        with self._lock:
            self._seen.pop(key, None)

    def keep(self, keys: Iterable[tuple[object, ...]]) -> None:
        """Forget the beats of all rows but these."""
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
