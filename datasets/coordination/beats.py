"""Beats: `Beating` shows other processes that an owner is alive; `Watch` finds beats that have stopped."""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue

from structable.datasets.errors import LeaseLostError

_log = logging.getLogger("structable.datasets")

MOST_TTL = 2**31 - 1


def member_name() -> str:
    """Return a unique name for an owner: host, process and a random number."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


class Beating:
    """A daemon thread that, once started, beats until it is stopped, or until the lease, permit or group is lost.

    Its owner keeps it before starting it: a signal's exception in `start` then leaves a thread that can be stopped.

    Attributes
    ----------
    ended : queue
        An item ends the thread. Adding it is one call in C, which no signal's exception interrupts.

    Parameters
    ----------
    name : str
        The name of the kept row, for the log.
    beat : callable
        Writes a beat; raises `LeaseLostError` if there is another owner.
    """

    def __init__(self, name: str, beat: Callable[[], None]) -> None:
        self.ended: SimpleQueue[None] = SimpleQueue()
        self._name = name
        self._beat = beat

    def start(self, every: float) -> None:
        """Start the thread, which beats each `every` seconds."""
        threading.Thread(target=self._run, args=(every,), name=self._name, daemon=True).start()

    def stop(self) -> None:
        """End the thread, without waiting for it; idempotent."""
        self.ended.put(None)

    def _run(self, every: float) -> None:
        while self._goes_on(every):
            try:
                self._beat()
            except LeaseLostError:
                if self.ended.empty():
                    _log.warning("the %s was lost", self._name)
                return
            except Exception:
                # The next beat may succeed; if none does, another owner takes over, and writes of this one fail.
                if self.ended.empty():
                    _log.warning("the %s could not be renewed", self._name, exc_info=True)

    def _goes_on(self, every: float) -> bool:
        try:
            self.ended.get(timeout=every)
        except Empty:
            return True
        return False


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
