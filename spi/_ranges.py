"""Ranges of primary keys: intervals whose bounds are prefixes of the key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ._values import Value

Bound: TypeAlias = tuple[Value, ...] | Mapping[str, Value] | None


@dataclass(frozen=True, slots=True, init=False)
class Range:
    """Rows whose key lies between two bounds, compared as tuples. Nothing is checked before it is used with a table.

    A bound is a prefix of the primary key: a tuple, or a mapping of the leading key fields; None is open. An inclusive
    bound keeps every row whose key starts with it, an exclusive one drops them all. A range whose begin is after its
    end is empty; every row starts with the empty prefix.

    Parameters
    ----------
    begin, end : tuple, mapping or None
        The bounds.
    begin_inclusive, end_inclusive : bool
        Whether rows that start with the bound belong to the range.
    """

    begin: Bound = None
    end: Bound = None
    begin_inclusive: bool = True
    end_inclusive: bool = False

    def __init__(
        self, begin: Bound = None, end: Bound = None, begin_inclusive: bool = True, end_inclusive: bool = False
    ) -> None:
        # The generated one takes half as long again, and one call may take hundreds of ranges.
        _set_begin(self, begin)
        _set_end(self, end)
        _set_begin_inclusive(self, begin_inclusive)
        _set_end_inclusive(self, end_inclusive)

    @classmethod
    def all(cls) -> Range:
        """Every row."""
        return cls()

    @classmethod
    def prefix(cls, prefix: Bound) -> Range:
        """Every row whose key starts with `prefix`."""
        return cls(prefix, prefix, True, True)

    @classmethod
    def at_least(cls, begin: Bound) -> Range:
        """Every row whose key starts with `begin` or comes after it."""
        return cls(begin, None, True, False)

    @classmethod
    def above(cls, begin: Bound) -> Range:
        """Every row after all rows whose key starts with `begin`."""
        return cls(begin, None, False, False)

    @classmethod
    def at_most(cls, end: Bound) -> Range:
        """Every row whose key starts with `end` or comes before it."""
        return cls(None, end, True, True)

    @classmethod
    def below(cls, end: Bound) -> Range:
        """Every row before all rows whose key starts with `end`."""
        return cls(None, end, True, False)


_set_begin, _set_end, _set_begin_inclusive, _set_end_inclusive = [
    getattr(Range, name).__set__ for name in ("begin", "end", "begin_inclusive", "end_inclusive")
]
