"""`Topic`, `Feed` and `Message`: the sources of messages, and how rows of logs and feeds become messages."""

from __future__ import annotations

import builtins
import datetime as dt
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any, Generic, TypeVar, cast

import msgspec

from structable.datasets.errors import NotFoundError, RecordShapeError, RecordTypeError
from structable.datasets.identifiers import check_name
from structable.datasets.records import Record
from structable.datasets.records.documents import MISFITS, Document
from structable.spi import Change, Field, RowKind, TableSpecification, Value
from structable.spi.authors import MAX_KEY_SIZE, shown

Body = TypeVar("Body")

MAX_BODY_SIZE = 1 << 20
REDRIVEN = "structable-redriven"
"""The header of a message that was published again for one group; its value names the group."""
TOPIC_TABLES = "topic_"
"""The prefix of topics' tables, after the prefix of the datasets."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]*\Z")
_LONGEST_NAME = 37
_USUAL_PREFIX = 4
_ID = re.compile(r"(0|[1-9][0-9]{0,18})\.(0|[1-9][0-9]{0,9})\Z")
_WEEK = dt.timedelta(days=7)
_MILLISECOND = dt.timedelta(milliseconds=1)
_HEADERS = msgspec.json.Decoder(dict[str, str])
_SMALL = 32
"""The maximum number of bytes of a value of a fixed width; a decimal has 38 digits."""


def message_id(version: int, number: int) -> str:
    """Return the id of the message of this number in the commit of this version."""
    return f"{version}.{number}"


def parse_id(text: str) -> tuple[int, int]:
    """Return the version and the number of an id.

    Raises
    ------
    ValueError
        If the text is not an id.
    """
    match = _ID.match(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{shown(text)} is not the id of a message, which is VERSION.NUMBER")
    return int(match[1]), int(match[2])


@dataclass(frozen=True, slots=True)
class Message(Generic[Body]):
    """A message of a topic, or a change of a table.

    Parameters
    ----------
    topic : str
        The topic's name; of a change, the table's.
    id : str
        `VERSION.NUMBER`: the commit's version, and the number of the message in it. Messages are ordered by both.
    key : str or None
        What the publisher gave.
    body : Body
        The record or the bytes that were published; of a change, the `Change`.
    headers : mapping of str to str
        What the publisher gave.
    published : datetime
        The publisher's time; of a change, the time of its commit.
    """

    topic: str
    id: str
    key: str | None
    body: Body
    headers: Mapping[str, str]
    published: dt.datetime


class GroupSource(ABC, Generic[Body]):
    """The source that groups read: a topic, or the feed of a table."""

    __slots__ = ()

    @property
    @abstractmethod
    def subject(self) -> str:
        """The name of the source in the rows of its groups."""

    @abstractmethod
    def table(self, prefix: str) -> str:
        """Return the name of the table whose feed is read, for datasets with this prefix."""

    def missing(self, table: str) -> NotFoundError:
        """Return the error for a source whose table does not exist."""
        return NotFoundError(table, (self.subject,), f"there is no table {table!r}")

    @abstractmethod
    def message(self, id: str, change: Change) -> Message[Body]:
        """Return the message of a change.

        Raises
        ------
        RecordShapeError
            If it does not fit the topic's type.
        """

    @abstractmethod
    def time(self, change: Change) -> dt.datetime:
        """Return when a change was published."""

    @abstractmethod
    def stored(self, change: Change) -> tuple[str | None, bytes | None, dict[str, str] | None]:
        """Return key, body and headers as a dead letter keeps them."""

    @abstractmethod
    def excerpt(self, change: Change) -> bytes | None:
        """Return the part of a body that fits in a dead letter; None if the topic keeps the whole one."""

    @abstractmethod
    def body(self, stored: bytes | None) -> object:
        """Return the body of a dead letter; bytes that do not fit the type stay bytes."""


@dataclass(frozen=True)
class Topic(GroupSource[Body]):
    """A topic: messages in the order of their commits, kept for a time.

    Parameters
    ----------
    name : str
        1 to 37 characters of a-z, 0-9 and -, not beginning with -. Each character by which the prefix of the datasets'
        tables is longer than 4 shortens the limit by one.
    type : type
        The type of the bodies: a subclass of `Record`, kept as a JSON document, or bytes.
    retention : timedelta
        How long messages are kept, whether groups have read them or not.

    Raises
    ------
    ValueError
        If the name or the retention is out of its range.
    RecordTypeError
        If the type is neither bytes nor a subclass of `Record`.
    """

    name: str
    type: builtins.type[Body]
    retention: dt.timedelta = field(default=_WEEK, kw_only=True)
    _document: Document | None = field(init=False, repr=False, compare=False, default=None)
    _tables: dict[str, str] = field(init=False, repr=False, compare=False, default_factory=dict)
    """Names of the table by prefix."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.match(self.name) or len(self.name) > _LONGEST_NAME:
            raise ValueError(f"topic {shown(self.name)}: allowed are 1 to {_LONGEST_NAME} of a-z, 0-9, -, not - first")
        if not isinstance(self.retention, dt.timedelta) or self.retention < _MILLISECOND:
            raise ValueError(f"retention is {shown(self.retention)}; it must be a timedelta of at least a millisecond")
        if self.type is not bytes:
            if not (isinstance(self.type, type) and issubclass(self.type, Record)):
                raise RecordTypeError(f"{shown(self.type)} is not a message type; give a subclass of Record, or bytes")
            object.__setattr__(self, "_document", Document(self.name, "body", self.type))

    def __reduce__(self) -> tuple[object, ...]:
        return partial(Topic, retention=self.retention), (self.name, self.type)

    @classmethod
    def checked(cls, topic: Topic[Body]) -> Topic[Body]:
        """Return the topic.

        Raises
        ------
        ValueError
            If it is not a `Topic`.
        """
        if not isinstance(topic, Topic):
            raise ValueError(f"the topic is {shown(topic)}; it must be a Topic")
        return topic

    @property
    def subject(self) -> str:
        return self.name

    def table(self, prefix: str) -> str:
        if (found := self._tables.get(prefix)) is not None:
            return found
        most = _LONGEST_NAME - max(0, len(prefix) - _USUAL_PREFIX)
        if len(self.name) > most:
            raise ValueError(f"topic {self.name!r}: with the prefix {prefix!r}, a name has at most {most} characters")
        name = self._tables[prefix] = f"{prefix}{TOPIC_TABLES}{self.name.replace('-', '_')}"
        return name

    def missing(self, table: str) -> NotFoundError:
        reason = f"there is no topic {self.name!r}, whose table is {table!r}: system.topics.create makes it"
        return NotFoundError(table, (self.name,), reason)

    def specification(self, prefix: str) -> TableSpecification:
        """Return the specification of the topic's table."""
        fields = [Field.string("key"), Field.bytes("body"), Field.string("headers"), Field.timestamp("published")]
        options = {
            "write-mode": "log",
            "changelog.time-retained": f"{self.retention // _MILLISECOND} ms",
        }
        return TableSpecification(self.table(prefix), fields, options=options)

    def encoded(self, body: Body) -> bytes:
        """Return the stored form of a body.

        Raises
        ------
        RecordTypeError, DocumentError
            If it is not of the topic's type.
        """
        if not isinstance(body, self.type):
            raise RecordTypeError(f"{shown(body)} is not a {self.type.__name__}, as the topic {self.name!r} has them")
        return cast("bytes", body) if self._document is None else self._document.encode(body).encode()

    def message(self, id: str, change: Change) -> Message[Body]:
        row, name = change.row, "body"
        try:
            body = cast("Body", self._decoded(row["body"]))
            name = "headers"
            headers = _headers(row["headers"])
        except MISFITS as error:
            reason = f"message {id} does not fit: {error}"
            raise RecordShapeError(f"topic {self.name}", (id,), name, reason) from None
        return Message(self.name, id, cast("str | None", row["key"]), body, headers, self.time(change))

    def time(self, change: Change) -> dt.datetime:
        published = change.row["published"]
        # A row that was inserted by hand may have none.
        return cast("dt.datetime", change.timestamp if published is None else published)

    def stored(self, change: Change) -> tuple[str | None, bytes | None, dict[str, str] | None]:
        row = change.row
        try:
            headers = _headers(row["headers"]) or None
        except MISFITS:
            headers = None
        return cast("str | None", row["key"]), cast("bytes | None", row["body"]), headers

    def excerpt(self, change: Change) -> None:
        """Return nothing: the topic keeps the message."""

    def body(self, stored: bytes | None) -> object:
        try:
            return self._decoded(stored)
        except MISFITS:
            return stored

    def _decoded(self, stored: Value) -> object:
        if not isinstance(stored, bytes):
            raise TypeError(f"the body is {stored!r}")
        found: object = stored if self._document is None else self._document.decode(stored.decode())
        return found


