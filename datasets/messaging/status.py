"""`TopicStatus` and `GroupStatus`: the messages that a topic keeps, and the progress of its groups."""

from __future__ import annotations

import datetime as dt
from itertools import islice
from typing import Any, NamedTuple

from structable.datasets.system.messages import GroupSource
from structable.datasets.tables.messaging import Subscription
from structable.spi import Change, ChangesLostError, FeedPosition

from .reading import OpenFeed, Place

_MOST_COUNTED = 100_000


class GroupStatus(NamedTuple):
    """A group of a topic.

    Parameters
    ----------
    group : str
        The group.
    lag : int
        The number of messages that it has not handled.
    seconds : float
        The age of the first of them; 0 if there is none.
    owner : str or None
        The active member; None if it has left.
    attempts : int
        How often the message at its position has failed.
    error : str or None
        The last error there.
    estimated : bool
        Whether the lag is an estimate, beyond 100,000.
    """

    group: str
    lag: int
    seconds: float
    owner: str | None
    attempts: int
    error: str | None
    estimated: bool = False


class TopicStatus(NamedTuple):
    """A topic and its groups.

    Parameters
    ----------
    earliest, latest : FeedPosition
        The position after which every message is kept, and the newest position.
    groups : list of GroupStatus
        The groups, in order.
    """

    earliest: FeedPosition
    latest: FeedPosition
    groups: list[GroupStatus]


def group_status(
    topic: GroupSource[Any],
    feed: OpenFeed,
    row: Subscription,
    earliest: FeedPosition,
    latest: FeedPosition,
    now: dt.datetime,
) -> GroupStatus:
    """Return the progress of a group of a topic."""
    at, error = Place.of(row), row.error
    try:
        lag, first, estimated = _lag(topic, feed, at, latest)
    except ChangesLostError as lost:
        lag, first, estimated = _lag(topic, feed, Place(earliest), latest)
        error = error or str(lost)
    seconds = 0.0 if first is None else max(0.0, (now - first).total_seconds())
    return GroupStatus(row.group, lag, seconds, row.owner, row.attempts, error, estimated)


def _lag(
    topic: GroupSource[Any], feed: OpenFeed, at: Place, latest: FeedPosition
) -> tuple[int, dt.datetime | None, bool]:
    """Return the number of changes behind a place, the time of the first, and whether the number is an estimate."""
    first: Change | None = None
    last: Change | None = None
    count = 0
    with feed.read(at, latest) as changes:
        for change in islice(changes, _MOST_COUNTED + 1):
            first, last, count = first or change, change, count + 1
    time = None if first is None else topic.time(first)
    if count <= _MOST_COUNTED:
        return count, time, False
    assert first is not None
    assert last is not None
    assert last.version is not None
    if last.version == first.version:
        return count, time, True  # one large commit says nothing about later ones
    # Assumes that the other versions have as many messages each.
    passed = last.version - at.position.version
    return max(count, _MOST_COUNTED * (latest.version - at.position.version) // passed), time, True
