"""The tables of messaging: the groups of each topic, the beats of their members, and messages that were given up."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

from structable.datasets.records import Int, Json, Record, RecordTable


class Subscription(Record):
    """A group of a topic: its position in the feed, its active member, and its last failure.

    Parameters
    ----------
    topic, group : str
        The key; the topic of a group over the feed of a table is "feed/" and the table's name.
    position : str
        The text of a `FeedPosition`: everything before it was handled; `number` says how much of the commit at it.
    number : int or None
        The number of the last change handled of the commit at the position; None if it was handled whole.
    isolate : str or None
        The id of the last message of a batch that failed: until it is passed, messages are handled one at a time.
    start : str
        Where the group began, "first" or "end".
    max_attempts : int
        How often a message may fail until it is given up, as set by the member that took over last.
    owner : str or None
        The active member; None if it has left.
    epoch : int
        Grows with each takeover, so that writes of a former member are rejected.
    attempts : int
        How often the message at the position has failed.
    retry_at : datetime or None
        The earliest time of the next attempt.
    error : str or None
        The last error at the position.
    created : datetime
        When the group was first seen.
    """

    topic: str
    group: str
    position: str
    number: Annotated[int, Int] | None = None
    isolate: str | None = None
    start: str
    max_attempts: Annotated[int, Int]
    owner: str | None = None
    epoch: int = 0
    attempts: Annotated[int, Int] = 0
    retry_at: dt.datetime | None = None
    error: str | None = None
    created: dt.datetime


class GroupBeat(Record):
    """The number of beats of a group's members: a row of its own, which handling messages does not write."""

    topic: str
    group: str
    beat: int


class DeadLetterRow(Record):
    """The stored form of a message that a group has given up.

    Parameters
    ----------
    key, body, headers
        The fields of the message. If they do not fit in a row, they are None and are read from the topic; the body of a
        change then has only the small values of its row.
    """

    topic: str
    group: str
    version: int
    number: Annotated[int, Int]
    key: str | None = None
    body: bytes | None = None
    headers: Annotated[dict[str, str], Json] | None = None
    attempts: Annotated[int, Int]
    error: str | None = None
    died: dt.datetime


SUBSCRIPTIONS = RecordTable(Subscription, "subscriptions", key=("topic", "group"))
GROUP_BEATS = RecordTable(GroupBeat, "group_beats", key=("topic", "group"))
DEAD_LETTERS = RecordTable(DeadLetterRow, "dead_letters", key=("topic", "group", "version", "number"))

TABLES = (SUBSCRIPTIONS, GROUP_BEATS, DEAD_LETTERS)
