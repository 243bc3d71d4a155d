"""`Background`: a migration in a daemon thread of a service."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

__all__ = ["Background"]

_log = logging.getLogger("structable.migrations")


class Background:
    """A migration that runs in a daemon thread.

    Parameters
    ----------
    work : callable
        Does it, and ends soon once the event that it is given is set.

    Attributes
    ----------
    error : BaseException or None
        What ended it, once it is done.
    """

    def __init__(self, work: Callable[[threading.Event], None]) -> None:
        self.error: BaseException | None = None
        self._work = work
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="structable migrate", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work(self._ended)
        except BaseException as error:
            self.error = error
            _log.warning("migrations stopped: %s", error)

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return not self._thread.is_alive()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for its end, and return whether it has ended.

        Raises
        ------
        StructableError
            What ended it.
        """
        self._thread.join(timeout)
        if self.done and self.error is not None:
            raise self.error
        return self.done

    def stop(self) -> None:
        """Let it stop after the batches that run, and wait for that; the revision is PAUSED, if it was not finished."""
        self._ended.set()
        self._thread.join()
