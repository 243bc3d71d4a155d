"""The part of a feed to read: positions, and the marks of feeds with full-compaction, which divide a range."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from structable.spi import TableSpecification


@dataclass(frozen=True, slots=True)
class Mark:
    """A state between which the changes of a feed with full-compaction come net."""

    version: int
    time: dt.datetime


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a range, (since, until].

    `mark` gives its changes their version and time; the changes of a segment with a mark are netted.
    """

    since: int
    until: int
    mark: Mark | None = None


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """The part of a feed to read.

    Attributes
    ----------
    spec : TableSpecification
        The present table; the images have its fields.
    feed : str
        The feed.
    segments : tuple of Segment
        The parts of the range, in order; none if it is empty.
    net : bool
        Whether to net the whole range, which is then one segment. The marks of a feed with full-compaction in the
        range, and the first after it, are `stamps`: a change has version and time of the first mark that is not before
        it.
    columns : tuple of str
        The fields wanted.
    state : bytes
        `FeedView.state` of the view that the request was made with.
    after : int, optional
        The first version of the range is read from behind the change of this number.
    """

    spec: TableSpecification
    feed: str
    segments: tuple[Segment, ...]
    net: bool
    columns: tuple[str, ...]
    stamps: tuple[Mark, ...] = ()
    state: bytes = b""
    after: int | None = None


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
