"""`Attempts`: whether a call that failed is made again, and when."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .errors import ConnectionLostError, ServerError

if TYPE_CHECKING:
    from .gateway import Gateway

__all__ = ["Attempts"]

_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 1.0


class Attempts:
    """Decides whether what failed is tried again, and waits before it is.

    Parameters
    ----------
    gateway : Gateway
        Gives the time for all attempts.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.succeeded()

    def succeeded(self) -> None:
        """Begin to count anew."""
        self._deadline = time.monotonic() + self._gateway.timeout
        self._pause = _FIRST_PAUSE

    def failed(self, error: ServerError | ConnectionLostError, *, retry: bool) -> None:
        """Return when it is time to try again, or raise the error."""
        if (
            isinstance(error, ConnectionLostError)
            and (retry or not error.sent)
            and not self._gateway.reached
            and self._gateway.untried
        ):
            self.succeeded()  # the next one in the URL has its own time
            return
        if isinstance(error, ServerError):
            again = retry and error.transient
        else:
            # What never worked is more likely wrong than broken.
            again = (retry or not error.sent) and self._gateway.reached
        if not again or self._gateway.closed or time.monotonic() + self._pause >= self._deadline:
            raise error
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
