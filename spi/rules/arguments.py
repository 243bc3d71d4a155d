"""The rule of what stands in a list's or a switch's place, the same in every store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from structable.spi.errors import InvalidFieldError
from structable.spi.ranges import Range
from structable.spi.showing import shown
from structable.spi.specification import TableSpecification

__all__ = ["check_flag", "check_many"]


def check_many(spec: TableSpecification, argument: str, given: object) -> list[Any]:
    """Return what an iterable yields as a list.

    Parameters
    ----------
    spec : TableSpecification
        The table.
    argument : str
        The argument's name, for the message: "rows", "keys", "ranges".
    given : iterable
        What was given.

    Raises
    ------
    InvalidFieldError
        If it is no iterable, or a text, bytes, or a single range.
    """
    if isinstance(given, str | bytes | Range) or not isinstance(given, Iterable):
        raise InvalidFieldError(spec.name, argument, f"{shown(given)} is not a list of {argument}")
    return list(given)


def check_flag(spec: TableSpecification, argument: str, given: object) -> bool:
    """Return a switch.

    Raises
    ------
    InvalidFieldError
        If it is not a bool: a generator, for one, would always count as true.
    """
    if isinstance(given, bool):
        return given
    raise InvalidFieldError(spec.name, argument, f"{shown(given)} is neither True nor False")
