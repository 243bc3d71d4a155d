"""`RetryPolicy`: whether a call that failed is made again, and when."""

from __future__ import annotations

import logging
import random
import time

from .errors import ConnectionLostError, ServerError
from .pool import GatewayPool

_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 1.0
_LONG = 5.0
"""Seconds of retries after which the retries are logged."""

_log = logging.getLogger("structable.hbase")


def pause() -> None:
    """Wait a little before a retry; at random, so that clients that failed together do not return together."""
    time.sleep(random.uniform(0.01, 0.1))


class RetryPolicy:
    """Retries with growing pauses, until the pool's time-out."""

    def __init__(self, pool: GatewayPool) -> None:
        self._pool = pool
        self.reset()

    def reset(self) -> None:
        """Reset pauses and time-out after a success."""
        self._started = time.monotonic()
        self._pause = _FIRST_PAUSE
        self._is_logged = False

    def wait_or_raise(self, error: ServerError | ConnectionLostError, *, retry: bool) -> None:
        """Return when it is time to try again, or raise the error.

        With `retry`, the call may be repeated even if it may have been executed.
        """
        if (
            isinstance(error, ConnectionLostError)
            and (retry or not error.sent)
            and not self._pool.reached
            and self._pool.untried
        ):
            self.reset()  # the next gateway of the URL has its own time
            return
        if isinstance(error, ServerError):
            again = retry and error.transient
        else:
            # A gateway that never answered is more likely misconfigured than down.
            again = (retry or not error.sent) and self._pool.reached
        elapsed = time.monotonic() - self._started
        if not again or self._pool.closed or elapsed + self._pause >= self._pool.timeout:
            raise error
        if elapsed > _LONG and not self._is_logged:
            self._is_logged = True
            _log.warning("calls have failed for %.0f s and are retried up to timeout: %s", elapsed, error)
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
