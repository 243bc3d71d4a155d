"""The names of channels, and how long a listener may wait."""

from __future__ import annotations

from collections.abc import Iterable

from structable.spi._error_texts import shown
from structable.spi._values import is_storable

_LONGEST = 200
_LONGEST_WAIT = 1_000_000_000
_FEED = "feed/"


def feed_channel(table: str) -> str:
    """Return the channel that commits signal by themselves if they append to the change feed of a table."""
    return f"{_FEED}{table}"


def feeds_of(channels: Iterable[str]) -> list[str]:
    """Return the tables whose feeds' channels are among these."""
    return [channel.removeprefix(_FEED) for channel in channels if channel.startswith(_FEED)]


def check_channel(given: object) -> str:
    """Return the name of a channel.

    Raises
    ------
    ValueError
        If it is not a string of 1 to 200 characters, or has NUL characters or lone surrogates.
    """
    if not isinstance(given, str) or not 1 <= len(given) <= _LONGEST:
        raise ValueError(f"the channel is {shown(given)}; it must be a string of 1 to {_LONGEST} characters")
    if not is_storable(given):
        raise ValueError(f"the channel is {given!r}; it must not hold NUL characters or lone surrogates")
    return str(given)


def check_channels(given: object) -> tuple[str, ...]:
    """Return the channels of a listener, each once.

    Raises
    ------
    ValueError
        If they are not an iterable, are a single string, or are none, or if one is not a channel.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ValueError(f"the channels are {shown(given)}; they must be a list of strings")
    channels = tuple(dict.fromkeys(map(check_channel, given)))
    if not channels:
        raise ValueError("there are no channels; name at least one")
    return channels


def check_timeout(given: object) -> float:
    """Return the seconds that a listener waits, at most thirty years.

    Raises
    ------
    ValueError
        If they are not a number, are negative, or NaN.
    """
    if isinstance(given, bool) or not isinstance(given, int | float) or not given >= 0:
        raise ValueError(f"timeout is {shown(given)}; it must be a number of seconds from 0")
    return float(min(given, _LONGEST_WAIT))
