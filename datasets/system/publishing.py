"""Publishing: the insert of a message into the log of its topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from structable.datasets.errors import DocumentError
from structable.datasets.records.documents import Document
from structable.spi import FieldSizeLimitError, TableNotFoundError
from structable.spi.authors import shown

from .context import Context
from .messages import MAX_BODY_SIZE, Topic

Body = TypeVar("Body")

_RESERVED = "structable-"


def publish(
    context: Context, topic: Topic[Body], body: Body, key: str | None, headers: Mapping[str, str] | None
) -> None:
    """Insert a message into a topic's log, with the errors of `Session.publish`."""
    Topic.checked(topic)
    if headers is not None and not (isinstance(headers, Mapping) and all(isinstance(name, str) for name in headers)):
        reason = f"{shown(headers)} is not a mapping of texts to texts"
        raise DocumentError(topic.table(context.prefix), "headers", reason)
    for name in headers or ():
        if name.startswith(_RESERVED):
            raise ValueError(f"header {name!r}: names that begin with {_RESERVED!r} are structable's")
    insert(context, topic, key, topic.encoded(body), headers)


def insert(
    context: Context, topic: Topic[Body], key: str | None, body: bytes, headers: Mapping[str, str] | None
) -> None:
    """Insert a message whose body is encoded."""
    name = topic.table(context.prefix)
    if len(body) > MAX_BODY_SIZE:
        raise FieldSizeLimitError(name, "body", len(body), MAX_BODY_SIZE)
    text = Document(name, "headers", dict[str, str]).encode(dict(headers)) if headers else None
    row = {"key": key, "body": body, "headers": text, "published": context.now()}
    try:
        context.tx.table(name).insert(row)
    except TableNotFoundError:
        raise topic.missing(name) from None
