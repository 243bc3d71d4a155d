"""Values of subclasses, as other libraries have them, as values of Python's own classes.

Examples are times of pandas and pendulum, and of a clock that a test has stopped; members of enumerations; and NumPy's
scalars, as far as they are subclasses.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TypeGuard, TypeVar

from ._error_texts import shown

Day = TypeVar("Day", bound=dt.date)


def own_class(kind: type[Day]) -> type[Day]:
    """Return Python's own class of dates or times, which freezegun replaces by a subclass while it stops the clock."""
    return next(one for one in kind.__mro__ if one.__module__ == "datetime")


USE_NONE = "use None for a missing value"
# Objects: freezegun replaces the class in each module that names it.
_DAY = own_class(dt.date)(1, 1, 1)
_TIME = own_class(dt.datetime)(1, 1, 1)


def named_class(annotation: object) -> object:
    """Return an annotation; Python's own class of dates or times where freezegun put a subclass in its place."""
    for own in (_TIME, _DAY):
        if isinstance(annotation, type) and issubclass(annotation, type(own)) and isinstance(own, annotation):
            return type(own)
    return annotation


def is_missing(value: object) -> bool:
    """Return whether a value marks a missing one in pandas or NumPy: NaN, NaT or NA."""
    try:
        return bool(value != value)
    except Exception:  # pandas.NA is neither equal to itself nor not
        return type(value).__name__ == "NAType"


def is_aware(value: object) -> TypeGuard[dt.datetime]:
    """Return whether a value is a datetime with a time zone."""
    return isinstance(value, dt.datetime) and not is_missing(value) and value.utcoffset() is not None


def plain_date(value: dt.date) -> dt.date:
    """Return a date of Python's own class."""
    return _DAY.replace(value.year, value.month, value.day)


def plain_datetime(value: dt.datetime) -> dt.datetime:
    """Return a datetime of Python's own class, in the same zone.

    Raises
    ------
    ValueError
        If it has nanoseconds, or is not a point in time.
    """
    if type(value) is type(_TIME):
        return value
    if getattr(value, "nanosecond", 0):
        raise ValueError(f"{shown(value)} has nanoseconds; a timestamp has microseconds")
    try:
        midnight = _TIME.replace(value.year, value.month, value.day, tzinfo=value.tzinfo, fold=value.fold)
        return midnight.replace(
            hour=value.hour, minute=value.minute, second=value.second, microsecond=value.microsecond
        )
    except (TypeError, ValueError):
        raise ValueError(f"{shown(value)} is not a point in time") from None


def plain_value(value: object) -> object:
    """Return a value as one of Python's own class, if it is of a subclass of a class that JSON documents have.

    Raises
    ------
    TypeError
        If its class is no such subclass, or if it marks a missing value.
    ValueError
        If it has nanoseconds.
    """
    if isinstance(value, str):
        return str.__str__(value)
    match value:
        case bytes():
            return bytes(value)
        case int():
            return int(value)
        case float():
            return float(value)
        case Decimal():
            return Decimal(value)
        case dt.datetime() if not is_missing(value):
            return plain_datetime(value)
        case dt.date() if not is_missing(value):
            return plain_date(value)
        case dt.time():
            return dt.time(value.hour, value.minute, value.second, value.microsecond, value.tzinfo, fold=value.fold)
        case dt.timedelta() if not getattr(value, "nanoseconds", 0):
            return dt.timedelta.__pos__(value)
    hint = f"; {USE_NONE}" if is_missing(value) else ""
    raise TypeError(f"{shown(value)} is of type {type(value).__name__}, which documents lack{hint}")
