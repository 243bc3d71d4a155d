"""Instants given as a datetime of any class: those of pendulum, pandas and frozen clocks are subclasses."""

from __future__ import annotations

import datetime as dt

from structable.spi.showing import shown

__all__ = ["instant", "plain_date", "plain_datetime"]

_CLASSES = (dt.datetime, dt.date)  # a frozen clock puts its own classes in the place of names, but not in a tuple


def instant(value: object) -> dt.datetime:
    """Return an aware datetime as one of the standard library's own class, in UTC.

    Raises
    ------
    ValueError
        With the reason, if the value is no datetime, has no time zone, or is out of the range of UTC.
    """
    plain = plain_datetime(value)
    if plain.utcoffset() is None:
        raise ValueError(f"{shown(value)} has no time zone; an aware datetime is needed")
    try:
        return plain.astimezone(dt.UTC).replace(fold=0)
    except (OverflowError, ValueError):
        raise ValueError(f"{shown(value)} is out of range in UTC") from None


def plain_datetime(value: object) -> dt.datetime:
    """Return a datetime as one of the standard library's own class, in its own zone.

    Raises
    ------
    ValueError
        With the reason, if the value is no datetime, is finer than a microsecond, or is pandas' NaT.
    """
    if not isinstance(value, dt.datetime):
        raise ValueError(f"{shown(value)} is of type {type(value).__name__}; a datetime.datetime is needed")
    if value != value:  # NaT is an instance of datetime, whose parts are NaN
        raise ValueError(f"{shown(value)} is no point in time; use None for a missing value")
    if getattr(value, "nanosecond", 0):
        raise ValueError(f"{shown(value)} has nanoseconds; a timestamp has microseconds")
    day, time = (value.year, value.month, value.day), (value.hour, value.minute, value.second, value.microsecond)
    return _CLASSES[0](*day, *time, value.tzinfo, fold=value.fold)


def plain_date(value: dt.date) -> dt.date:
    """Return a date as one of the standard library's own class."""
    return _CLASSES[1](value.year, value.month, value.day)
