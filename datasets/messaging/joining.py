"""How a member joins a group, and a message as the document that jobs and commands have of it."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from structable.datasets.coordination.watch import Watch, check_ttl
from structable.datasets.identifiers import check_name
from structable.datasets.system.context import Context
from structable.datasets.system.messages import Message, Source
from structable.spi import Change, Storage, Transaction

from .consumer import Consumer
from .groups import Group
from .reading import OpenFeed

__all__ = ["body_document", "consumer_of", "document_of"]

Body = TypeVar("Body")

_MOST_ATTEMPTS = 2**31 - 1


def consumer_of(
    storage: Storage,
    contexts: Callable[[Transaction], Context],
    topic: Source[Body],
    group: str,
    *,
    prefix: str,
    start: str,
    max_attempts: int,
    on_lost: str,
    ttl: int,
    watch: Watch,
    now: Callable[[], dt.datetime],
) -> Consumer[Body]:
    """Implement `SystemData.consumer`."""
    check_name(group, "group")
    check_ttl(ttl)
    if isinstance(max_attempts, bool) or not isinstance(max_attempts, int) or not 1 <= max_attempts <= _MOST_ATTEMPTS:
        raise ValueError(f"max_attempts is {max_attempts!r}; it must be an integer of 1 to {_MOST_ATTEMPTS:,}")
    for name, value, allowed in (("start", start, ("first", "end")), ("on_lost", on_lost, ("raise", "skip"))):
        if value not in allowed:
            raise ValueError(f"{name} is {value!r}; it must be {allowed[0]!r} or {allowed[1]!r}")
    feed = OpenFeed.of(storage, topic, prefix)
    member = Group(storage, contexts, topic, group, max_attempts=max_attempts, ttl=ttl, watch=watch, now=now)
    member.ensure(start, feed.changes.earliest if start == "first" else feed.changes.latest)
    return Consumer(feed, member, skips_lost=on_lost == "skip")


def document_of(message: Message[Any]) -> dict[str, object]:
    """Return a message as a document: bytes as Base64, and of a change its kind and its row."""
    return {
        "id": message.id,
        "key": message.key,
        "body": body_document(message.body),
        "headers": dict(message.headers),
        "published": message.published.isoformat(),
    }


def body_document(body: object) -> object:
    """Return the body of a message as a document: numbers that JSON does not have as "nan", "inf" and "-inf"."""
    if isinstance(body, Change):
        row = {
            name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in body.row.items()
        }
        body = {"kind": str(body.kind), "row": row}
    return msgspec.to_builtins(body)
