"""How a member joins a group, and what a job has of a message."""

from __future__ import annotations

import datetime as dt
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

__all__ = ["consumer_of", "forwarded"]

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
    """Do what `SystemData.consumer` says."""
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


def forwarded(message: Message[Any]) -> object:
    """Return a message as the arguments of a job."""
    body = message.body
    if isinstance(body, Change):
        body = {"kind": str(body.kind), "row": dict(body.row)}
    return msgspec.to_builtins(
        {
            "id": message.id,
            "key": message.key,
            "body": body,
            "headers": message.headers,
            "published": message.published,
        }
    )
