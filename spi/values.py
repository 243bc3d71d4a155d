"""Values and keys of rows: their types, and the sizes that limits count."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Mapping
from typing import TypeAlias

from .fields import Field

__all__ = [
    "MAX_KEY_AND_INDEX_SIZE",
    "MAX_KEY_SIZE",
    "MAX_ROW_SIZE",
    "NAN",
    "Key",
    "Value",
    "is_nan",
    "is_storable",
    "value_size",
]

Value: TypeAlias = bool | int | float | decimal.Decimal | str | bytes | dt.date | dt.datetime | None
Key: TypeAlias = tuple[Value, ...] | Mapping[str, Value]

MAX_KEY_SIZE = 2_000
"""Bytes of a primary key, and likewise of one indexed value."""
MAX_KEY_AND_INDEX_SIZE = 2_500
"""Bytes of a primary key and one indexed value together."""
MAX_ROW_SIZE = 8 * 1024 * 1024
"""Bytes of a whole row, its key included, after the merge with the old row."""

NAN = float("nan")
"""The NaN of bound filters: one object, since containers compare by identity first."""


def value_size(field: Field, value: Value) -> int:
    """Return the bytes that a checked value counts in limits: its fixed width, UTF-8 length or length; 0 for null."""
    if value is None:
        return 0
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode())
    if isinstance(value, bytes):
        return len(value)
    return field.type.width


def is_storable(text: str) -> bool:
    """Return whether every store can hold a string: it has no NUL character and no lone surrogate."""
    return "\0" not in text and not any("\ud800" <= one <= "\udfff" for one in text)


def is_nan(value: Value) -> bool:
    """Return whether a value is the float NaN, which equals itself in the contract."""
    return isinstance(value, float) and math.isnan(value)
