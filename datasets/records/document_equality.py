"""Equality of documents by value, not by text."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import msgspec

from .plain_documents import members, tag_of

SEVERAL_TEXTS = (Decimal, dt.datetime, dt.time)
"""Scalar types whose equal values may have different texts."""


def equal(one: Any, other: Any) -> bool:  # noqa: ANN401 - JSON of any type
    """Return whether two documents are equal, as in Python, except that True is not 1.

    Parameters
    ----------
    one, other : object
        Two values of one type, or JSON and a plain document that keeps `SEVERAL_TEXTS`.
    """
    open_pairs = [(one, other)]
    while open_pairs:
        one, other = open_pairs.pop()
        if isinstance(one, bool) or isinstance(other, bool):
            same = one is other
        elif isinstance(one, dict) and isinstance(other, dict):
            same = one.keys() == other.keys()
            if same:
                open_pairs += [(value, other[key]) for key, value in one.items()]
        elif isinstance(one, list | tuple) and isinstance(other, list | tuple):
            same = len(one) == len(other)
            open_pairs += zip(one, other, strict=False)
        elif isinstance(one, str) and isinstance(other, SEVERAL_TEXTS):
            same = _reads_as(one, other)
        elif type(one) is type(other) and members(one):
            same = True
            open_pairs.append((members(one), members(other)))
        else:
            same = bool(one == other)
        if not same:
            return False
    return True


def is_whole(found: Any, read: Any) -> bool:  # noqa: ANN401 - JSON of any type
    """Return whether a value decoded from JSON has every member of the JSON."""
    open_pairs = [(found, read)]
    while open_pairs:
        found, read = open_pairs.pop()
        known = members(read)
        if isinstance(found, dict) and isinstance(read, dict):
            whole = len(found) == len(read)
            open_pairs += zip(found.values(), read.values(), strict=False)
        elif isinstance(found, dict):
            whole = found.keys() <= {*known, tag_of(read)}
            open_pairs += [(one, known[name]) for name, one in found.items() if name in known]
        elif not isinstance(found, list):
            whole = True
        elif isinstance(read, set | frozenset):  # in another order
            whole = all(any(is_whole(one, other) for other in read) for one in found)
        elif isinstance(read, list | tuple):
            whole = True
            open_pairs += zip(found, read, strict=False)
        else:  # a struct whose members are a list, behind its tag
            given = found[tag_of(read) is not None :]
            whole = len(given) <= len(known)
            open_pairs += zip(given, known.values(), strict=False)
        if not whole:
            return False
    return True


def _reads_as(text: str, value: Decimal | dt.datetime | dt.time) -> bool:
    (kind,) = (one for one in SEVERAL_TEXTS if isinstance(value, one))
    try:
        return bool(msgspec.convert(text, kind) == value)
    except msgspec.ValidationError:
        return False
