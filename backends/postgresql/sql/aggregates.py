"""Partial aggregates as SQL."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from structable.spi import AggregateExpression, Aggregation, Expression, Field, FieldType
from structable.spi.expressions import Arithmetic, Constant, FieldValue
from structable.spi.rules.aggregates import MOST_DIGITS, digits_of
from structable.spi.table_options import AggregateFunction

from .binding import TableBinding

__all__ = ["aggregate_columns", "group_clause"]

_OPERATORS = {"+": sa.ColumnElement.__add__, "-": sa.ColumnElement.__sub__, "*": sa.ColumnElement.__mul__}


def aggregate_columns(binding: TableBinding, aggregation: Aggregation) -> list[sa.ColumnElement[Any]]:
    """Return the columns of a query of a checked aggregation: the fields of the group, then the functions.

    Sums are texts: they may have more digits than the types of the contract.
    """
    groups: list[sa.ColumnElement[Any]] = [binding.core.c[name] for name in aggregation.group_by]
    return [*groups, *(_function(binding, one) for one in aggregation.functions)]


def group_clause(aggregation: Aggregation) -> str:
    """Return the SQL that follows the conditions of such a query."""
    places = range(1, len(aggregation.group_by) + 1)
    return f" group by {', '.join(map(str, places))}" if places else ""


def _function(binding: TableBinding, one: AggregateExpression) -> sa.ColumnElement[Any]:
    match one.function, one.argument:
        case AggregateFunction.SUM, Expression() as argument:
            return sa.cast(sa.func.sum(_number(binding, argument)), sa.Text())
        case (AggregateFunction.MIN | AggregateFunction.MAX) as function, FieldValue(name):
            return _extreme(binding.spec.field(name), binding.core.c[name], str(function))
        case AggregateFunction.COUNT, Expression() as argument:
            return sa.func.count(_number(binding, argument))
        case _:
            return sa.func.count()


def _extreme(field: Field, column: sa.ColumnElement[Any], function: str) -> sa.ColumnElement[Any]:
    """Return the least or greatest value; the server has no functions of that name for all types."""
    if field.type is FieldType.BOOLEAN:
        return sa.func.bool_and(column) if function == "min" else sa.func.bool_or(column)
    if field.type is FieldType.BYTES:
        written = sa.func.encode(column, sa.literal_column("'hex'")).collate("C")
        return sa.func.decode(getattr(sa.func, function)(written), sa.literal_column("'hex'"))
    extreme: sa.ColumnElement[Any] = getattr(sa.func, function)(column)
    return extreme


def _number(binding: TableBinding, expression: Expression) -> sa.ColumnElement[Any]:
    """Return an argument: the server adds the integers of a field faster than numbers of any digits."""
    if isinstance(expression, FieldValue):
        return binding.core.c[expression.field]
    return _exact(binding, expression)


def _exact(binding: TableBinding, expression: Expression) -> sa.ColumnElement[Any]:
    """Return an expression as a number of any digits; it is refused beyond those of the contract."""
    match expression:
        case FieldValue(name):
            column = binding.core.c[name]
            return column if binding.spec.field(name).type is FieldType.DECIMAL else sa.cast(column, sa.Numeric())
        case Constant(value):
            return sa.literal_column(f"({Decimal(value):f}::numeric)", sa.Numeric())
        case Arithmetic(operator, left, right):
            found = _OPERATORS[operator](_exact(binding, left), _exact(binding, right))
            digits = digits_of(binding.spec, expression)
            return sa.cast(found, sa.Numeric(MOST_DIGITS, digits.scale)) if digits.may_exceed else found
    raise TypeError(f"{expression!r} is not one of structable's expressions")
