"""A clock of leases that tests move on."""

from __future__ import annotations

import time

from structable.spark_bridge.joins.progress import LEASE_SECONDS


class LeaseClock:
    """Stands in for the module `time` where leases are counted."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def time(self) -> float:
        return time.time() + self.ahead

    def pass_lease(self) -> None:
        """Let every lease run out."""
        self.ahead += LEASE_SECONDS + 1
