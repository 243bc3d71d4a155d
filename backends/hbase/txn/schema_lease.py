"""`SchemaLeases`: a table's schema is guaranteed unchanged for a short time after its marker was read.

A read of a single row would have to read the marker of its table in the same call, which costs a third of the call.
Instead, a marker without an intent gives a lease on the schema of `LEASE_SECONDS`. A change of a schema puts its intent
in the marker's row, which ends the leases given from then on, and waits for twice that time before it commits. Reader
and writer each measure by their own clock; the factor allows for clocks that run at different rates.
"""

from __future__ import annotations

import time

from .session import now

LEASE_SECONDS = 0.05
"""The length of a lease, a part of the protocol: it must be the same in all processes."""


class SchemaLeases:
    """The leases of this process, by space."""

    def __init__(self) -> None:
        self._until: dict[bytes, float] = {}

    def renew(self, space: bytes, asked: float) -> None:
        """Begin a lease at `asked`, the time (`session.now`) of a call that found a marker without an intent."""
        self._until[space] = asked + LEASE_SECONDS

    def may_outlast_call(self, space: bytes) -> bool:
        """Return whether a call made now will probably return within the lease."""
        return now() < self._until.get(space, 0.0) - LEASE_SECONDS / 10

    def holds(self, space: bytes) -> bool:
        """Return whether no change of the space's schema can have been committed until now."""
        return now() < self._until.get(space, 0.0)


def wait_out_leases() -> None:
    """Wait until every schema lease granted before this call has expired."""
    time.sleep(2 * LEASE_SECONDS)