@dataclass(frozen=True)
class Feed(GroupSource[Change]):
    """The change feed of any table, which groups read as a topic; the bodies of its messages are `Change`s.

    Parameters
    ----------
    name : str
        The table's whole name.
    """

    name: str

    def __post_init__(self) -> None:
        check_name(self.name, "feed")
        check_name(self.subject, "feed")

    @property
    def subject(self) -> str:
        return f"feed/{self.name}"

    def table(self, prefix: str) -> str:
        return self.name

    def message(self, id: str, change: Change) -> Message[Change]:
        return Message(self.name, id, None, change, {}, self.time(change))

    def time(self, change: Change) -> dt.datetime:
        assert change.timestamp is not None
        return change.timestamp

    def stored(self, change: Change) -> tuple[None, bytes, None]:
        return None, _packed(change, change.row), None

    def excerpt(self, change: Change) -> bytes:
        kept: dict[str, Value] = {}
        room = MAX_BODY_SIZE
        for name, value in change.row.items():  # the key is first, and each value of it is small
            size = _size(value)
            if size <= MAX_KEY_SIZE and size <= room:
                kept[name] = value
                room -= size
        return _packed(change, kept)

    def body(self, stored: bytes | None) -> Change:
        assert stored is not None
        document = msgspec.msgpack.decode(stored)
        row = {name: _value(value) for name, value in document["row"].items()}
        at = cast("dt.datetime", _value(document["timestamp"]))
        return Change(RowKind(document["kind"]), row, version=document["version"], timestamp=at)


