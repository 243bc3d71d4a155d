"""`tail`: the messages of a topic behind a place, for those who look; no group moves."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TypeVar

from structable.datasets.coordination.polling import Polling
from structable.datasets.errors import MessagesLostError
from structable.datasets.system.messages import Message, Source
from structable.spi import ChangesLostError, Storage

from .places import place_of
from .reading import OpenFeed

__all__ = ["tail"]

Body = TypeVar("Body")

_TAKEN = 1_000


def tail(
    storage: Storage, topic: Source[Body], prefix: str, place: str | dt.datetime, *, follow: bool
) -> Iterator[Message[Body]]:
    """Yield the messages behind a place, and where `follow` is set those to come, for ever.

    Raises
    ------
    NotFoundError
        If there is no such topic.
    MessagesLostError
        If messages expired before they were read.
    ValueError
        If the place is none.
    """
    feed = OpenFeed.of(storage, topic, prefix)
    polling, listener = Polling(storage), feed.listen() if follow else None
    at = place_of(feed, place)
    while True:
        try:
            reading = feed.reading(at)
            while items := reading.take(_TAKEN):
                for item in items:
                    yield topic.message(item.id, item.change)
                at = reading.at
                polling.found()
        except ChangesLostError as error:
            raise MessagesLostError(at.position, error.earliest) from None
        if listener is None:
            return
        polling.wait(listener)
