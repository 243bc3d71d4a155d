"""Ranges of primary keys: intervals whose bounds are prefixes of the key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from .errors import InvalidFieldError
from .rules.values import Value, check_value
from .showing import shown
from .specification import TableSpecification

__all__ = ["Bound", "Range", "check_range"]

Bound: TypeAlias = tuple[Value, ...] | Mapping[str, Value] | None


@dataclass(frozen=True, slots=True)
class Range:
    """Rows whose key lies between two bounds, compared as tuples. Nothing is checked before it is used with a table.

    A bound is a prefix of the primary key: a tuple, or a mapping of the leading key fields; None is open. An inclusive
    bound keeps every row whose key starts with it, an exclusive one drops them all. A range whose begin lies behind
    its end is empty; every row starts with the empty prefix.

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
        """Every row that starts with `begin` or lies behind it."""
        return cls(begin, None, True, False)

    @classmethod
    def above(cls, begin: Bound) -> Range:
        """Every row behind all those that start with `begin`."""
        return cls(begin, None, False, False)

    @classmethod
    def at_most(cls, end: Bound) -> Range:
        """Every row that starts with `end` or lies before it."""
        return cls(None, end, True, True)

    @classmethod
    def below(cls, end: Bound) -> Range:
        """Every row before all those that start with `end`."""
        return cls(None, end, True, False)


def check_range(spec: TableSpecification, range_: object) -> Range:
    """Return a range whose bounds are checked tuples, or None where a side is open (as an inclusive empty prefix is).

    Parameters
    ----------
    spec : TableSpecification
        The table.
    range_ : Range
        The range as the caller gave it.

    Raises
    ------
    InvalidFieldError
        If a bound is not a prefix of the primary key, or a value does not fit its field.
    """
    if not isinstance(range_, Range):
        raise InvalidFieldError(spec.name, "range", f"{shown(range_)} is not a Range")
    begin = _checked_bound(spec, range_.begin)
    end = _checked_bound(spec, range_.end)
    begin_inclusive, end_inclusive = range_.begin_inclusive, range_.end_inclusive
    for inclusive in (begin_inclusive, end_inclusive):
        if not isinstance(inclusive, bool):
            raise InvalidFieldError(spec.name, "range", f"inclusive is {shown(inclusive)}, neither True nor False")
    # Every row starts with the empty prefix: inclusive it bounds nothing, exclusive it stays and drops every row.
    if begin == () and begin_inclusive:
        begin = None
    if end == () and end_inclusive:
        end = None
    return Range(begin, end, begin_inclusive, end_inclusive)


def _checked_bound(spec: TableSpecification, bound: object) -> tuple[Value, ...] | None:
    if bound is None:
        return None
    key = spec.primary_key
    shape = f"a prefix of the primary key ({', '.join(key)})"
    if isinstance(bound, Mapping):
        leading = key[: len(bound)]
        if set(bound) != set(leading):
            raise InvalidFieldError(spec.name, "range", f"a bound of {', '.join(map(str, bound))} is not {shape}")
        values = tuple(bound[name] for name in leading)
    elif isinstance(bound, tuple):
        if len(bound) > len(key):
            raise InvalidFieldError(
                spec.name, "range", f"the bound {shown(bound)} has {len(bound)} values and is not {shape}"
            )
        values = bound
    else:
        raise InvalidFieldError(
            spec.name, "range", f"the bound {shown(bound)} is neither a tuple nor a mapping: it is {shape}"
        )
    for field, value in zip(spec.key_fields, values, strict=False):
        if value is None:
            raise InvalidFieldError(spec.name, field.name, "is part of the primary key; a bound must not be null there")
    return tuple(check_value(spec.name, field, value) for field, value in zip(spec.key_fields, values, strict=False))
