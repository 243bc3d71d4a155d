"""Whether documents are equal, whatever their texts."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import msgspec

from .plain_documents import members, tag_of

__all__ = ["SEVERAL_TEXTS", "equal", "is_whole"]

SEVERAL_TEXTS = (Decimal, dt.datetime, dt.time)
"""Types of scalars of which equal values have different texts."""


def equal(one: Any, other: Any) -> bool:  # noqa: ANN401 - JSON of any type
    """Return whether two documents are equal, as Python has it, except that True is not 1.

    Parameters
    ----------
    one, other : object
        Two values of one type, or JSON and a plain document that keeps `SEVERAL_TEXTS`.
    """
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, str) and isinstance(other, SEVERAL_TEXTS):
        return _reads_as(one, other)
    parts = members(one)
    if parts and type(one) is type(other):
        return equal(parts, members(other))
    return bool(one == other)


def is_whole(found: Any, read: Any) -> bool:  # noqa: ANN401 - JSON of any type
    """Return whether a value that was read from JSON has all that the JSON has: its type ignored no member."""
    if isinstance(found, dict):
        if isinstance(read, dict):
            return len(found) == len(read) and all(map(is_whole, found.values(), read.values()))
        known, tag = members(read), tag_of(read)
        return all(name == tag or (name in known and is_whole(one, known[name])) for name, one in found.items())
    if not isinstance(found, list):
        return True
    if isinstance(read, set | frozenset):  # in another order
        return all(any(is_whole(one, other) for other in read) for one in found)
    if isinstance(read, list | tuple):
        return all(map(is_whole, found, read))
    given, known = found[tag_of(read) is not None :], members(read)
    return len(given) <= len(known) and all(map(is_whole, given, known.values()))


def _reads_as(text: str, value: Decimal | dt.datetime | dt.time) -> bool:
    (kind,) = (one for one in SEVERAL_TEXTS if isinstance(value, one))
    try:
        return bool(msgspec.convert(text, kind) == value)
    except msgspec.ValidationError:
        return False
