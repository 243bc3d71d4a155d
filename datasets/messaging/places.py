"""Places by name: the beginning, the end, behind a message, or at a time."""

from __future__ import annotations

import datetime as dt

from structable.datasets.errors import MessagesLostError
from structable.datasets.system.messages import parse_id
from structable.spi import ChangesLostError
from structable.spi.plain_values import is_aware

from .reading import OpenFeed, Place

__all__ = ["place_of"]


def place_of(feed: OpenFeed, place: str | dt.datetime) -> Place:
    """Return the place that is named: "first", "end", behind the message of an id, or before those since a time.

    Raises
    ------
    ValueError
        If it is no such text, or a time without a zone.
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
