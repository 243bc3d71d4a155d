"""`Finding`: one thing that a check of a store has found."""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["Finding", "FindingLevel"]


class FindingLevel(enum.StrEnum):
    """What a finding means."""

    OK = "ok"
    NOTE = "note"
    """Nothing is wrong, but the check says less than it might, or something is unfinished that ends by itself."""
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked.

    Parameters
    ----------
    level : FindingLevel
        What it means.
    subject : str
        What was checked.
    text : str
        What was found.
    """

    level: FindingLevel
    subject: str
    text: str
