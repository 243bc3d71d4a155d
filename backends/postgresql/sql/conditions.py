"""Templates as SQL conditions on a row, `t`, and the parameters of a statement in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from structable.backends.postgresql.driver.statement import Statement
from structable.spi import Field, FieldType, Filter, UnsupportedOperationError
from structable.spi.authors import (
    And,
    Comparison,
    FieldComparison,
    IsIn,
    IsNull,
    Operator,
    Or,
    StartsWith,
    UnboundFilterError,
)

from .binding import TableBinding
from .names import column
from .templates import Bounds, Prefixes, Template
from .types import stored_type
from .write_statements import all_of, columns_of

_MOST_PARAMETERS = 65_535


class GivenPrefixes(NamedTuple):
    """Prefixes as a table, the condition that a row starts with one of them, and whether each is a whole key."""

    given: str
    matches: str
    are_keys: bool

    def joined(self, query: str, *, limited: bool = False) -> str:
        """Return the join with the rows of a query, `r`, which the server runs for each prefix.

        OFFSET keeps the server from joining in another order, which in a small table would always read all of it.
        LIMIT does the same, and also keeps the server from reading versions of a row that the index lists behind it.
        """
        end = " limit 1" if self.are_keys else "" if limited else " offset 0"
        return f"{self.given} join lateral ({query}{end}) as r on true"


class Conditions:
    """Makes the conditions of one statement; each value becomes its next parameter.

    Parameters
    ----------
    binding : TableBinding
        The table.
    index : str, optional
        An indexed field. Its equality with a value becomes a range of one value, or with a range of keys a list of one
        value: the server then reads the rows from its index in the order of the field and the key, however few they
        are when it plans the statement.

    Attributes
    ----------
    types : list of int
        The PostgreSQL types of the parameters so far.
    """

    def __init__(self, binding: TableBinding, index: str | None = None) -> None:
        self._binding = binding
        self.index = index
        self._has_bounds = False
        self.types: list[int] = []

    def parameter(self, field: Field) -> str:
        """Add a parameter for a value of a field."""
        return self.parameter_of(stored_type(field).oid)

    def parameter_of(self, oid: int) -> str:
        """Add a parameter of a type."""
        self.types.append(oid)
        return f"${len(self.types)}"

    def statement(self, text: str, *, prepare: bool) -> Statement:
        """Return a statement with these parameters. A statement that is not prepared leaves the planner its choice.

        Raises
        ------
        UnsupportedOperationError
            If there are more parameters than the server takes.
        """
        if len(self.types) > _MOST_PARAMETERS:
            raise UnsupportedOperationError(
                f"a statement of PostgreSQL has {_MOST_PARAMETERS:,} parameters at most, and the ranges and filters "
                f"given have {len(self.types):,} values; divide them among several calls"
            )
        return Statement(text, self.types, prepare=prepare, is_small=False)

    def tests(self, template: Template) -> str:
        """Return the condition of the rows of a template whose ranges are not `Prefixes`, in the table's version.

        Raises
        ------
        UnboundFilterError
            If the filter is not a result of `bind_filter`.
        """
        return all_of(union(self.ranges(template)), self.where(template), self._binding.token)

    def where(self, template: Template) -> str:
        """Return the condition of a template's filter, after the conditions of the ranges."""
        return "" if template.where is None else self._filter(template.where)

    def prefixes(self, prefixes: Prefixes) -> GivenPrefixes:
        """Return a table of prefixes, whose rows are found for each."""
        key = self._binding.key_fields
        names = [one.name for one in key[: prefixes.length]]
        given = ", ".join(self.parameter_of(self._binding.array_oids[name]) for name in names)
        matches = " and ".join(f"t.{column(name)} = given.{column(name)}" for name in names)
        return GivenPrefixes(f"unnest({given}) as given({columns_of(names)})", matches, len(names) == len(key))

    def ranges(self, template: Template) -> list[str]:
        """Return the condition of each range."""
        assert not isinstance(template.ranges, Prefixes)
        return [self._range(one) for one in template.ranges]

    def _range(self, bounds: Bounds | None) -> str:
        if bounds is None:
            return "false"
        fields = self._binding.key_fields
        prefix = bounds.prefix
        # The common prefix becomes equalities: the server overestimates the rows that a row comparison finds.
        parts = [f"t.{column(one.name)} = {self.parameter(one)}" for one in fields[:prefix]]
        if bounds.begin:
            parts.append(self._bound(fields[prefix : prefix + bounds.begin], ">=" if bounds.begin_inclusive else ">"))
        if bounds.end:
            parts.append(self._bound(fields[prefix : prefix + bounds.end], "<=" if bounds.end_inclusive else "<"))
        self._has_bounds = bool(parts)
        return " and ".join(parts) or "true"

    def _bound(self, fields: Sequence[Field], operator: str) -> str:
        columns = ", ".join(f"t.{column(field.name)}" for field in fields)
        values = ", ".join(self.parameter(field) for field in fields)
        # A comparison of rows compares like tuples, and a prefix matches every row that starts with it.
        return f"{columns} {operator} {values}" if len(fields) == 1 else f"({columns}) {operator} ({values})"

    def _filter(self, where: Filter) -> str:
        """Return the condition of a filter's template. PostgreSQL treats NULL, NaN and -0.0 as the contract does."""
        match where:
            case And(parts):
                return f"({' and '.join(map(self._filter, parts)) or 'true'})"
            case Or(parts):
                return f"({' or '.join(map(self._filter, parts)) or 'false'})"
            case IsNull(name, negated):
                return f"t.{column(name)} is {'not ' if negated else ''}null"
            case Comparison(name, operator, _):
                parameter = self.parameter(self._binding.spec.field(name))
                if name == self.index:
                    return self._single_value(f"t.{column(name)}", parameter)
                return f"t.{column(name)} {_OPERATORS[operator]} {parameter}"
            case FieldComparison(name, operator, other):
                return f"t.{column(name)} {_OPERATORS[operator]} t.{column(other)}"
            case IsIn(name, values, negated):
                return self._membership(name, bool(values), negated)
            case StartsWith(name, _, negated):
                return self._prefix(name, negated)
        raise UnboundFilterError(where)

    def _single_value(self, old: str, value: str) -> str:
        """Return the condition of the index's value, which hides from the planner that the key alone orders rows."""
        if self._has_bounds:
            return f"{old} = any(array[{value}])"
        return f"({old} >= {value} and {old} <= {value})"

    def _membership(self, name: str, has_values: bool, negated: bool) -> str:
        if not has_values:
            return "true" if negated else "false"
        listed = self.parameter_of(self._binding.array_oids[name])
        return f"t.{column(name)} {'<> all' if negated else '= any'}({listed})"

    def _prefix(self, name: str, negated: bool) -> str:
        field, old = self._binding.spec.field(name), f"t.{column(name)}"
        prefix = self.parameter(field)
        test = f"starts_with({old}, {prefix})"
        if field.type is not FieldType.STRING:
            test = f"substring({old}, 1, length({prefix})) = {prefix}"
        return f"not ({test})" if negated else f"({old} >= {prefix} and {test})"  # an index can answer the first part


def union(conditions: Sequence[str]) -> str:
    """Return the union of conditions."""
    return "true" if "true" in conditions else f"({' or '.join(f'({one})' for one in conditions) or 'false'})"


_OPERATORS = {
    Operator.EQ: "=",
    Operator.NE: "<>",
    Operator.LT: "<",
    Operator.LE: "<=",
    Operator.GT: ">",
    Operator.GE: ">=",
}
