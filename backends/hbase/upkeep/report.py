"""`Report`: the findings and actions of a round of the janitor."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Report"]


@dataclass(slots=True)
class Report:
    """The findings and actions of a round."""

    # Records by state, as found
    pending: int = 0
    aborted: int = 0
    unfinalised: int = 0
    finalised: int = 0
    # Live processes, processes declared dead, pinned snapshots
    sessions: int = 0
    dead_sessions: int = 0
    plans: int = 0
    clock: int = 0  # the newest timestamp
    safe: int = 0  # the oldest timestamp that can still be read
    repaired: int = 0  # transactions of other processes aborted or finalised
    removed: int = 0  # records removed with the versions they replaced
