"""The aggregates that a scan plan may have, and the types of their results."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import NamedTuple

from structable.spi._aggregates import AggregateExpression, Aggregation
from structable.spi._error_texts import shown
from structable.spi._errors import InvalidFieldError
from structable.spi._expressions import Arithmetic, Constant, Expression, FieldValue
from structable.spi._fields import Field, FieldType
from structable.spi._specification import TableSpecification
from structable.spi._table_options import AggregateFunction

from .arguments import check_field

MOST_DIGITS = 38
_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
_FUNCTIONS = (AggregateFunction.COUNT, AggregateFunction.SUM, AggregateFunction.MIN, AggregateFunction.MAX)
_DEEPEST = 50
"""The maximum number of levels of an expression, which is walked by recursion."""
_ARGUMENT = "aggregate"


class DigitCount(NamedTuple):
    """The maximum number of digits in the values of an expression, `scale` of them after the point."""

    precision: int
    scale: int
    may_exceed: bool = False
    """Whether the types of its parts allow values of more than 38 digits, which are an error."""


def check_aggregation(
    spec: TableSpecification, aggregation: object, columns: Iterable[str] | None = None
) -> Aggregation | None:
    """Return an aggregation with each of its columns once; None for None. `columns` are the columns of the scan.

    Raises
    ------
    InvalidFieldError
        If a field is unknown or of a type that its use does not take, an expression may need more than 38 digits after
        the point, there is nothing to compute, or the scan names columns as well.
    """
    if aggregation is None:
        return None
    if not isinstance(aggregation, Aggregation):
        raise InvalidFieldError(spec.name, _ARGUMENT, f"{shown(aggregation)} is not an Aggregation")
    if columns is not None:
        raise InvalidFieldError(
            spec.name, "columns", "an aggregate has its own columns; name either columns or an aggregate"
        )
    group_by = _checked_group(spec, aggregation.group_by)
    for one in aggregation.functions:
        _check_function(spec, one)
    if not group_by and not aggregation.functions:
        raise InvalidFieldError(spec.name, _ARGUMENT, "it has neither functions nor groups; name at least one")
    return Aggregation(dict.fromkeys(aggregation.functions), group_by)


def _checked_group(spec: TableSpecification, group_by: tuple[str, ...]) -> tuple[str, ...]:
    if not isinstance(group_by, tuple):
        raise InvalidFieldError(spec.name, _ARGUMENT, f"group_by is {shown(group_by)}; a list of field names is needed")
    for name in group_by:
        field = check_field(spec, name)
        if field.type.floating:
            raise InvalidFieldError(
                spec.name, field.name, f"is of type {field.type_text}, by which rows cannot be grouped"
            )
    return tuple(dict.fromkeys(group_by))


def _check_function(spec: TableSpecification, one: object) -> None:
    if not isinstance(one, AggregateExpression) or one.function not in _FUNCTIONS:
        raise InvalidFieldError(
            spec.name, _ARGUMENT, f"{shown(one)} is not made by count, sum, min or max of AggregateExpression"
        )
    argument = one.argument
    if argument is None and one.function is AggregateFunction.COUNT:
        return
    counts = one.function is AggregateFunction.COUNT
    if one.function is AggregateFunction.SUM or (counts and not isinstance(argument, FieldValue)):
        digits_of(spec, argument)
        return
    if not isinstance(argument, FieldValue):
        raise InvalidFieldError(
            spec.name, _ARGUMENT, f"{one} takes an expression; only count and sum do, others take a field"
        )
    field = check_field(spec, argument.field)
    if not counts and field.type.floating:
        raise InvalidFieldError(
            spec.name,
            field.name,
            f"is of type {field.type_text}, which has no {one.function} in a plan; read the field",
        )


def digits_of(spec: TableSpecification, expression: object, depth: int = 0) -> DigitCount:
    """Return the digits of an expression's exact values, at most 38 of them before or after the point.

    Raises
    ------
    InvalidFieldError
        If a part is not an integer or decimal, or more than 38 digits may follow the point.
    """
    if depth > _DEEPEST:
        raise InvalidFieldError(spec.name, _ARGUMENT, f"an expression is nested more than {_DEEPEST} levels deep")
    match expression:
        case FieldValue(name):
            return _field_digits(spec, check_field(spec, name))
        case Constant(value):
            return _constant_digits(spec, value)
        case Arithmetic("+" | "-" | "*" as operator, left, right):
            one, other = digits_of(spec, left, depth + 1), digits_of(spec, right, depth + 1)
            if operator == "*":
                precision, scale = one.precision + other.precision + 1, one.scale + other.scale
            else:
                scale = max(one.scale, other.scale)
                precision = max(one.precision - one.scale, other.precision - other.scale) + scale + 1
            if scale > MOST_DIGITS:
                raise InvalidFieldError(
                    spec.name, _ARGUMENT, f"{expression} may have {scale} digits after the point, over {MOST_DIGITS}"
                )
            return DigitCount(min(precision, MOST_DIGITS), scale, precision > MOST_DIGITS)
    raise InvalidFieldError(spec.name, _ARGUMENT, f"{shown(expression)} is not an expression of fields and constants")


def _field_digits(spec: TableSpecification, field: Field) -> DigitCount:
    if field.type is FieldType.DECIMAL:
        return DigitCount(field.precision or 0, field.scale or 0)
    if field.type.integer_bits:
        return DigitCount(_INTEGER_DIGITS[field.type.integer_bits], 0)
    floating = "whose sum depends on the order of the rows; read the field"
    reason = floating if field.type.floating else "which is not a number"
    raise InvalidFieldError(spec.name, field.name, f"is of type {field.type_text}, {reason}")


def _constant_digits(spec: TableSpecification, value: object) -> DigitCount:
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not Decimal(value).is_finite():
        raise InvalidFieldError(spec.name, _ARGUMENT, f"{shown(value)} is neither an int nor a finite Decimal")
    _, digits, exponent = Decimal(value).as_tuple()
    assert isinstance(exponent, int)
    scale = max(-exponent, 0)
    precision = max(len(digits) + max(exponent, 0), scale, 1)
    if precision > MOST_DIGITS:
        raise InvalidFieldError(spec.name, _ARGUMENT, f"{shown(value)} has more than {MOST_DIGITS} digits")
    return DigitCount(precision, scale)


def result_fields(spec: TableSpecification, aggregation: Aggregation) -> tuple[Field, ...]:
    """Return the results of a checked aggregation as fields, in the order of its columns."""
    return (*map(spec.field, aggregation.group_by), *(_result(spec, one) for one in aggregation.functions))


def _result(spec: TableSpecification, one: AggregateExpression) -> Field:
    name = str(one)
    match one.function, one.argument:
        case AggregateFunction.SUM, Expression() as argument:
            return Field.decimal(name, MOST_DIGITS, digits_of(spec, argument).scale)
        case ((AggregateFunction.MIN | AggregateFunction.MAX), FieldValue(read)):
            field = spec.field(read)
            return Field(name, field.type, field.precision, field.scale)
        case _:
            return Field.long(name)
