"""Templates as SQL conditions, and the parameters of a statement in their order."""

from __future__ import annotations

import operator as operators
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import array
from sqlalchemy.sql.selectable import LateralFromClause

from structable.spi import Field, FieldType, Filter
from structable.spi.filters import (
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

from .binding import PlacedStatement, TableBinding, compiled
from .given_rows import column_of, given_rows
from .templates import Bounds, Prefixes, Template
from .types import stored_type

__all__ = ["Conditions", "GivenPrefixes", "union"]


class GivenPrefixes(NamedTuple):
    """Prefixes as a table, the condition that a row starts with one of them, and whether each is a whole key."""

    given: sa.TableValuedAlias
    matches: sa.ColumnElement[bool]
    are_keys: bool

    def joined(self, query: sa.Select[Any]) -> tuple[sa.Join, LateralFromClause]:
        """Return the join with the rows of a query, which the server runs for each prefix, and these rows.

        OFFSET keeps the server from joining in another order, which in a small table would read all of it, ever after.
        So does LIMIT, which also keeps it from looking at versions of a row that the index lists behind it.
        """
        number = sa.literal_column("1" if self.are_keys else "0", sa.BigInteger())
        rows = (query.limit(number) if self.are_keys else query.offset(number)).lateral("rows")
        return sa.join(self.given, rows, sa.true()), rows


class Conditions:
    """Makes the conditions of one statement; each value becomes its next parameter.

    Parameters
    ----------
    binding : TableBinding
        The table.
    index : str, optional
        An indexed field, whose equality with a value becomes a range of one value, or with a range of keys a list of
        one: the server then reads the rows in the order of the field and the key from its index, however few they are
        when it plans the statement.

    Attributes
    ----------
    types : list of int
        The PostgreSQL types of the parameters so far.
    """

    def __init__(self, binding: TableBinding, index: str | None = None) -> None:
        self._binding = binding
        self.index = index
        self._columns = binding.core.c
        self._has_bounds = False
        self.types: list[int] = []

    def parameter(self, field: Field) -> Any:  # noqa: ANN401 - a parameter, or as good as one
        """Add a parameter for a value of a field."""
        return self.parameter_of(stored_type(field).oid)

    def parameter_of(self, oid: int) -> Any:  # noqa: ANN401
        """Add a parameter of a type."""
        name = f"p{len(self.types)}"
        self.types.append(oid)
        return TableBinding.parameter(name)

    def placed(self, statement: sa.ClauseElement, *, prepare: bool) -> PlacedStatement:
        """Return a statement of these parameters. One that is not prepared leaves the planner its choice."""
        types = {f"p{place}": oid for place, oid in enumerate(self.types)}
        built, names = compiled(statement, types, prepare=prepare, is_small=False)
        return PlacedStatement(built, tuple([int(name[1:]) for name in names]))

    def tests(self, template: Template) -> list[sa.ColumnElement[bool]]:
        """Return conditions which together select the rows of a template whose ranges are no `Prefixes`.

        Raises
        ------
        UnboundFilterError
            If the filter is not a result of `bind_filter`.
        """
        return [*union(self.ranges(template)), *self.where(template)]

    def where(self, template: Template) -> list[sa.ColumnElement[bool]]:
        """Return the condition of a template's filter, after those of the ranges."""
        return [] if template.where is None else [self._filter(template.where)]

    # Ranges

    def prefixes(self, prefixes: Prefixes) -> GivenPrefixes:
        """Return a table of prefixes, whose rows are found for each."""
        key = self._binding.key_fields
        fields = key[: prefixes.length]
        given = given_rows(fields, [self.parameter_of(stored_type(one).array_oid) for one in fields])
        matches = sa.and_(*(self._columns[one.name] == column_of(given, one.name) for one in fields))
        return GivenPrefixes(given, matches, are_keys=len(fields) == len(key))

    def ranges(self, template: Template) -> list[sa.ColumnElement[bool] | None]:
        """Return the condition of each range; None is every row."""
        assert not isinstance(template.ranges, Prefixes)
        return [self._range(one) for one in template.ranges]

    def _range(self, bounds: Bounds | None) -> sa.ColumnElement[bool] | None:
        if bounds is None:
            return sa.false()
        fields = self._binding.key_fields
        prefix = bounds.prefix
        # The common prefix becomes equalities: the server overestimates the rows that a row comparison finds.
        parts: list[sa.ColumnElement[bool]] = [
            self._columns[one.name] == self.parameter(one) for one in fields[:prefix]
        ]
        if bounds.begin:
            compare = operators.ge if bounds.begin_inclusive else operators.gt
            parts.append(self._bound(fields[prefix : prefix + bounds.begin], compare))
        if bounds.end:
            compare = operators.le if bounds.end_inclusive else operators.lt
            parts.append(self._bound(fields[prefix : prefix + bounds.end], compare))
        self._has_bounds = bool(parts)
        return sa.and_(*parts) if parts else None

    def _bound(
        self,
        fields: Sequence[Field],
        compare: Any,  # noqa: ANN401 - an operator
    ) -> sa.ColumnElement[bool]:
        columns = [self._columns[field.name] for field in fields]
        values = [self.parameter(field) for field in fields]
        if len(columns) == 1:
            return compare(columns[0], values[0])  # type: ignore[no-any-return]
        # A comparison of rows compares like tuples, and a prefix matches every row that starts with it.
        return compare(sa.tuple_(*columns), sa.tuple_(*values))  # type: ignore[no-any-return]

    # Filters

    def _filter(self, where: Filter) -> sa.ColumnElement[bool]:
        """Return the condition of a filter's template. PostgreSQL treats NULL, NaN and -0.0 as the contract does."""
        match where:
            case And(parts):
                return sa.and_(sa.true(), *(self._filter(part) for part in parts))
            case Or(parts):
                return sa.or_(sa.false(), *(self._filter(part) for part in parts))
            case IsNull(name, negated):
                column = self._columns[name]
                return column.is_not(None) if negated else column.is_(None)
            case Comparison(name, operator, _):
                parameter, column = self.parameter(self._binding.spec.field(name)), self._columns[name]
                if name == self.index:
                    return self._single_value(column, parameter)
                return _COMPARISONS[operator](column, parameter)
            case FieldComparison(name, operator, other):
                return _COMPARISONS[operator](self._columns[name], self._columns[other])
            case IsIn(name, values, negated):
                return self._membership(name, bool(values), negated)
            case StartsWith(name, _, negated):
                return self._prefix(name, negated)
        raise UnboundFilterError(where)

    def _single_value(
        self,
        column: sa.ColumnElement[Any],
        value: Any,  # noqa: ANN401 - a parameter, or as good as one
    ) -> sa.ColumnElement[bool]:
        """Return the condition of the index's value, which does not tell the planner that the key alone orders rows."""
        if self._has_bounds:
            return column == sa.func.any(array([value]))
        return sa.and_(column >= value, column <= value)

    def _membership(self, name: str, has_values: bool, negated: bool) -> sa.ColumnElement[bool]:
        if not has_values:
            return sa.true() if negated else sa.false()
        listed = self.parameter_of(stored_type(self._binding.spec.field(name)).array_oid)
        column = self._columns[name]
        return column != sa.func.all(listed) if negated else column == sa.func.any(listed)

    def _prefix(self, name: str, negated: bool) -> sa.ColumnElement[bool]:
        field, column = self._binding.spec.field(name), self._columns[name]
        parameter = self.parameter(field)
        if field.type is FieldType.STRING:
            test: sa.ColumnElement[bool] = sa.func.starts_with(column, parameter)
        else:
            test = sa.func.substring(column, sa.literal_column("1"), sa.func.length(parameter)) == parameter
        if negated:
            return sa.not_(test)
        return sa.and_(column >= parameter, test)  # an index can answer the first part


def union(conditions: Sequence[sa.ColumnElement[bool] | None]) -> list[sa.ColumnElement[bool]]:
    """Return the union of conditions, as one; as none if one of them, None, is every row."""
    found = [one for one in conditions if one is not None]
    return [sa.or_(sa.false(), *found)] if len(found) == len(conditions) else []


_COMPARISONS: dict[Operator, Callable[[Any, Any], sa.ColumnElement[bool]]] = {
    Operator.EQ: operators.eq,
    Operator.NE: operators.ne,
    Operator.LT: operators.lt,
    Operator.LE: operators.le,
    Operator.GT: operators.gt,
    Operator.GE: operators.ge,
}
