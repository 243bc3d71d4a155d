"""Checks of list and boolean arguments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from structable.spi.errors import InvalidFieldError
from structable.spi.ranges import Range
from structable.spi.showing import shown
from structable.spi.specification import TableSpecification

__all__ = ["check_flag", "check_many"]


def check_many(spec: TableSpecification, argument: str, given: object) -> list[Any]:
    """Return the elements of an iterable as a list.

    Parameters
    ----------
    spec : TableSpecification
        The table.
    argument : str
        The argument's name, for the message: "rows", "keys", "ranges".
    given : iterable
        The argument.

    Raises
    ------
    InvalidFieldError
        If it is not iterable, or is a string, bytes, or a single range.
    """
    if given.__class__ is tuple or given.__class__ is list:
        return list(given)  # the usual argument, of which nothing else need be asked
    if isinstance(given, str | bytes | Range) or not isinstance(given, Iterable):
        raise InvalidFieldError(spec.name, argument, f"{shown(given)} is not a list of {argument}")
    return list(given)


def check_flag(spec: TableSpecification, argument: str, given: object) -> bool:
    """Return a boolean argument.

    Raises
    ------
    InvalidFieldError
        If it is not a bool: a generator, for example, would count as true.
    """
    if isinstance(given, bool):
        return given
    raise InvalidFieldError(spec.name, argument, f"{shown(given)} is neither True nor False")
