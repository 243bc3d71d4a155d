"""`Waiting`: ends a worker's wait when a job becomes due, or the worker has to stop."""

from __future__ import annotations

import logging
import threading
from typing import Self

from structable.datasets.system.job_moves import queue_channel
from structable.datasets.system_data import SystemData
from structable.spi import Listener, StorageUnavailableError
from structable.spi.signals import wait_for_any

__all__ = ["Waiting"]

_log = logging.getLogger("structable.datasets")


class Waiting:
    """Waits for a signal of a queue, or for an event. A context manager, for one thread.

    What becomes due later, by the clock alone, signals nothing.
    """

    def __init__(self, system: SystemData, queue: str, stop: threading.Event) -> None:
        self._storage = system.storage
        self._channel = queue_channel(system.prefix, queue)
        self._stop = stop
        self._listener: Listener | None = None

    def wait(self, timeout: float, /) -> bool:
        """Return whether there was a signal or the event is set, as soon as it is so, and otherwise after a time."""
        if self._listener is None:
            try:
                self._listener = self._storage.listen([self._channel])
            except StorageUnavailableError:
                if self._storage.closed:
                    raise
                _log.warning("signals of %r cannot be had; trying again", self._channel, exc_info=True)
                return self._stop.wait(timeout)
            return True  # what was committed before wakes nobody: look again
        return wait_for_any([self._listener], self._stop, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._listener is not None:
            self._listener.close()
