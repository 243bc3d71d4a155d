"""Copies of values and errors, for callers that must not share one."""

from __future__ import annotations

import copy
import datetime as dt
import decimal
import uuid
from typing import Final, TypeVar

from structable.spi import Row

V = TypeVar("V")

_IMMUTABLE: Final = frozenset(
    (
        *(type(None), bool, int, float, complex, str, bytes, decimal.Decimal, uuid.UUID),
        *(dt.date, dt.datetime, dt.time, dt.timedelta),
    )
)


def private_copy(value: V) -> V:
    """Return a value that shares no mutable part with the argument: itself where that is known to be immutable.

    Raises
    ------
    TypeError
        If the value cannot be copied.
    """
    if type(value) in _IMMUTABLE or isinstance(value, Row):
        return value
    try:
        return copy.deepcopy(value)
    except Exception as error:
        raise TypeError(
            f"a {type(value).__qualname__} cannot be copied by copy.deepcopy, as values of a cached table must be"
        ) from error


def own_copy(value: object) -> object:
    """Return a copy of a value that another caller gets, too; the value itself if it cannot be copied."""
    try:
        return private_copy(value)
    except TypeError:
        return value


def another(error: BaseException) -> BaseException:
    """Return an error like this one, for another caller; the error itself if it cannot be copied."""
    try:
        copied = copy.copy(error)
        if type(copied) is not type(error) or copied.args != error.args:
            return error
    except Exception:  # a class whose constructor takes something else than `args`
        return error
    copied.__cause__, copied.__context__ = error.__cause__, error.__context__
    copied.__suppress_context__ = error.__suppress_context__
    if hasattr(error, "__notes__"):
        copied.__notes__ = list(error.__notes__)
    return copied.with_traceback(error.__traceback__)
