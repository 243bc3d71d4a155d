"""Expressions: exact arithmetic on the numbers of a row, `col("price") * (1 - col("discount"))`.

An expression is built without checks; `rules.aggregates` checks it against a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, TypeAlias

ArithmeticOperator: TypeAlias = Literal["+", "-", "*"]


class Expression:
    """A number of each row: a field, a constant, or the sum, difference or product of two. Null if one of them is.

    Its value is exact: it is computed in decimals, integers being decimals without digits after the point.
    """

    __slots__ = ()

    def __add__(self, other: ExpressionOperand) -> Expression:
        return _arithmetic("+", self, other)

    def __radd__(self, other: ExpressionOperand) -> Expression:
        return _arithmetic("+", other, self)

    def __sub__(self, other: ExpressionOperand) -> Expression:
        return _arithmetic("-", self, other)

    def __rsub__(self, other: ExpressionOperand) -> Expression:
        return _arithmetic("-", other, self)

    def __mul__(self, other: ExpressionOperand) -> Expression:
        return _arithmetic("*", self, other)

    def __rmul__(self, other: ExpressionOperand) -> Expression:
        return _arithmetic("*", other, self)

    def fields(self) -> Iterator[str]:
        """Yield the names of the fields that the expression reads, with repetition."""
        raise TypeError(f"{self!r} is not one of structable's expressions")

    def as_expression(self) -> Expression:
        """Return the expression itself."""
        return self


ExpressionOperand: TypeAlias = "Expression | int | Decimal"


@dataclass(frozen=True, slots=True)
class FieldValue(Expression):
    """The value of a field."""

    field: str

    def fields(self) -> Iterator[str]:
        """Yield the field."""
        yield self.field

    def __str__(self) -> str:
        return self.field


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Expression):
    """The same number for each row. Equal if it has the same digits: 1 is not 1.0."""

    value: int | Decimal

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def fields(self) -> Iterator[str]:
        """Yield nothing."""
        return iter(())

    def __str__(self) -> str:
        return f"{self.value:f}" if isinstance(self.value, Decimal) else str(self.value)


@dataclass(frozen=True, slots=True)
class Arithmetic(Expression):
    """`left operator right`."""

    operator: ArithmeticOperator
    left: Expression
    right: Expression

    def fields(self) -> Iterator[str]:
        """Yield the fields of both sides."""
        yield from self.left.fields()
        yield from self.right.fields()

    def __str__(self) -> str:
        return f"{_side(self.left)} {self.operator} {_side(self.right)}"


def _side(side: Expression) -> str:
    return f"({side})" if isinstance(side, Arithmetic) else str(side)


def _arithmetic(operator: ArithmeticOperator, left: object, right: object) -> Expression:
    sides = _operand(left), _operand(right)
    if sides[0] is None or sides[1] is None:
        return NotImplemented  # type: ignore[no-any-return]  # as Python's operators do
    return Arithmetic(operator, sides[0], sides[1])


def _operand(given: object) -> Expression | None:
    if isinstance(given, Expression):
        return given.as_expression()
    if isinstance(given, int | Decimal) and not isinstance(given, bool):
        return Constant(given)
    return None
