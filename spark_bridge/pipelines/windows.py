"""The window of a stream-stream join, without which its state would grow without end."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from datetime import timedelta

_PART = re.compile(r"([+-]?\d+)\s*([a-z]+)\s*")
_MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}


@dataclass(frozen=True, slots=True, init=False)
class JoinWindow:
    """The rows of two streams that a join may pair, and the delay with which they may come.

    The right time lies within [left time - before, left time + after]. The latenesses are Spark's watermarks.

    Parameters
    ----------
    left_time, right_time : str
        Timestamp columns of the two streams.
    before, after, left_lateness, right_lateness : str or timedelta
        Spark's texts, such as "10 minutes" or "1 hour 30 minutes", or `timedelta`. As attributes: microseconds.

    Raises
    ------
    ValueError
        If a column has no name, or a duration is negative or cannot be read.
    """

    left_time: str
    right_time: str
    before: int
    after: int
    left_lateness: int
    right_lateness: int

    def __init__(
        self,
        left_time: str,
        right_time: str,
        before: str | timedelta,
        after: str | timedelta,
        left_lateness: str | timedelta,
        right_lateness: str | timedelta,
    ) -> None:
        for name, column in (("left_time", left_time), ("right_time", right_time)):
            if not isinstance(column, str) or not column:
                raise ValueError(f"{name} is {column!r}; it must be the name of a timestamp column")
        given = (before, after, left_lateness, right_lateness)
        durations = map(_microseconds, [field.name for field in fields(self)][2:], given)
        for field, value in zip(fields(self), (left_time, right_time, *durations), strict=True):
            object.__setattr__(self, field.name, value)


def _microseconds(argument: str, given: object) -> int:
    if isinstance(given, timedelta):
        whole = given // timedelta(microseconds=1)
    elif isinstance(given, str):
        whole = _read(argument, given)
    else:
        raise ValueError(f"{argument} is {given!r}; it must be a text like '10 minutes', or a timedelta")
    if whole < 0:
        raise ValueError(f"{argument} is {given!r}; a duration must not be negative")
    return whole


def _read(argument: str, text: str) -> int:
    rest = text.strip().lower().removeprefix("interval ").strip()
    whole, at = 0, 0
    while part := _PART.match(rest, at):
        unit = part[2].removesuffix("s")
        if unit not in _MICROSECONDS:
            break
        whole, at = whole + int(part[1]) * _MICROSECONDS[unit], part.end()
    if not rest or at < len(rest):
        units = ", ".join(f"{unit}s" for unit in _MICROSECONDS)
        raise ValueError(f"{argument} is {text!r}; it must be a text like '1 hour 30 minutes', of {units}")
    return whole
