"""Values and keys of rows: their types, the sizes that limits count, and contexts in which decimals are exact."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Callable, Mapping
from functools import wraps
from typing import ParamSpec, TypeAlias, TypeVar

from ._fields import Field

P = ParamSpec("P")
R = TypeVar("R")

Value: TypeAlias = bool | int | float | decimal.Decimal | str | bytes | dt.date | dt.datetime | None
Key: TypeAlias = tuple[Value, ...] | Mapping[str, Value]

MAX_KEY_SIZE = 2_000
"""The maximum size of a primary key, and of an indexed value, in bytes."""
MAX_KEY_AND_INDEX_SIZE = 2_500
"""The maximum size of a primary key and one indexed value together, in bytes."""
MAX_ROW_SIZE = 8 * 1024 * 1024
"""The maximum size of a whole row, its key included, after the merge with the old row, in bytes."""

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


def exact_context(digits: int) -> decimal.Context:
    """Return a context in which a result with more digits than `digits` is an `ArithmeticError`.

    Each attribute is given, as missing ones come from `decimal.DefaultContext`, which a program may have changed.
    """
    traps = [decimal.Inexact, decimal.InvalidOperation]  # an overflow, or an underflow, is inexact
    rounding, least, most = decimal.ROUND_HALF_EVEN, decimal.MIN_EMIN, decimal.MAX_EMAX
    return decimal.Context(digits, rounding, least, most, capitals=1, clamp=0, flags=[], traps=traps)


EXACT = exact_context(160)
"""The context of a few operations on numbers of 38 digits."""


def in_exact_context(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function read, compare and write decimals as in `EXACT`, whatever the program's own context is."""

    @wraps(function)
    def run(*args: P.args, **options: P.kwargs) -> R:
        context = decimal.getcontext()
        traps = context.traps
        if context.capitals and traps[decimal.InvalidOperation] and not traps[decimal.FloatOperation]:
            return function(*args, **options)  # the usual context does the same; another takes 0.6 us
        with decimal.localcontext(EXACT):
            return function(*args, **options)

    return run
