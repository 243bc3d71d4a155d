"""`Finding`: one result of a check of a store."""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["Finding", "FindingLevel"]


class FindingLevel(enum.StrEnum):
    """The severity of a finding."""

    OK = "ok"
    NOTE = "note"
    """No problem, but the check could not see everything, or some work is unfinished that completes by itself."""
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check.

    Parameters
    ----------
    level : FindingLevel
        Its severity.
    subject : str
        The subject of the check.
    text : str
        The result, for people.
    """

    level: FindingLevel
    subject: str
    text: str
