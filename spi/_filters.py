"""Filters: `col("k2") > 100`, combined with `&`, `|` and `~`; three-valued logic, as the contract defines.

A filter is built without checks; `bind_filter` checks it against a table.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from ._expressions import Expression, FieldValue
from ._values import Value


class Operator(enum.Enum):
    """A comparison operator; the value is its notation."""

    EQ = "=="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="

    @property
    def negated(self) -> Operator:
        """The operator that is true of exactly the values for which this one is false; neither is true of null."""
        return _NEGATED[self]

    @property
    def mirrored(self) -> Operator:
        """The operator that gives the same result after the two sides are exchanged."""
        return _MIRRORED.get(self, self)


_NEGATED = {
    Operator.EQ: Operator.NE,
    Operator.NE: Operator.EQ,
    Operator.LT: Operator.GE,
    Operator.GE: Operator.LT,
    Operator.GT: Operator.LE,
    Operator.LE: Operator.GT,
}
_MIRRORED = {
    Operator.LT: Operator.GT,
    Operator.GE: Operator.LE,
    Operator.GT: Operator.LT,
    Operator.LE: Operator.GE,
}


class Filter:
    """A condition on a row. Combine filters with `&` (and), `|` (or) and `~` (not)."""

    __slots__ = ()

    def __and__(self, other: Filter) -> Filter:
        return And((*_parts(self, And), *_parts(other, And))) if isinstance(other, Filter) else NotImplemented

    def __or__(self, other: Filter) -> Filter:
        return Or((*_parts(self, Or), *_parts(other, Or))) if isinstance(other, Filter) else NotImplemented

    def __invert__(self) -> Filter:
        return Not(self)

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "a filter has no truth value; combine filters with &, | and ~, and put comparisons in parentheses"
        )

    def fields(self) -> Iterator[str]:
        """Yield the names of the fields that the filter reads, with repetition."""
        raise UnboundFilterError(self)


class UnboundFilterError(TypeError):
    """An unknown subclass of `Filter` was used."""

    def __init__(self, unknown: object) -> None:
        super().__init__(f"{unknown!r} is not one of structable's filters")


@dataclass(frozen=True, slots=True)
class Comparison(Filter):
    """`field operator value`; unknown, hence not true, if the field is null."""

    field: str
    operator: Operator
    value: Value

    def fields(self) -> Iterator[str]:
        """Yield the field."""
        yield self.field

    def __str__(self) -> str:
        return f"{self.field} {self.operator.value} {self.value!r}"


@dataclass(frozen=True, slots=True)
class FieldComparison(Filter):
    """`field operator other`, where both are fields of one type; unknown, hence not true, if one of them is null."""

    field: str
    operator: Operator
    other: str

    def fields(self) -> Iterator[str]:
        """Yield both fields."""
        yield self.field
        yield self.other

    def __str__(self) -> str:
        return f"{self.field} {self.operator.value} {self.other}"


@dataclass(frozen=True, slots=True)
class IsIn(Filter):
    """The field equals one of `values` (or none, when `negated`); an empty list is false, also for null."""

    field: str
    values: tuple[Value, ...]
    negated: bool = False

    def fields(self) -> Iterator[str]:
        """Yield the field."""
        yield self.field

    def __str__(self) -> str:
        return f"{self.field} {'not in' if self.negated else 'in'} {list(self.values)!r}"


@dataclass(frozen=True, slots=True)
class IsNull(Filter):
    """The field is null (or is not, when `negated`)."""

    field: str
    negated: bool = False

    def fields(self) -> Iterator[str]:
        """Yield the field."""
        yield self.field

    def __str__(self) -> str:
        return f"{self.field} is {'not null' if self.negated else 'null'}"


@dataclass(frozen=True, slots=True)
class StartsWith(Filter):
    """The STRING or BYTES field starts with `prefix` (or does not, when `negated`)."""

    field: str
    prefix: Value
    negated: bool = False

    def fields(self) -> Iterator[str]:
        """Yield the field."""
        yield self.field

    def __str__(self) -> str:
        return f"{self.field} {'does not start' if self.negated else 'starts'} with {self.prefix!r}"


@dataclass(frozen=True, slots=True)
class And(Filter):
    """All of `parts` are true."""

    parts: tuple[Filter, ...]

    def fields(self) -> Iterator[str]:
        """Yield the fields of all parts."""
        for part in self.parts:
            yield from part.fields()

    def __str__(self) -> str:
        return " and ".join(f"({part})" if isinstance(part, Or) else str(part) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Or(Filter):
    """At least one of `parts` is true."""

    parts: tuple[Filter, ...]

    def fields(self) -> Iterator[str]:
        """Yield the fields of all parts."""
        for part in self.parts:
            yield from part.fields()

    def __str__(self) -> str:
        return " or ".join(f"({part})" if isinstance(part, And) else str(part) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Not(Filter):
    """`part` is false (not: unknown)."""

    part: Filter

    def fields(self) -> Iterator[str]:
        """Yield the fields of the part."""
        yield from self.part.fields()

    def __str__(self) -> str:
        return f"not ({self.part})"


def _parts(where: Filter, kind: type[And] | type[Or]) -> tuple[Filter, ...]:
    # Flat from the start: a chain of a thousand `|` must not become a tree a thousand deep.
    return where.parts if isinstance(where, kind) else (where,)


class Column(Expression):
    """A column, made by `col`: compare it, or call one of its methods, for a filter; calculate with it for a sum.

    It is compared with a value, or with another column of its type.

    Values are checked when the filter or the expression is used with a table.
    """

    __slots__ = ("name",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, value: Value | Column) -> Filter:  # type: ignore[override]
        return self._compared(Operator.EQ, value)

    def __ne__(self, value: Value | Column) -> Filter:  # type: ignore[override]
        return self._compared(Operator.NE, value)

    def __lt__(self, value: Value | Column) -> Filter:
        return self._compared(Operator.LT, value)

    def __le__(self, value: Value | Column) -> Filter:
        return self._compared(Operator.LE, value)

    def __gt__(self, value: Value | Column) -> Filter:
        return self._compared(Operator.GT, value)

    def __ge__(self, value: Value | Column) -> Filter:
        return self._compared(Operator.GE, value)

    def _compared(self, operator: Operator, value: Value | Column) -> Filter:
        if isinstance(value, Column):
            return FieldComparison(self.name, operator, value.name)
        return Comparison(self.name, operator, value)

    if not TYPE_CHECKING:  # for checkers, other names are errors

        def __getattr__(self, name: str) -> NoReturn:
            hint = _OTHER_NAMES.get(name)
            raise AttributeError(f"a column has no {name!r}" + (f"; use {hint}" if hint else ""), name=name, obj=self)

    def fields(self) -> Iterator[str]:
        """Yield the field."""
        yield self.name

    def as_expression(self) -> Expression:
        """Return the value of the field, which is compared as other values are."""
        return FieldValue(self.name)

    def isin(self, values: Iterable[Value]) -> Filter:
        """True if the field equals one of `values`; with no values it is false everywhere, also for null."""
        return IsIn(self.name, tuple(values))

    def between(self, low: Value | Column, high: Value | Column) -> Filter:
        """True if low <= field <= high."""
        return And((self >= low, self <= high))

    def is_null(self) -> Filter:
        """True if the field is null."""
        return IsNull(self.name)

    def is_not_null(self) -> Filter:
        """True if the field is not null."""
        return IsNull(self.name, negated=True)

    def startswith(self, prefix: str | bytes) -> Filter:
        """True if the STRING or BYTES field starts with `prefix`."""
        return StartsWith(self.name, prefix)

    def __repr__(self) -> str:
        return f"col({self.name!r})"


_STARTSWITH = "startswith(prefix); other patterns are for the program that reads the rows"
_OTHER_NAMES = {
    **dict.fromkeys(("like", "ilike", "rlike", "starts_with", "startsWith"), _STARTSWITH),
    **dict.fromkeys(("in_", "is_in", "one_of"), "isin(values)"),
    **dict.fromkeys(("not_in", "notin_", "not_in_"), "~col(name).isin(values)"),
    **dict.fromkeys(("isNull", "isna", "is_none", "is_"), "is_null()"),
    **dict.fromkeys(("isNotNull", "notna", "is_not"), "is_not_null()"),
}
"""Replacements for methods that columns of other libraries have."""


def col(name: str) -> Column:
    """Return a column to build a filter or an expression from: `col("k2") > 100`, `col("v") * 2`."""
    return Column(name)


def conjunction(parts: Sequence[Filter]) -> Filter | None:
    """Return the conjunction of filters; None if there are none."""
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else And(tuple(parts))
