"""`Topics`: create, delete and inspect topics; move groups; publish dead letters again, or delete them."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import msgspec

from structable.datasets.errors import NotFoundError
from structable.datasets.identifiers import check_name
from structable.datasets.system.context import Context
from structable.datasets.system.messages import REDRIVEN, GroupSource, Topic, message_id, parse_id, subject_of
from structable.datasets.system.publishing import insert
from structable.datasets.tables.messaging import DEAD_LETTERS, GROUP_BEATS, SUBSCRIPTIONS, DeadLetterRow, Subscription
from structable.spi import Filter, Range, Storage, TableNotFoundError, Transaction, UnsupportedOperationError, col

from .groups import moved
from .reading import OpenFeed, place_of
from .status import TopicStatus, group_status

Result = TypeVar("Result")

_CHUNK = 100


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that a group has given up.

    Parameters
    ----------
    id, key, body, headers
        The message's fields. A body that does not fit the topic's type is bytes; one that is no longer kept is None.
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

    Calls take a topic as its `Topic`, and the feed of a table that has groups as its `Feed`; any other topic is a
    `ValueError`.
    """

    def __init__(self, storage: Storage, contexts: Callable[[Transaction], Context], prefix: str) -> None:
        self._storage = storage
        self._contexts = contexts
        self._prefix = prefix

    def create(self, topic: Topic[Any]) -> None:
        """Create the topic, or give an existing one this retention.

        Raises
        ------
        ValueError
            If the name is too long for the prefix of the tables.
        SchemaIncompatibleError
            If another table has the name of the topic's table.
        """
        specification = Topic.checked(topic).specification(self._prefix)
        groups = self._rows(topic)
        if specification.name not in self._storage.admin.list():
            # Groups of a deleted topic. Before the table is made, so that a second call completes one that was killed.
            self._remove_groups(topic, groups)
        self._storage.admin.create_or_update(specification)

    def delete(self, topic: GroupSource[Any]) -> None:
        """Delete the topic with its messages, groups and dead letters; an absent one is not an error.

        For a `Feed` it deletes only groups and dead letters: the table stays. The next call, or `create`, completes a
        call that was killed.
        """
        if isinstance(topic, Topic):
            with contextlib.suppress(TableNotFoundError):  # a killed call may already have dropped it
                self._storage.admin.drop(topic.table(self._prefix))
        self._remove_groups(topic, self._rows(topic))

    def status(self, topic: GroupSource[Any]) -> TopicStatus:
        """Return the kept range of a topic, and the progress of its groups.

        Raises
        ------
        NotFoundError
            If there is no such topic.
        """
        feed = OpenFeed.of(self._storage, topic, self._prefix)
        groups = self._rows(topic)
        earliest, latest = feed.changes.earliest(), feed.changes.latest()
        now = self._run(lambda context: context.now(), read_only=True)
        return TopicStatus(earliest, latest, [group_status(topic, feed, row, earliest, latest, now) for row in groups])

    def seek(self, topic: GroupSource[Any], group: str, place: str | dt.datetime) -> None:
        """Move a group; its active member can no longer commit messages that it has taken.

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
            If the place is another text, or a time without a zone.
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

    def dead(self, topic: GroupSource[Any], group: str) -> list[DeadLetter]:
        """Return the messages that a group has given up, in their order.

        A message that is too large for a dead letter together with its error is read from the topic. Once it expires,
        its body is None. The body of such a change has only values of up to 2,000 bytes, the key included.
        """
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
            for row in self._whole(topic, self._letters(topic, group))
        ]

    def redrive(self, topic: GroupSource[Any], group: str, ids: Iterable[str] | None = None) -> int:
        """Publish dead letters again, for this group alone: all, or those with the given ids. Return their number.

        They have the header `structable-redriven`, which makes other groups skip them.

        Raises
        ------
        NotFoundError
            If there is no dead letter of an id, the topic is gone, or a message that is too large for a dead letter has
            expired: `purge` deletes it.
        ValueError
            If a text is not an id.
        UnsupportedOperationError
            For the feed of a table: its changes cannot be published.
        """
        if not isinstance(topic, Topic):
            raise UnsupportedOperationError(
                f"the changes of {subject_of(topic)} cannot be published again; act on what `dead` returns, then "
                "`purge`"
            )
        check_name(group, "group")
        keys = self._keys(topic, group, ids)  # before the large ones, which then include all of theirs
        large = self._letters(topic, group, where=col("body").is_null())
        whole = {(row.version, row.number): row for row in self._whole(topic, large)}

        def give_back(context: Context, rows: list[DeadLetterRow]) -> None:
            for letter in rows:
                row = whole.get((letter.version, letter.number), letter)
                if row.body is None:
                    raise NotFoundError(topic.table(self._prefix), (message_id(row.version, row.number),))
                insert(context, topic, row.key, row.body, {**(row.headers or {}), REDRIVEN: group})

        return self._taken(keys, give_back, is_all=ids is None)

    def purge(self, topic: GroupSource[Any], group: str, ids: Iterable[str] | None = None) -> int:
        """Delete dead letters, all or those with the given ids, and return their number.

        Raises
        ------
        NotFoundError
            If there is no dead letter of an id.
        ValueError
            If a text is not an id.
        """
        return self._taken(self._keys(topic, group, ids), lambda context, rows: None, is_all=ids is None)

    def _run(self, body: Callable[[Context], Result], *, read_only: bool = False) -> Result:
        return self._storage.run(lambda tx: body(self._contexts(tx)), read_only=read_only)

    def _rows(self, topic: GroupSource[Any]) -> list[Subscription]:
        def read(context: Context) -> list[Subscription]:
            with context.records(SUBSCRIPTIONS).scan(Range.prefix((subject_of(topic),))) as found:
                return list(found)

        return self._run(read, read_only=True)

    def _letters(self, topic: GroupSource[Any], group: str, *, where: Filter | None = None) -> list[DeadLetterRow]:
        def read(context: Context) -> list[DeadLetterRow]:
            with context.records(DEAD_LETTERS).scan(Range.prefix((subject_of(topic), group)), where=where) as found:
                return list(found)

        return self._run(read, read_only=True)

    def _whole(self, topic: GroupSource[Any], letters: list[DeadLetterRow]) -> list[DeadLetterRow]:
        """Return dead letters; one without a body is filled from the topic, if it still keeps the message."""
        if all(row.body is not None for row in letters):
            return letters
        try:
            feed = OpenFeed.of(self._storage, topic, self._prefix)
        except NotFoundError:
            return letters
        return [row if row.body is not None else _completed(topic, feed, row) for row in letters]

    def _keys(self, topic: GroupSource[Any], group: str, ids: Iterable[str] | None) -> list[tuple[object, ...]]:
        if ids is None:
            return [(topic.subject, group, row.version, row.number) for row in self._letters(topic, group)]
        if isinstance(ids, str):
            raise ValueError(f"ids is {ids!r}; it must be a list of ids")
        return [(subject_of(topic), group, *parse_id(one)) for one in dict.fromkeys(ids)]

    def _taken(
        self,
        keys: list[tuple[object, ...]],
        act: Callable[[Context, list[DeadLetterRow]], None],
        *,
        is_all: bool,
    ) -> int:
        """Delete dead letters in transactions that also pass them to `act`.

        Unless they are all of a group, a missing one is an error.
        """
        done = 0

        def take(context: Context, wanted: list[tuple[object, ...]]) -> int:
            letters = context.records(DEAD_LETTERS)
            rows = letters.get_many(wanted)
            if not is_all and len(rows) < len(wanted):
                found = {(row.topic, row.group, row.version, row.number) for row in rows}
                raise NotFoundError(letters.table.specification.name, next(key for key in wanted if key not in found))
            act(context, rows)
            for row in rows:
                letters.delete(row.topic, row.group, row.version, row.number)
            return len(rows)

        for chunk in _chunks(keys):
            done += self._run(partial(take, wanted=chunk))
        return done

    def _remove_groups(self, topic: GroupSource[Any], groups: Iterable[Subscription]) -> None:
        """Remove groups with their dead letters; the group last, so that a call after a killed one finds it."""
        for row in groups:
            self.purge(topic, row.group)
            self._run(partial(_remove_group, row=row))


def _completed(topic: GroupSource[Any], feed: OpenFeed, row: DeadLetterRow) -> DeadLetterRow:
    change = feed.change(row.version, row.number)
    if change is None:
        return row
    key, body, headers = topic.stored(change)
    return msgspec.structs.replace(row, key=key, body=body, headers=headers)


def _remove_group(context: Context, row: Subscription) -> None:
    groups, letters = context.records(SUBSCRIPTIONS), context.records(DEAD_LETTERS)
    found = groups.get(row.topic, row.group)
    if found is None or found.created != row.created:
        return  # removed, and now a group of a newer topic
    letters.delete_all(Range.prefix((row.topic, row.group)))  # its member may have just given up a message
    context.records(GROUP_BEATS).delete(row.topic, row.group)
    groups.delete(row.topic, row.group)


def _chunks(keys: list[tuple[object, ...]]) -> Iterator[list[tuple[object, ...]]]:
    rest = iter(keys)
    while chunk := list(islice(rest, _CHUNK)):
        yield chunk
