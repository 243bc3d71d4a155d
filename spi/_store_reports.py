"""Reports of a store about itself: its traffic, the sizes of its tables, the findings of a check, a compaction."""

from __future__ import annotations

import enum
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Traffic:
    """The traffic of a storage with its store since it was connected; None for numbers that the store does not count.

    Parameters
    ----------
    round_trips : int or None
        The number of times that a call has waited for an answer of the store. Requests that are sent together are one
        round trip; a store inside the process has none.
    sent, received : int or None
        Bytes.
    """

    round_trips: int | None = None
    sent: int | None = None
    received: int | None = None

    def __add__(self, other: Traffic) -> Traffic:
        """Return the sum; what only one of them counts is its number."""
        return Traffic(
            _sum(self.round_trips, other.round_trips), _sum(self.sent, other.sent), _sum(self.received, other.received)
        )


def _sum(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other


COUNTED_ROWS = 2_000
"""Tables and ranges of at most this many rows are counted exactly."""


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """The size of a table, or of a range of its keys.

    Parameters
    ----------
    rows : int
        The number of rows; an estimate is at least 1.
    bytes : int
        About the size of these rows in memory, all columns together; 0 only without rows.
    exact : bool
        Whether `rows` is the number of rows of one committed state.
    """

    rows: int
    bytes: int
    exact: bool


class FindingLevel(enum.StrEnum):
    """The severity of a finding."""

    OK = "ok"
    NOTE = "note"
    """No problem, but the check was incomplete, or unfinished work will still complete."""
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


@dataclass(frozen=True, slots=True)
class CompactionProgress:
    """The progress of a compaction.

    Parameters
    ----------
    fraction : float
        The part that is done, from 0 to 1.
    bytes : int
        The size of the store when it was last measured, which need not be each time.
    """

    fraction: float
    bytes: int
