"""`Aggregation`: totals of groups of rows, which a scan plan gives in place of the rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ._expressions import Constant, Expression, ExpressionOperand, FieldValue
from ._table_options import AggregateFunction


@dataclass(frozen=True, slots=True)
class AggregateExpression:
    """One value of a group of rows, made by `count`, `sum`, `min` or `max`; `str` is its name in the batches.

    Nulls do not count; without other values a count is 0, and the others are null.

    Parameters
    ----------
    function : AggregateFunction
        COUNT, SUM, MIN or MAX.
    argument : Expression or None
        The values to aggregate; None counts rows. Only counts and sums take more than one field.
    """

    function: AggregateFunction
    argument: Expression | None = None

    @classmethod
    def count(cls, argument: str | ExpressionOperand | None = None) -> AggregateExpression:
        """Return the number of rows, or of non-null values of a field or an expression. A `long`."""
        return cls(AggregateFunction.COUNT, None if argument is None else _expression(argument))

    @classmethod
    def sum(cls, argument: str | ExpressionOperand) -> AggregateExpression:
        """Return the sum of integers or decimals, or of an expression of them: exact, a `decimal(38, scale)`."""
        return cls(AggregateFunction.SUM, _expression(argument))

    @classmethod
    def min(cls, field: str) -> AggregateExpression:
        """Return the least value of a field, of any type but `float` and `double`; of its type."""
        return cls(AggregateFunction.MIN, FieldValue(field))

    @classmethod
    def max(cls, field: str) -> AggregateExpression:
        """Return the greatest value of a field, of any type but `float` and `double`; of its type."""
        return cls(AggregateFunction.MAX, FieldValue(field))

    def __str__(self) -> str:
        return f"{self.function}({'*' if self.argument is None else self.argument})"


def _expression(argument: str | ExpressionOperand) -> Expression:
    if isinstance(argument, Expression):
        return argument.as_expression()
    return FieldValue(argument) if isinstance(argument, str) else Constant(argument)


@dataclass(frozen=True, slots=True, init=False)
class Aggregation:
    """Aggregates of groups of rows, in place of the rows of a scan plan. Equal by content.

    Parameters
    ----------
    functions : iterable of AggregateExpression
        The values of each group; without functions the result is the distinct groups.
    group_by : iterable of str
        The fields whose values a group has in common, null being a value; of any type but `float` and `double`.
        Without them all rows are one group, and at least one function is needed.
    """

    functions: tuple[AggregateExpression, ...]
    group_by: tuple[str, ...]

    def __init__(self, functions: Iterable[AggregateExpression] = (), group_by: Iterable[str] = ()) -> None:
        object.__setattr__(self, "functions", tuple(functions))
        object.__setattr__(self, "group_by", group_by if isinstance(group_by, str) else tuple(group_by))

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the results: the fields of the group, then the functions."""
        return (*self.group_by, *map(str, self.functions))

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that it reads, each once; none if it only counts rows."""
        arguments = (one.argument for one in self.functions if one.argument is not None)
        return tuple(dict.fromkeys([*self.group_by, *(name for argument in arguments for name in argument.fields())]))
