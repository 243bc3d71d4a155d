"""The ranges of keys that a table accepts."""

from __future__ import annotations

from collections.abc import Mapping

from structable.spi._error_texts import shown
from structable.spi._errors import InvalidFieldError
from structable.spi._ranges import Range
from structable.spi._specification import TableSpecification
from structable.spi._value_checks import check_value
from structable.spi._values import Value

from .arguments import check_flag


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
    end = begin if range_.end is range_.begin else _checked_bound(spec, range_.end)
    begin_inclusive = check_flag(spec, "begin_inclusive", range_.begin_inclusive)
    end_inclusive = check_flag(spec, "end_inclusive", range_.end_inclusive)
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
    if isinstance(bound, tuple):
        if len(bound) > len(key):
            raise _no_prefix(spec, f"the bound {shown(bound)} has {len(bound)} values and is not")
        values = bound
    elif isinstance(bound, Mapping):
        leading = key[: len(bound)]
        if set(bound) != set(leading):
            raise _no_prefix(spec, f"a bound of {', '.join(map(str, bound))} is not")
        values = tuple(bound[name] for name in leading)
    else:
        raise _no_prefix(spec, f"the bound {shown(bound)} is neither a tuple nor a mapping: it is")
    fields = [spec.field(name) for name in key[: len(values)]]
    for field, value in zip(fields, values, strict=True):
        if value is None:
            raise InvalidFieldError(spec.name, field.name, "is part of the primary key; a bound must not be null there")
    return tuple([check_value(spec.name, field, value) for field, value in zip(fields, values, strict=True)])


def _no_prefix(spec: TableSpecification, problem: str) -> InvalidFieldError:
    if spec.keyless:
        return InvalidFieldError(spec.name, "range", f"{problem} one of a table without a primary key; use Range.all()")
    return InvalidFieldError(
        spec.name, "range", f"{problem} a prefix of the primary key ({', '.join(spec.primary_key)})"
    )
