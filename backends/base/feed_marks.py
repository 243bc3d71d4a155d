"""Marks of feeds with full-compaction, and the parts into which they divide a range."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["Mark", "Segment", "between_marks", "mark_at", "mark_before"]


@dataclass(frozen=True, slots=True)
class Mark:
    """A state between which the changes of a feed with full-compaction come net."""

    version: int
    time: dt.datetime


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a range, (since, until].

    `mark` is what stamps its changes; the changes of a segment with one are netted.
    """

    since: int
    until: int
    mark: Mark | None = None


def between_marks(marks: Sequence[Mark], since: int, until: int) -> list[Segment]:
    """Return the parts of a range that end with a mark."""
    within = [mark for mark in marks if since < mark.version <= until]
    starts = [since, *(mark.version for mark in within)]
    return [Segment(start, mark.version, mark) for start, mark in zip(starts, within, strict=False)]


def mark_at(marks: Sequence[Mark], moment: dt.datetime) -> int:
    """Return the mark before the first that is not older than a time, or the newest."""
    return next((one.version for one, other in pairwise(marks) if other.time >= moment), marks[-1].version)


def mark_before(marks: Sequence[Mark], version: int) -> int:
    """Return the newest mark up to a version, which is not below the first."""
    return max(mark.version for mark in marks if mark.version <= version)
