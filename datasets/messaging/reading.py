"""`Place`, `Reading` and `tail`: the place of a group in a feed, and the messages behind it."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeVar

import msgspec

from structable.datasets.coordination.polling import Polling
from structable.datasets.errors import MessagesLostError
from structable.datasets.system.messages import GroupSource, Message, message_id, parse_id, subject_of
from structable.datasets.tables.messaging import Subscription
from structable.spi import (
    Change,
    ChangeIterator,
    ChangelogProducer,
    ChangesLostError,
    FeedPosition,
    Listener,
    Storage,
    TableNotFoundError,
)
from structable.spi.authors import feed_channel, is_aware

Body = TypeVar("Body")

_TAILED = 1_000
"""The number of messages that `tail` reads at a time."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place between two messages: behind all commits up to the position, or inside the commit at it.

    Parameters
    ----------
    position : FeedPosition
        The position.
    number : int or None
        The number of the last message before the place, in the commit at the position; None after the whole commit.
    """

    position: FeedPosition
    number: int | None = None

    @classmethod
    def of(cls, row: Subscription) -> Self:
        """Return the place of a group."""
        return cls(FeedPosition.parse(row.position), row.number)

    def behind(self, item: Numbered, following: Numbered | None) -> Place:
        """Return the place between two messages of the same feed; `following` is None until there is a second one."""
        # After the last message of a commit the place is behind the commit: inside it, the place would expire with it.
        inside = following is not None and following.version == item.version
        return Place(FeedPosition(self.position.feed, item.version), item.number if inside else None)

    def passed(self, id: str) -> bool:
        """Return whether the message of an id is before this place."""
        version, number = parse_id(id)
        if version == self.position.version:
            return self.number is None or number <= self.number
        return version < self.position.version


class Numbered(NamedTuple):
    """A change, with the version and the number that make up its id."""

    version: int
    number: int
    change: Change

    @property
    def id(self) -> str:
        """The message's id."""
        return message_id(self.version, self.number)


class Reading:
    """The changes behind a place, taken in batches; `at` is the place behind the last batch.

    Parameters
    ----------
    changes : ChangeIterator
        The changes.
    at : Place
        The place.
    order : callable, optional
        For a feed without numbers: the sort key of a change. The changes of a commit are sorted and then numbered, and
        batches end with a commit.

    Raises
    ------
    ChangesLostError
        If changes behind the place were dropped; also from `take`.
    """

    def __init__(self, changes: ChangeIterator, at: Place, order: Callable[[Change], Any] | None) -> None:
        self.at = at
        self._order = order
        self._changes = changes
        self._numbered = _numbered(changes)
        self._following: Numbered | None = None
        self._next = self._unit()

    def take(self, limit: int) -> list[Numbered]:
        """Return at most `limit` changes. With `order` they are whole commits, at least one even beyond the limit."""
        taken: list[Numbered] = []
        while self._next and (not taken or len(taken) + len(self._next) <= limit):
            taken += self._next
            self._next = self._unit()
        if taken:
            self.at = self.at.behind(taken[-1], self.following)
        return taken

    @property
    def following(self) -> Numbered | None:
        """The next change to be taken; None if nothing is left."""
        return self._next[0] if self._next else None

    def close(self) -> None:
        """Close the iterator of changes."""
        self._changes.close()

    def _unit(self) -> list[Numbered]:
        """Return the next change, or the changes of the next commit; an empty list at the end."""
        first = self._following or next(self._numbered, None)
        self._following = None
        if first is None:
            return []
        if self._order is None:
            return [first]
        changes = [first.change]
        while (following := next(self._numbered, None)) is not None and following.version == first.version:
            changes.append(following.change)
        self._following = following
        # Stores return the changes of a commit in any order, but a preimage directly before its postimage.
        changes.sort(key=self._order)
        return [Numbered(first.version, place, change) for place, change in enumerate(changes)]


def _numbered(changes: Iterator[Change]) -> Iterator[Numbered]:
    for change in changes:
        assert change.version is not None
        yield Numbered(change.version, change.number or 0, change)


