"""`Report`: the findings and actions of a round of the janitor."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Report"]


@dataclass(slots=True)
class Report:
    """The findings and actions of a round.

    Parameters
    ----------
    pending, aborted, unfinalised, finalised : int
        Records by state, as found.
    sessions, dead_sessions, plans : int
        Live processes, processes declared dead, pinned snapshots.
    clock, safe : int
        The newest timestamp, and the oldest that can still be read.
    repaired, removed : int
        Transactions of other processes aborted or finalised; records removed with the versions they replaced.
    """

    pending: int = 0
    aborted: int = 0
    unfinalised: int = 0
    finalised: int = 0
    sessions: int = 0
    dead_sessions: int = 0
    plans: int = 0
    clock: int = 0
    safe: int = 0
    repaired: int = 0
    removed: int = 0
