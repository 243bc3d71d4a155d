"""The filters that a table accepts, and their normal form.

`bind_filter` rewrites a filter so that negations stand only at the leaves. Such a filter needs two-valued logic only:
each leaf decides by itself whether it is *true*, and no leaf but `is_null` is true of null.
"""

from __future__ import annotations

from dataclasses import replace

from structable.spi._error_texts import shown
from structable.spi._errors import InvalidFieldError
from structable.spi._fields import FieldType
from structable.spi._filters import (
    And,
    Comparison,
    FieldComparison,
    Filter,
    IsIn,
    IsNull,
    Not,
    Or,
    StartsWith,
    UnboundFilterError,
)
from structable.spi._specification import TableSpecification
from structable.spi._value_checks import check_value
from structable.spi._values import NAN, Value, is_nan

from .arguments import check_field


def bind_filter(spec: TableSpecification, where: object) -> Filter | None:
    """Return a filter checked against a table: values as the table keeps them, negations at the leaves, flat and/or.

    Parameters
    ----------
    spec : TableSpecification
        The table.
    where : Filter or None
        The condition; None is returned for None.

    Raises
    ------
    InvalidFieldError
        If a field is unknown, a value has a wrong type or is out of range, None is compared, two fields of different
        types are, or it is not a filter.
    """
    if where is None:
        return None
    if not isinstance(where, Filter):
        raise InvalidFieldError(
            spec.name, "where", f"{shown(where)} is not a filter; build one, as in col('name') == value"
        )
    return _bound(spec, where, negate=False, depth=0)


_DEEPEST = 100
"""Levels of nesting; filters are walked by recursion, and compilers of expressions have their own limits."""


def _bound(spec: TableSpecification, where: Filter, *, negate: bool, depth: int) -> Filter:
    while isinstance(where, Not):
        where, negate = where.part, not negate
    if depth > _DEEPEST:
        raise InvalidFieldError(
            spec.name,
            "where",
            f"the filter is nested more than {_DEEPEST} levels deep; combine its parts in fewer levels",
        )
    match where:
        case And(parts) | Or(parts):
            joined = Or if isinstance(where, And) == negate else And
            flat: list[Filter] = []
            for part in parts:
                bound = _bound(spec, part, negate=negate, depth=depth + 1)
                flat.extend(bound.parts if isinstance(bound, joined) else (bound,))
            return joined(tuple(flat))
        case Comparison(name, operator, value):
            checked = _checked(spec, name, value)
            return Comparison(name, operator.negated if negate else operator, checked)
        case FieldComparison(name, operator, other):
            kind, of_other = check_field(spec, name).type, check_field(spec, other).type
            if kind is not of_other:
                raise InvalidFieldError(
                    spec.name,
                    name,
                    f"is of type {kind.value} and cannot be compared with {other!r}, which is of type {of_other.value}",
                )
            return FieldComparison(name, operator.negated if negate else operator, other)
        case IsIn(name, values):
            checked_values = tuple(dict.fromkeys(_checked(spec, name, value) for value in values))
            check_field(spec, name)
            return IsIn(name, checked_values, where.negated != negate)
        case IsNull(name):
            check_field(spec, name)
            return replace(where, negated=where.negated != negate)
        case StartsWith(name, prefix):
            kind = check_field(spec, name).type
            if kind not in (FieldType.STRING, FieldType.BYTES):
                raise InvalidFieldError(spec.name, name, f"is of type {kind.value}; startswith takes string and bytes")
            return StartsWith(name, _checked(spec, name, prefix), where.negated != negate)
    raise UnboundFilterError(where)


def _checked(spec: TableSpecification, name: str, value: object) -> Value:
    field = check_field(spec, name)
    if value is None:
        raise InvalidFieldError(spec.name, name, "a comparison with None is never true; use is_null() or is_not_null()")
    checked = check_value(spec.name, field, value)
    # One NaN object, so that containers, which compare by identity first, treat all NaNs alike.
    return NAN if is_nan(checked) else checked
