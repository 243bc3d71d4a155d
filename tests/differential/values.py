# ruff: noqa: ANN401  an argument may be anything
"""Values that fit a field, values that nearly do, and values of other kinds."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from structable.spi import Field, FieldType


class Color(enum.StrEnum):
    """Strings whose `repr` is another text."""

    RED = "red"
    EMPTY = ""


class OldColor(str, enum.Enum):  # noqa: UP042  what it shows is the point
    """A string whose `str` is not its value."""

    RED = "red"


class Number(enum.IntEnum):
    """Integers that are not plain ints."""

    ONE = 1
    MANY = 100_000


class Text(str):
    def __str__(self) -> str:
        return "something else"


class Real(float): ...


class Time(dt.datetime): ...


class Finer(dt.datetime):
    """A datetime with nanoseconds, as in pandas."""

    nanosecond = 5


class Fresh:
    """Makes its value anew for each store, since the first one consumes a generator; `text` describes it in reports."""

    def __init__(self, make: Callable[[], object], text: str) -> None:
        self.make = make
        self.text = text

    def __repr__(self) -> str:
        return f"Fresh({self.text!r})"

    def __call__(self) -> Any:
        return self.make()


_EAST = dt.timezone(dt.timedelta(hours=5, minutes=30))
_FITTING: dict[FieldType, list[Any]] = {
    FieldType.BOOLEAN: [False, True],
    FieldType.BYTE: [-128, -1, 0, 1, 127],
    FieldType.SHORT: [-(2**15), -1, 0, 7, 2**15 - 1],
    FieldType.INT: [-(2**31), -1, 0, 1, 2, 3, 2**31 - 1],
    FieldType.LONG: [-(2**63), -1, 0, 1, 2, 2**63 - 1],
    FieldType.FLOAT: [0.1, -0.0, math.inf, math.nan, 1, 16777217],
    FieldType.DOUBLE: [0.1, -0.0, -math.inf, math.nan, 1, 2**53 + 2, 5e-324],
    FieldType.DECIMAL: [decimal.Decimal(text) for text in ("0", "-0", "1.50", "1E+2", "-99999999.99", "0.010")],
    FieldType.STRING: ["", "a", "aa", "b", "é", "\U0001f600", "\uffff", "%_\\'", " "],
    FieldType.BYTES: [b"", b"\0", b"a", b"\xff\xff", b"\0\xff"],
    FieldType.DATE: [dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(9999, 12, 31)],
    FieldType.TIMESTAMP: [
        dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
        dt.datetime(2024, 10, 27, 2, 30, 0, 7, tzinfo=_EAST, fold=1),
        dt.datetime(1, 1, 2, tzinfo=dt.UTC),
        Time(2020, 2, 29, 1, 2, 3, tzinfo=_EAST),
    ],
    FieldType.TIMESTAMP_NTZ: [
        dt.datetime(1970, 1, 1),
        dt.datetime(2024, 10, 27, 2, 30, fold=1),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
        Time(2020, 2, 29),
    ],
}
_SUBCLASSES: dict[FieldType, list[Any]] = {
    FieldType.STRING: [Color.RED, Color.EMPTY, OldColor.RED, Text("b"), np.str_("a")],
    FieldType.INT: [Number.ONE, Number.MANY],
    FieldType.LONG: [Number.ONE, Number.MANY],
    FieldType.BYTE: [Number.ONE, Number.MANY],
    FieldType.DOUBLE: [Real(0.5), np.float64(0.25), Number.ONE],
    FieldType.FLOAT: [Real(0.1), np.float64(0.1)],
    FieldType.BYTES: [np.bytes_(b"a")],
}
_HOSTILE: list[Any] = [
    None,
    True,
    -1,
    2**31,
    2**53 + 1,
    2**63,
    -(2**63) - 1,
    10**5_000,
    0.5,
    math.nan,
    1e300,
    "text",
    "nul\0",
    "\ud800",
    "x" * 2_001,
    b"x" * 2_600,
    b"bytes",
    bytearray(b"a"),
    memoryview(b"a"),
    decimal.Decimal("NaN"),
    decimal.Decimal("1e50"),
    decimal.Decimal("0.123456789"),
    dt.date(2020, 1, 1),
    dt.datetime(2020, 1, 1),
    dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
    dt.datetime(1, 1, 1, tzinfo=_EAST),
    Finer(2020, 1, 1),
    Finer(2020, 1, 1, tzinfo=dt.UTC),
    dt.timedelta(1),
    (),
    (1,),
    Fresh(list, "[]"),
    Fresh(lambda: [1], "[1]"),
    Fresh(dict, "{}"),
    Fresh(lambda: {"k": 1}, "{'k': 1}"),
    Fresh(lambda: (one for one in [1, 2]), "(one for one in [1, 2])"),
    Fresh(lambda: iter(()), "iter(())"),
    Fresh(object, "object()"),
    Color.RED,
    OldColor.RED,
    Number.MANY,
    np.int64(1),
    np.bool_(True),
    np.float32(0.1),
    1j,
    ...,
]


def fitting(chance: random.Random, field: Field) -> Any:
    """Return a valid value of the field."""
    return chance.choice(_FITTING[field.type])


def hostile(chance: random.Random, field: Field | None = None) -> Any:
    """Return any value; for a field, often of a subclass of a valid type."""
    subclasses = _SUBCLASSES.get(field.type, []) if field is not None else []
    return chance.choice(subclasses if subclasses and chance.random() < 0.4 else _HOSTILE)
