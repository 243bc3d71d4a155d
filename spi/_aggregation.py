"""The aggregate functions: each combines the value of a field with a given one."""

from __future__ import annotations

import decimal
import math
import operator
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

from ._error_texts import shown
from ._errors import InvalidFieldError
from ._fields import Field, FieldType
from ._table_options import Aggregate, AggregateFunction
from ._value_checks import check_value
from ._values import EXACT, Value, is_nan

Combine: TypeAlias = Callable[[Any, Any], Any]
"""Combines the value of a field with a given one into the new value; either may be None.

It raises `InvalidFieldError` if the new value does not fit. COUNT is given 1 or -1 for each value.
"""


def undoes(function: AggregateFunction) -> bool:
    """Return whether a function can retract a value."""
    return function is AggregateFunction.SUM or function is AggregateFunction.COUNT


def negated(value: Value) -> Value:
    """Return the number that undoes another in a sum."""
    if isinstance(value, decimal.Decimal):
        return EXACT.minus(value)
    assert isinstance(value, int | float)
    return -value


def combine_function(table: str, field: Field, aggregate: Aggregate) -> Combine:
    """Return how a field is aggregated."""
    match aggregate.function:
        case AggregateFunction.SUM | AggregateFunction.PRODUCT | AggregateFunction.COUNT:
            return _arithmetic(table, field, aggregate.function)
        case AggregateFunction.LAST_VALUE | AggregateFunction.LAST_NON_NULL_VALUE:
            return lambda before, given: before if given is None else given
        case AggregateFunction.FIRST_VALUE:
            return lambda before, given: before
        case AggregateFunction.FIRST_NON_NULL_VALUE:
            return lambda before, given: given if before is None else before
        case AggregateFunction.LISTAGG:
            return lambda before, given: before if given is None else _joined(before, given, aggregate)
        case AggregateFunction.MIN:
            return _of_two(lambda before, given: given if _less(given, before) else before)
        case AggregateFunction.MAX:
            return _of_two(lambda before, given: given if _less(before, given) else before)
        case AggregateFunction.BOOL_AND:
            return _of_two(lambda before, given: before and given)
        case AggregateFunction.BOOL_OR:
            return _of_two(lambda before, given: before or given)


def _of_two(both: Combine) -> Combine:
    def combine(before: Value, given: Value) -> Value:
        if given is None:
            return before
        return given if before is None else both(before, given)

    return combine


def _less(one: Any, other: Any) -> bool:  # noqa: ANN401 - values of one type
    """Compare by the contract's order, in which NaN is greater than every number."""
    return bool(one < other) or (is_nan(other) and not is_nan(one))


def _joined(before: str | None, given: str, aggregate: Aggregate) -> str | None:
    delimiter = aggregate.delimiter
    parts = [given]
    if aggregate.distinct:
        known = set(before.split(delimiter)) if before else set()
        parts = [part for part in dict.fromkeys(given.split(delimiter)) if part not in known]
    parts = [part for part in parts if part]
    return delimiter.join([before, *parts] if before else parts) if parts else before


def _arithmetic(table: str, field: Field, function: AggregateFunction) -> Combine:
    calculate = operator.mul if function is AggregateFunction.PRODUCT else operator.add

    def refuse(before: object, given: object) -> NoReturn:
        reason = f"{shown(before)} and {shown(given)} have a {function} that does not fit {field.type_text}"
        raise InvalidFieldError(table, field.name, reason)

    if bits := field.type.integer_bits:
        low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

        def combine_integers(before: int | None, given: int | None) -> int | None:
            if given is None:
                return before
            result: int = given if before is None else calculate(before, given)
            return result if low <= result <= high else refuse(before, given)

        return combine_integers
    if field.type is FieldType.DECIMAL:

        def combine_decimals(before: decimal.Decimal | None, given: decimal.Decimal | None) -> Value:
            if given is None or before is None:
                return before if given is None else given
            try:
                return check_value(table, field, EXACT.add(before, given))
            except InvalidFieldError:
                refuse(before, given)

        return combine_decimals

    def combine_floats(before: float | None, given: float | None) -> float | None:
        if given is None or before is None:
            return before if given is None else given
        try:
            result = check_value(table, field, calculate(before, given))
        except InvalidFieldError:
            refuse(before, given)
        assert isinstance(result, float)
        overflows = math.isinf(result) and math.isfinite(before) and math.isfinite(given)
        if overflows or (calculate is operator.mul and result == 0 and before != 0 and given != 0):
            refuse(before, given)
        return result

    return combine_floats
