"""`Topics`: topics are made, deleted and looked at; groups are moved, and their dead letters given back."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import msgspec

from structable.datasets.errors import NotFoundError
from structable.datasets.identifiers import check_name
from structable.datasets.system.context import Context
from structable.datasets.system.messages import REDRIVEN, Source, Topic, insert, message_id, parse_id
from structable.datasets.tables.messaging import (
    DEAD_LETTERS,
    GROUP_BEATS,
    SUBSCRIPTIONS,
    DeadLetterRow,
    Subscription,
)
from structable.spi import (
    Change,
    ChangesLostError,
    FeedPosition,
    Range,
    Storage,
    TableNotFoundError,
    Transaction,
    UnsupportedOperationError,
)

from .groups import moved
from .places import place_of
from .reading import OpenFeed, Place

__all__ = ["DeadLetter", "GroupStatus", "TopicStatus", "Topics"]

Result = TypeVar("Result")

_MOST_COUNTED = 100_000
_CHUNK = 100


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
        The position after which everything is kept, and the newest.
    groups : list of GroupStatus
        The groups, in order.
    """

    earliest: FeedPosition
    latest: FeedPosition
    groups: list[GroupStatus]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that a group has given up.

    Parameters
    ----------
    id, key, body, headers
        Those of the message; the bytes of a body that does not fit the topic's type.
    attempts : int
        How often it had failed.
    error : str or None
        The last error.
    died : datetime
        When it was given up.
    """

    id: str
    key: str | None
    body: object
    headers: dict[str, str]
    attempts: int
    error: str | None
    died: dt.datetime


class Topics:
    """The topics of a store: `system.topics`. Safe to share between threads; calls are transactions of their own.

    A topic is given as its `Topic`, and the feed of a table, where it has groups, as its `Feed`.
    """

    def __init__(self, storage: Storage, contexts: Callable[[Transaction], Context], prefix: str) -> None:
        self._storage = storage
        self._contexts = contexts
        self._prefix = prefix

    def create(self, topic: Topic[Any]) -> None:
        """Make the topic; where it is there, change its retention if that is another one.

        Raises
        ------
        ValueError
            If the name is too long for the prefix of the tables.
        SchemaIncompatibleError
            If there is another table of its table's name.
        """
        specification = topic.specification(self._prefix)
        is_new = specification.name not in self._storage.admin.list()
        self._storage.admin.create_or_update(specification)
        if is_new:
            feed = self._storage.changes(specification.name).latest().feed
            self._remove_groups(topic, lambda row: FeedPosition.parse(row.position).feed != feed)

    def delete(self, topic: Source[Any]) -> None:
        """Delete the topic with its messages, groups and dead letters; an absent one is no error.

        Of the feed of a table it deletes groups and dead letters alone: the table stays. A call that was killed is
        completed by the next one, or by `create`.
        """
        if isinstance(topic, Topic):
            with contextlib.suppress(TableNotFoundError):  # after a call that was killed, only the rest is there
                self._storage.admin.drop(topic.table(self._prefix))
        self._remove_groups(topic, lambda row: True)

    def status(self, topic: Source[Any]) -> TopicStatus:
        """Return what is kept of a topic, and how far its groups are.

        Raises
        ------
        NotFoundError
            If there is no such topic.
        """
        feed = OpenFeed.of(self._storage, topic, self._prefix)
        groups = self._rows(topic)
        earliest, latest = feed.changes.earliest(), feed.changes.latest()
        now = self._run(lambda context: context.now(), read_only=True)
        return TopicStatus(earliest, latest, [_status(topic, feed, row, earliest, latest, now) for row in groups])

    def seek(self, topic: Source[Any], group: str, place: str | dt.datetime) -> None:
        """Move a group; what its active member has out is not committed any more.

        Parameters
        ----------
        place : str or datetime
            "first": before the earliest message that is kept; "end": behind the latest; the id of a message: behind it,
            and where messages are read by whole commits, behind its commit; a time: before the first message that was
            committed then or later.

        Raises
        ------
        NotFoundError
            If there is no such topic, or no such group.
        ValueError
            If the place is no such text, or a time without a zone.
        MessagesLostError
            If the message of the id is not kept.
        """
        feed = OpenFeed.of(self._storage, topic, self._prefix)
        to = place_of(feed, place)

        def move(context: Context) -> None:
            rows = context.records(SUBSCRIPTIONS)
            row = rows.get(topic.subject, group)
            if row is None:
                raise NotFoundError(rows.table.specification.name, (topic.subject, group))
            rows.put(msgspec.structs.replace(moved(row, to), isolate=None))

        self._run(move)

    def dead(self, topic: Source[Any], group: str) -> list[DeadLetter]:
        """Return the messages that a group has given up, in their order."""
        return [
            DeadLetter(
                message_id(row.version, row.number),
                row.key,
                topic.body(row.body),
                row.headers or {},
                row.attempts,
                row.error,
                row.died,
            )
            for row in self._letters(topic, group)
        ]

    def redrive(self, topic: Source[Any], group: str, ids: Iterable[str] | None = None) -> int:
        """Publish dead letters again, for this group alone, and return how many: all, or those with the given ids.

        They have the header `structable-redriven`, by which other groups pass them over.

        Raises
        ------
        NotFoundError
            If there is no dead letter of an id, or the topic is gone.
        ValueError
            If an id is none.
        UnsupportedOperationError
            Of the feed of a table, whose changes cannot be published.
        """
        if not isinstance(topic, Topic):
            raise UnsupportedOperationError(
                f"the changes of {topic.subject} cannot be published anew: act on what `dead` returns, then `purge`"
            )
        check_name(group, "group")

        def give_back(context: Context, rows: list[DeadLetterRow]) -> None:
            for row in rows:
                insert(context, topic, row.key, row.body, {**(row.headers or {}), REDRIVEN: group})

        return self._taken(topic, group, ids, give_back)

    def purge(self, topic: Source[Any], group: str, ids: Iterable[str] | None = None) -> int:
        """Delete dead letters, and return how many: all, or those with the given ids.

        Raises
        ------
        NotFoundError
            If there is no dead letter of an id.
        ValueError
            If an id is none.
        """
        return self._taken(topic, group, ids, lambda context, rows: None)

    def _run(self, body: Callable[[Context], Result], *, read_only: bool = False) -> Result:
        return self._storage.run(lambda tx: body(self._contexts(tx)), read_only=read_only)

    def _rows(self, topic: Source[Any]) -> list[Subscription]:
        def read(context: Context) -> list[Subscription]:
            with context.records(SUBSCRIPTIONS).scan(Range.prefix((topic.subject,))) as found:
                return list(found)

        return self._run(read, read_only=True)

    def _letters(self, topic: Source[Any], group: str) -> list[DeadLetterRow]:
        def read(context: Context) -> list[DeadLetterRow]:
            with context.records(DEAD_LETTERS).scan(Range.prefix((topic.subject, group))) as found:
                return list(found)

        return self._run(read, read_only=True)

    def _taken(
        self,
        topic: Source[Any],
        group: str,
        ids: Iterable[str] | None,
        act: Callable[[Context, list[DeadLetterRow]], None],
    ) -> int:
        """Delete dead letters, in transactions in which something else is done with them."""
        if ids is None:
            keys: list[tuple[object, ...]] = [
                (topic.subject, group, row.version, row.number) for row in self._letters(topic, group)
            ]
        else:
            keys = [(topic.subject, group, *parse_id(one)) for one in dict.fromkeys(ids)]
        done = 0

        def take(context: Context, wanted: list[tuple[object, ...]]) -> int:
            letters = context.records(DEAD_LETTERS)
            rows = letters.get_many(wanted)
            if ids is not None and len(rows) < len(wanted):
                found = {(row.topic, row.group, row.version, row.number) for row in rows}
                raise NotFoundError(letters.table.specification.name, next(key for key in wanted if key not in found))
            act(context, rows)
            for row in rows:
                letters.delete(row.topic, row.group, row.version, row.number)
            return len(rows)

        for chunk in _chunks(keys):
            done += self._run(partial(take, wanted=chunk))
        return done

    def _remove_groups(self, topic: Source[Any], removed: Callable[[Subscription], bool]) -> None:
        """Remove groups with their dead letters; the group last, so that a killed call leaves it for the next one."""
        for row in filter(removed, self._rows(topic)):
            self.purge(topic, row.group)

            def remove(context: Context, row: Subscription = row) -> None:
                letters = context.records(DEAD_LETTERS)
                with letters.scan(Range.prefix((row.topic, row.group))) as found:
                    since = list(found)  # its member may have given up a message meanwhile
                for one in since:
                    letters.delete(one.topic, one.group, one.version, one.number)
                context.records(GROUP_BEATS).delete(row.topic, row.group)
                context.records(SUBSCRIPTIONS).delete(row.topic, row.group)

            self._run(remove)


def _chunks(keys: list[tuple[object, ...]]) -> Iterator[list[tuple[object, ...]]]:
    rest = iter(keys)
    while chunk := list(islice(rest, _CHUNK)):
        yield chunk


def _status(
    topic: Source[Any],
    feed: OpenFeed,
    row: Subscription,
    earliest: FeedPosition,
    latest: FeedPosition,
    now: dt.datetime,
) -> GroupStatus:
    at, error = Place.of(row), row.error
    try:
        lag, first, estimated = _lag(topic, feed, at, latest)
    except ChangesLostError as lost:
        lag, first, estimated = _lag(topic, feed, Place(earliest), latest)
        error = error or str(lost)
    seconds = 0.0 if first is None else max(0.0, (now - first).total_seconds())
    return GroupStatus(row.group, lag, seconds, row.owner, row.attempts, error, estimated)


def _lag(topic: Source[Any], feed: OpenFeed, at: Place, latest: FeedPosition) -> tuple[int, dt.datetime | None, bool]:
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
        return count, time, True  # one large commit says nothing of those behind it
    # As if the rest of the versions had as many messages.
    passed = last.version - at.position.version
    return max(count, _MOST_COUNTED * (latest.version - at.position.version) // passed), time, True
