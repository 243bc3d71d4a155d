"""The SQL of partial aggregates over the rows of `t`."""

from __future__ import annotations

from decimal import Decimal

from structable.spi import (
    AggregateExpression,
    AggregateFunction,
    Aggregation,
    Expression,
    Field,
    FieldType,
    TableSpecification,
)
from structable.spi.authors import MOST_DIGITS, Arithmetic, Constant, FieldValue, digits_of

from .names import column


def aggregate_columns(spec: TableSpecification, aggregation: Aggregation) -> list[str]:
    """Return the columns of the query of a checked aggregation: the fields of the group, then the functions.

    Sums are texts: they may have more digits than the types of the contract.
    """
    groups = [f"t.{column(name)}" for name in aggregation.group_by]
    return [*groups, *(_function(spec, one) for one in aggregation.functions)]


def group_clause(aggregation: Aggregation) -> str:
    """Return the SQL that follows the conditions of an aggregating query."""
    places = range(1, len(aggregation.group_by) + 1)
    return f" group by {', '.join(map(str, places))}" if places else ""


def _function(spec: TableSpecification, one: AggregateExpression) -> str:
    match one.function, one.argument:
        case AggregateFunction.SUM, Expression() as argument:
            return f"sum({_number(spec, argument)})::text"
        case (AggregateFunction.MIN | AggregateFunction.MAX) as function, FieldValue(name):
            return _extreme(spec.field(name), f"t.{column(name)}", str(function))
        case AggregateFunction.COUNT, Expression() as argument:
            return f"count({_number(spec, argument)})"
        case _:
            return "count(*)"


def _extreme(field: Field, value: str, function: str) -> str:
    """Return the least or greatest value; the server's `min` and `max` do not take all types."""
    if field.type is FieldType.BOOLEAN:
        return f"{'bool_and' if function == 'min' else 'bool_or'}({value})"
    if field.type is FieldType.BYTES:
        return f"decode({function}(encode({value}, 'hex') collate \"C\"), 'hex')"
    return f"{function}({value})"


def _number(spec: TableSpecification, expression: Expression) -> str:
    """Return an argument: the server adds the integers of a field faster than numbers of any digits."""
    if isinstance(expression, FieldValue):
        return f"t.{column(expression.field)}"
    return _exact(spec, expression)


def _exact(spec: TableSpecification, expression: Expression) -> str:
    """Return an expression as a number of any digits; the server rejects more digits than the contract allows."""
    match expression:
        case FieldValue(name):
            value = f"t.{column(name)}"
            return value if spec.field(name).type is FieldType.DECIMAL else f"{value}::numeric"
        case Constant(value):
            return f"({Decimal(value):f}::numeric)"
        case Arithmetic(operator, left, right):
            found = f"({_exact(spec, left)} {operator} {_exact(spec, right)})"
            digits = digits_of(spec, expression)
            return f"{found}::numeric({MOST_DIGITS},{digits.scale})" if digits.may_exceed else found
    raise TypeError(f"{expression!r} is not one of structable's expressions")