class OpenFeed:
    """The feed that a consumer reads, with the options of its table.

    Parameters
    ----------
    storage : Storage
        The store.
    table : str
        The table's name.

    Raises
    ------
    TableNotFoundError
        If there is no such table.
    UnsupportedOperationError
        If it has no feed.
    """

    def __init__(self, storage: Storage, table: str) -> None:
        specification = storage.admin.get_specification(table)
        options = specification.table_options
        self.storage = storage
        self.table = table
        self.changes = storage.changes(table)
        self.retention = options.time_retained
        self.whole_commits = options.changelog_producer is not ChangelogProducer.INPUT
        self._key = specification.primary_key
        self.changes.earliest()  # raises if there is no feed

    @classmethod
    def of(cls, storage: Storage, topic: GroupSource[Any], prefix: str) -> Self:
        """Return the feed of a topic.

        Raises
        ------
        NotFoundError
            If there is no such topic.
        UnsupportedOperationError
            If its table has no feed.
        ValueError
            If it is neither a `Topic` nor a `Feed`.
        """
        subject_of(topic)
        table = topic.table(prefix)
        try:
            return cls(storage, table)
        except TableNotFoundError:
            raise topic.missing(table) from None

    def reading(self, at: Place) -> Reading:
        """Read behind a place in batches."""
        return Reading(self.read(at), at, self._order if self.whole_commits else None)

    def read(self, at: Place, until: FeedPosition | None = None) -> ChangeIterator:
        """Read the changes behind a place, up to a position."""
        # Where commits are read whole, a place with a number belongs to a former feed, and the store reports it lost.
        return self.changes.read(at.position, until, after=None if self.whole_commits else at.number)

    def change(self, version: int, number: int) -> Change | None:
        """Return the change with this id, or None if it is no longer kept. The feed must number its changes."""
        first = number == 0
        try:
            at = Place(self.changes.position(version - first), None if first else number - 1)
            with closing(self.reading(at)) as reading:
                found = reading.take(1)
        except ChangesLostError:
            return None
        return found[0].change if found and (found[0].version, found[0].number) == (version, number) else None

    def listen(self) -> Listener:
        """Listen for commits."""
        return self.storage.listen([feed_channel(self.table)])

    def _order(self, change: Change) -> object:
        if self._key:
            return tuple(change.row[name] for name in self._key)
        return repr((change.kind, sorted(change.row.items(), key=lambda item: item[0])))


def place_of(feed: OpenFeed, place: str | dt.datetime) -> Place:
    """Return a named place: "first", "end", an id (behind its message) or a time (before later messages).

    Raises
    ------
    ValueError
        If it is another text, or a time without a zone.
    MessagesLostError
        If the message of the id is not kept.
    """
    changes = feed.changes
    if isinstance(place, dt.datetime):
        if not is_aware(place):
            raise ValueError(f"the time is {place!r}; it must be an aware datetime")
        return Place(changes.at(place))
    match place:
        case "first":
            return Place(changes.earliest())
        case "end":
            return Place(changes.latest())
    version, number = parse_id(place)
    try:
        reading = feed.reading(Place(changes.position(version), None if feed.whole_commits else number))
        reading.close()
    except ChangesLostError as error:
        raise MessagesLostError(error.position, error.earliest) from None
    following = reading.following
    return reading.at if following is not None and following.version == version else Place(reading.at.position)


def tail(
    storage: Storage, topic: GroupSource[Body], prefix: str, place: str | dt.datetime, *, follow: bool
) -> Iterator[Message[Body]]:
    """Yield the messages behind a place; with `follow`, also later ones, for ever. No group moves.

    Raises
    ------
    NotFoundError
        If there is no such topic.
    MessagesLostError
        If messages expired before they were read.
    ValueError
        If the place is not one that `place_of` accepts.
    """
    feed = OpenFeed.of(storage, topic, prefix)
    polling, listener = Polling(storage), feed.listen() if follow else None
    at = place_of(feed, place)
    while True:
        try:
            reading = feed.reading(at)
            while items := reading.take(_TAILED):
                for item in items:
                    yield topic.message(item.id, item.change)
                at = reading.at
                polling.found()
        except ChangesLostError as error:
            raise MessagesLostError(at.position, error.earliest) from None
        if listener is None:
            return
        polling.wait(listener)


def document_of(message: Message[Any]) -> dict[str, object]:
    """Return a message as a document: bytes as Base64, a change as its kind and its row."""
    return {
        "id": message.id,
        "key": message.key,
        "body": body_document(message.body),
        "headers": dict(message.headers),
        "published": message.published.isoformat(),
    }


def body_document(body: object) -> object:
    """Return the body of a message as a document: NaN and infinities as "nan", "inf" and "-inf"."""
    if isinstance(body, Change):
        row = {
            name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in body.row.items()
        }
        body = {"kind": str(body.kind), "row": row}
    return msgspec.to_builtins(body)
