"""`SchemaTrust`: for a moment after its marker was read, a table's schema is taken to be what it was.

Who reads a single row asks for the marker of its table as well, in the same call, and that costs a third of the call.
So the marker is believed for `TRUSTED_FOR` seconds; and whoever changes a schema places his intent in the marker's row,
which ends the belief of all who read it from then on, and lets twice that time pass before he goes on to commit. Both
measure a duration by a clock of their own; the factor is for clocks that run at different speeds.
"""

from __future__ import annotations

import time

from .clock import now

__all__ = ["SchemaTrust", "outlast_trust"]

TRUSTED_FOR = 0.05
"""Seconds; it is part of the protocol: all processes must agree."""


class SchemaTrust:
    """The markers that were read a moment ago, by space."""

    def __init__(self) -> None:
        self._until: dict[bytes, float] = {}

    def renew(self, space: bytes, asked: float) -> None:
        """Note that a marker without an intent was read, by a call made at `asked`, of `durations.now`."""
        self._until[space] = asked + TRUSTED_FOR

    def may_ask(self, space: bytes) -> bool:
        """Tell whether a call that is made now will probably have returned while the schema is still trusted."""
        return now() < self._until.get(space, 0.0) - TRUSTED_FOR / 10

    def holds(self, space: bytes) -> bool:
        """Tell whether no change of the space's schema can have been committed up to now."""
        return now() < self._until.get(space, 0.0)


def outlast_trust() -> None:
    """Return when nobody trusts any more what he read before this was called."""
    time.sleep(2 * TRUSTED_FOR)
