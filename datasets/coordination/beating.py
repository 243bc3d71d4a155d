"""`Beating`: a thread that shows those who watch that an owner is alive; `member_name` names owners."""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable

from structable.datasets.errors import LeaseLostError

__all__ = ["Beating", "member_name"]

_log = logging.getLogger("structable.datasets")


def member_name() -> str:
    """Return a unique name for an owner: host, process and a random number."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


class Beating:
    """A daemon thread that beats until it is stopped, or what it beats for is lost.

    Parameters
    ----------
    name : str
        What it beats for.
    beat : callable
        Makes a beat; raises `LeaseLostError` if there is another owner.
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
                # The next beat may succeed; if none does, another owner takes over, and what this one writes fails.
                if not self._stop.is_set():
                    _log.warning("the %s could not be renewed", self._name, exc_info=True)
