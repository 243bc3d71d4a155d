"""Scalars of subclasses: times of pendulum and pandas, numbers of NumPy, the dates of a frozen clock."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import msgspec

from structable.spi.rules.moments import plain_date, plain_datetime

__all__ = ["decoded", "standard", "standard_type"]

_DATES = (dt.datetime, dt.date)  # a frozen clock puts its own classes in the place of names, but not in a tuple


def standard(value: object) -> object:
    """Return an object of a subclass of a scalar as one of the scalar's own class, for msgspec, which takes no other.

    Raises
    ------
    TypeError
        If it is of another class.
    ValueError
        If it is finer than a microsecond, or pandas' NaT.
    """
    match value:
        case str():
            return str.__str__(value)
        case int():
            return int(value)
        case float():
            return float(value)
        case bytes():
            return bytes(value)
        case decimal.Decimal():
            return decimal.Decimal(value)
        case dt.datetime():
            return plain_datetime(value)
        case dt.date():
            return plain_date(value)
        case dt.time():
            return dt.time(value.hour, value.minute, value.second, value.microsecond, value.tzinfo, fold=value.fold)
        case dt.timedelta() if not getattr(value, "nanoseconds", 0):
            return dt.timedelta.__pos__(value)
    raise TypeError(f"objects of type {type(value).__name__} are not supported")


def standard_type(annotation: Any) -> Any:  # noqa: ANN401 - annotations have no type
    """Return the class in whose place a frozen clock has put its own; any other annotation as it is.

    Each date is an instance of the clock's class as well, which is not so of pendulum's, for example.
    """
    for kind in _DATES:
        if isinstance(annotation, type) and issubclass(annotation, kind) and isinstance(kind.min, annotation):
            return kind
    return annotation


def decoded(kind: type, value: object) -> object:
    """Return a value of JSON for a class that msgspec does not know: a date where it is a frozen clock's."""
    standard = standard_type(kind)
    return value if standard is kind else msgspec.convert(value, standard)
