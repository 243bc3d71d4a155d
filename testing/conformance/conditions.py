"""Conditions of the naive model: each builds structable's filter, and evaluates itself by hand."""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from structable.spi import Filter, Value, col

from .samples import Record

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def rank(value: Value) -> Any:  # noqa: ANN401 - comparable within one field
    """Return the sort key of a value: NaN follows every number, all other values are their own key."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value


def equals(one: Value, other: Value) -> bool:
    """Return whether two values of one field, not null, are equal."""
    return bool(rank(one) == rank(other))


class Condition(ABC):
    """A condition on a row; its values are as the table keeps them."""

    @abstractmethod
    def truth(self, row: Record) -> bool | None:
        """Return whether it is true of a row; None is unknown."""

    @abstractmethod
    def filter(self) -> Filter: ...


@dataclass(frozen=True)
class Compare(Condition):
    """`field operator value`."""

    field: str
    operator: str
    value: Value

    def truth(self, row: Record) -> bool | None:
        if row[self.field] is None:
            return None
        return bool(OPERATORS[self.operator](rank(row[self.field]), rank(self.value)))

    def filter(self) -> Filter:
        made: Filter = OPERATORS[self.operator](col(self.field), self.value)
        return made


@dataclass(frozen=True)
class CompareFields(Condition):
    """`field operator other`, both of one type."""

    field: str
    operator: str
    other: str

    def truth(self, row: Record) -> bool | None:
        if row[self.field] is None or row[self.other] is None:
            return None
        return bool(OPERATORS[self.operator](rank(row[self.field]), rank(row[self.other])))

    def filter(self) -> Filter:
        made: Filter = OPERATORS[self.operator](col(self.field), col(self.other))
        return made


@dataclass(frozen=True)
class Between(Condition):
    """`low <= field <= high`."""

    field: str
    low: Value
    high: Value

    def truth(self, row: Record) -> bool | None:
        if row[self.field] is None:
            return None
        return bool(rank(self.low) <= rank(row[self.field]) <= rank(self.high))

    def filter(self) -> Filter:
        return col(self.field).between(self.low, self.high)


@dataclass(frozen=True)
class OneOf(Condition):
    """The field is one of the values; an empty list is false of every row."""

    field: str
    values: tuple[Value, ...]

    def truth(self, row: Record) -> bool | None:
        if not self.values:
            return False
        return None if row[self.field] is None else any(equals(row[self.field], value) for value in self.values)

    def filter(self) -> Filter:
        return col(self.field).isin(self.values)


@dataclass(frozen=True)
class Null(Condition):
    """The field is null, or is not."""

    field: str
    negated: bool

    def truth(self, row: Record) -> bool | None:
        return (row[self.field] is None) != self.negated

    def filter(self) -> Filter:
        return col(self.field).is_not_null() if self.negated else col(self.field).is_null()


@dataclass(frozen=True)
class BeginsWith(Condition):
    """The field starts with the prefix."""

    field: str
    prefix: Any

    def truth(self, row: Record) -> bool | None:
        return None if row[self.field] is None else bool(row[self.field][: len(self.prefix)] == self.prefix)

    def filter(self) -> Filter:
        return col(self.field).startswith(self.prefix)


@dataclass(frozen=True)
class Negation(Condition):
    """The opposite of a part; unknown if the part is unknown."""

    part: Condition

    def truth(self, row: Record) -> bool | None:
        truth = self.part.truth(row)
        return None if truth is None else not truth

    def filter(self) -> Filter:
        return ~self.part.filter()


@dataclass(frozen=True)
class AllOf(Condition):
    """False if one part is false, else unknown if one part is unknown."""

    one: Condition
    other: Condition

    def truth(self, row: Record) -> bool | None:
        truths = (self.one.truth(row), self.other.truth(row))
        if False in truths:
            return False
        return None if None in truths else True

    def filter(self) -> Filter:
        return self.one.filter() & self.other.filter()


@dataclass(frozen=True)
class AnyOf(Condition):
    """True if one part is true, else unknown if one part is unknown."""

    one: Condition
    other: Condition

    def truth(self, row: Record) -> bool | None:
        truths = (self.one.truth(row), self.other.truth(row))
        if True in truths:
            return True
        return None if None in truths else False

    def filter(self) -> Filter:
        return self.one.filter() | self.other.filter()
