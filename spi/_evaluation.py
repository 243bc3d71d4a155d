"""Evaluation of bound filters: one generated expression per filter, for rows given as tuples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from types import CodeType
from typing import TypeAlias

from ._fields import FieldType
from ._filters import (
    And,
    Comparison,
    FieldComparison,
    Filter,
    IsIn,
    IsNull,
    Operator,
    Or,
    StartsWith,
    UnboundFilterError,
)
from ._specification import TableSpecification
from ._values import Value, is_nan

Predicate: TypeAlias = Callable[[Sequence[Value]], bool]


def equal(one: Value, other: Value) -> bool:
    """Return whether two checked, non-null values of one field are equal: NaN equals NaN, and -0.0 equals 0.0."""
    return one == other or (is_nan(one) and is_nan(other))


def same(one: Value, other: Value) -> bool:
    """Return whether two checked values of one field are the same: `equal`, or both null."""
    return one is other if one is None or other is None else equal(one, other)


def compile_filter(spec: TableSpecification, where: Filter, columns: Sequence[str]) -> Predicate:
    """Return a function that returns whether a bound filter is true of a row.

    Parameters
    ----------
    spec : TableSpecification
        The table.
    where : Filter
        As `bind_filter` returned it.
    columns : sequence of str
        The names of the values in the function's argument, in their order; includes all fields of the filter.
    """
    source = _ConditionSource(spec, {name: f"v[{position}]" for position, name in enumerate(columns)})
    expression = source.condition(where)
    return eval(_compiled(f"lambda v: {expression}"), source.constants)  # type: ignore[no-any-return]  # noqa: S307


@lru_cache(maxsize=256)
def _compiled(expression: str) -> CodeType:
    return compile(expression, "<filter>", "eval")


class _ConditionSource:
    """Python source of conditions. User values never enter the text: they are constants, passed by name."""

    def __init__(self, spec: TableSpecification, items: dict[str, str]) -> None:
        self._spec = spec
        self._items = items
        self.constants: dict[str, object] = {}

    def condition(self, where: Filter) -> str:
        match where:
            case And(parts):
                return "(" + " and ".join(self.condition(part) for part in parts) + ")"
            case Or(parts):
                return "(" + " or ".join(self.condition(part) for part in parts) + ")"
            case IsNull(name, negated):
                return f"({self._items[name]} is {'not ' if negated else ''}None)"
            case Comparison(name, operator, value):
                return f"({self._items[name]} is not None and {self._comparison(name, operator, value)})"
            case FieldComparison(name, operator, other):
                one, two = self._items[name], self._items[other]
                compared = self._fields_comparison(self._spec.field(name).type, one, operator, two)
                return f"({one} is not None and {two} is not None and {compared})"
            case IsIn(name, values, negated):
                return self._membership(name, values, negated)
            case StartsWith(name, prefix, negated):
                item = self._items[name]
                return (
                    f"({item} is not None and {'not ' if negated else ''}{item}.startswith({self._constant(prefix)}))"
                )
        raise UnboundFilterError(where)

    def _constant(self, value: object) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def _comparison(self, name: str, operator: Operator, value: Value) -> str:
        item = self._items[name]
        if not self._spec.field(name).type.floating:
            return f"{item} {operator.value} {self._constant(value)}"
        # NaN is greater than every number and equals itself; `x != x` is true of NaN only.
        if is_nan(value):
            return {
                Operator.EQ: f"{item} != {item}",
                Operator.NE: f"{item} == {item}",
                Operator.LT: f"{item} == {item}",
                Operator.LE: "True",
                Operator.GT: "False",
                Operator.GE: f"{item} != {item}",
            }[operator]
        test = f"{item} {operator.value} {self._constant(value)}"
        return f"({test} or {item} != {item})" if operator in (Operator.GT, Operator.GE) else test

    def _fields_comparison(self, kind: FieldType, one: str, operator: Operator, two: str) -> str:
        test = f"{one} {operator.value} {two}"
        if not kind.floating:
            return test
        match operator:
            case Operator.EQ:
                return f"({test} or ({one} != {one} and {two} != {two}))"
            case Operator.NE:
                return f"({test} and ({one} == {one} or {two} == {two}))"
            case Operator.LT:
                return f"({test} or ({one} == {one} and {two} != {two}))"
            case Operator.LE:
                return f"({test} or {two} != {two})"
        return self._fields_comparison(kind, two, operator.mirrored, one)

    def _membership(self, name: str, values: tuple[Value, ...], negated: bool) -> str:
        if not values:
            return "True" if negated else "False"
        item = self._items[name]
        numbers = frozenset(value for value in values if not is_nan(value))
        test = f"{item} in {self._constant(numbers)}"
        if any(map(is_nan, values)):  # one that was pickled is another object
            test = f"({test} or {item} != {item})"
        return f"({item} is not None and {'not ' if negated else ''}{test})"