_OF_TEXT: dict[str, Callable[[str], object]] = {
    "Decimal": Decimal,
    "datetime": dt.datetime.fromisoformat,
    "date": dt.date.fromisoformat,
}


def _packed(change: Change, row: Mapping[str, Value]) -> bytes:
    document = {
        "kind": str(change.kind),
        "row": {name: _plain(value) for name, value in row.items()},
        "version": change.version,
        "timestamp": _plain(change.timestamp),
    }
    return msgspec.msgpack.encode(document)


def _size(value: Value) -> int:
    """Return about how many bytes a value takes."""
    if isinstance(value, str):
        return len(value.encode())
    return len(value) if isinstance(value, bytes) else _SMALL


def _plain(value: Value) -> object:
    """Return a value of a row as MessagePack has it: others as a list of their type and a text."""
    return value if value is None or isinstance(value, bool | int | float | str | bytes) else _typed(value)


def _typed(value: object) -> list[str]:
    if isinstance(value, Decimal):
        return ["Decimal", str(value)]
    assert isinstance(value, dt.date)
    return ["datetime" if isinstance(value, dt.datetime) else "date", value.isoformat()]


def _value(plain: object) -> Value:
    if isinstance(plain, list):
        kind, text = plain
        return cast("Value", _OF_TEXT[kind](text))
    return cast("Value", plain)


def _headers(stored: Value) -> dict[str, str]:
    return {} if stored is None else _HEADERS.decode(cast("str", stored))


def subject_of(source: GroupSource[Any]) -> str:
    """Return the name of a source in the rows of its groups.

    Raises
    ------
    ValueError
        If it is neither a `Topic` nor a `Feed`.
    """
    if not isinstance(source, GroupSource):
        raise ValueError(f"the topic is {shown(source)}; it must be a Topic or a Feed")
    return source.subject
