"""The options of `spark.read` on change feeds: which changes are read."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from structable.spi import ChangeFeed, ChangesLostError, FeedPosition
from structable.spi.authors import shown

from .store_client import READ_OPTIONS
from .time_zones import time_zone

FEED_READ_OPTIONS = ("startingversion", "startingtimestamp", "endingversion", "endingtimestamp", "netchanges")
"""The options that need `readChangeFeed`."""

_MOST = (1 << 63) - 1
_DIGITS = 30  # Python reads no number of thousands of digits
_MICROSECOND = dt.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """The range of a feed to read, as the texts that users gave to Spark."""

    starting_version: str | None = None
    starting_timestamp: str | None = None
    ending_version: str | None = None
    ending_timestamp: str | None = None
    net: bool = False

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> FeedOptions | None:
        """Check the options of a feed; None where a table is read. ValueError for one that is invalid."""
        names = {name: given[name] for name in FEED_READ_OPTIONS if name in given}
        if not _truth(given, "readchangefeed"):
            if names:
                extra = ", ".join(READ_OPTIONS[name] for name in names)
                raise ValueError(f"{extra}: the option readChangeFeed=true is missing, without which the table is read")
            return None
        for one, other in (FEED_READ_OPTIONS[:2], FEED_READ_OPTIONS[2:4]):
            if one in given and other in given:
                raise ValueError(f"the options {READ_OPTIONS[one]} and {READ_OPTIONS[other]} exclude each other")
        for name in ("startingversion", "endingversion"):
            if name in given:
                _parsed(given[name], name)
        for name in ("startingtimestamp", "endingtimestamp"):
            if name in given:
                _moment(given[name], name)
        version, time, last_version, last_time, _ = map(given.get, FEED_READ_OPTIONS)
        return cls(version, time, last_version, last_time, _truth(given, "netchanges"))

    @property
    def has_start(self) -> bool:
        return self.starting_version is not None or self.starting_timestamp is not None

    def range_of(self, feed: ChangeFeed, zone: str | None) -> tuple[FeedPosition | None, FeedPosition | None]:
        """Return the range (since, until] of a feed; times without an offset are of the time zone `zone`."""
        since = until = None
        if self.starting_version is not None:
            since = _position(feed, self.starting_version, "startingversion", inclusive_from=True)
        elif self.starting_timestamp is not None:
            since = feed.at(_in_zone(self.starting_timestamp, "startingtimestamp", zone))
        if self.ending_version is not None:
            until = _position(feed, self.ending_version, "endingversion", inclusive_from=False)
        elif self.ending_timestamp is not None:
            last = _in_zone(self.ending_timestamp, "endingtimestamp", zone)
            until = feed.latest() if last.replace(tzinfo=None) == dt.datetime.max else feed.at(last + _MICROSECOND)
        return since, until


def _truth(given: Mapping[str, str], name: str) -> bool:
    text = given.get(name, "false").strip().lower()
    if text not in ("true", "false"):
        raise ValueError(f"the option {READ_OPTIONS[name]} is {given[name]!r}; it must be true or false")
    return text == "true"


def _position(feed: ChangeFeed, text: str, name: str, *, inclusive_from: bool) -> FeedPosition:
    """Return the position that a text names; the changes of a version are part of the range at either end."""
    match _parsed(text, name):
        case int(version):
            try:
                return feed.position(version - inclusive_from)
            except ChangesLostError as lost:
                first = lost.earliest.version + 1
                if version >= first:
                    raise
                reason = (
                    f"the option {READ_OPTIONS[name]} is {text!r}, and the first version that is kept is {first} "
                    "(startingVersion=earliest begins there)"
                )
                raise ChangesLostError(lost.table, lost.position, lost.earliest, reason) from None
        case "earliest":
            return feed.earliest()
        case "latest":
            return feed.latest()
        case position:
            return position


def _parsed(text: str, name: str) -> int | Literal["earliest", "latest"] | FeedPosition:
    """Return the version or position that a text names; ValueError if no range may begin or end there."""
    word = text.strip()
    match word.lower():
        case "earliest" | "latest" as end:
            return end
    if word.isascii() and word.isdigit() and len(word) <= _DIGITS and int(word) <= _MOST:
        return int(word)
    try:
        return FeedPosition.parse(word)
    except ValueError:
        raise ValueError(
            f"the option {READ_OPTIONS[name]} is {shown(text)}; it must be a version (a whole number up to 2**63 - 1), "
            "earliest, latest, or a position as str(position) writes it"
        ) from None


def _moment(text: str, name: str) -> dt.datetime:
    try:
        return dt.datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(
            f"the option {READ_OPTIONS[name]} is {text!r}; it must be a time such as 2026-01-31 12:00:00"
        ) from None


def _in_zone(text: str, name: str, zone: str | None) -> dt.datetime:
    moment = _moment(text, name)
    if moment.utcoffset() is not None:
        return moment
    try:
        return moment.replace(tzinfo=time_zone(zone))
    except ValueError:
        named = "" if zone is None else f" {zone!r}"
        raise ValueError(
            f"the option {READ_OPTIONS[name]} is {text!r}, and the session's time zone{named} is not known here; add "
            "an offset, as in 2026-01-31 12:00:00+00:00"
        ) from None
