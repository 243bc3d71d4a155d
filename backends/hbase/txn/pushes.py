"""`Pushes`: how a reader keeps pending transactions from committing below its snapshot."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping

from structable.spi.errors import StorageUnavailableError

from .context import Context
from .status import Status

__all__ = ["Pushes"]

_DELAY = (0.002, 0.008)
"""Seconds that a reader waits before it pushes transactions to later timestamps: most have committed by then."""


class Pushes:
    """The pushes of one read, after each of which it reads the statuses again, until there is none to push."""

    def __init__(self, context: Context) -> None:
        self._status_table = context.status_table
        self._waited = False
        self._end = time.monotonic() + context.gateway.timeout

    def push(self, pending: Mapping[bytes, Status], at: int) -> None:
        """Wait a moment, the first time; then try to push transactions beyond a timestamp."""
        if not self._waited:
            self._waited = True
            time.sleep(random.uniform(*_DELAY))
            return
        try:
            self._status_table.change_many({txid: (status, status.pushed(at + 1)) for txid, status in pending.items()})
        except StorageUnavailableError:
            # The statuses are read again until the time-out: the pushes may have been made.
            if time.monotonic() > self._end:
                raise
