"""Ranges and filters as SQL conditions: values become parameters, so that conditions of one shape share a statement."""

from __future__ import annotations

import operator as operators
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from structable.backends.postgresql.driver.statement import Call
from structable.spi import Field, FieldType, Filter, Range, Value
from structable.spi.filters import And, Comparison, IsIn, IsNull, Or, StartsWith, UnboundFilterError
from structable.spi.rules.scans import ScanRequest

from .binding import TableBinding, compiled
from .types import array, encode_value, stored_type

__all__ = ["Conditions"]


class Conditions:
    """Collects conditions and their parameters.

    Parameters
    ----------
    binding : TableBinding
        The table.

    Attributes
    ----------
    types : dict
        The PostgreSQL types of the parameters, by name.
    values : dict
        Their values in binary, by name.
    """

    def __init__(self, binding: TableBinding) -> None:
        self._binding = binding
        self._columns = binding.core.c
        self.types: dict[str, int] = {}
        self.values: dict[str, bytes | None] = {}

    def parameter(self, field: Field, value: Value) -> sa.BindParameter[Any]:
        """Add a checked value of a field."""
        return self._parameter(stored_type(field).oid, encode_value(field, value))

    def _parameter(self, oid: int, piece: bytes | None) -> sa.BindParameter[Any]:
        name = f"p{len(self.values)}"
        self.types[name] = oid
        self.values[name] = piece
        return TableBinding.parameter(name)

    def call(self, statement: sa.ClauseElement, prefix: str = "") -> Call:
        """Return the call of a statement with these conditions, which is not prepared: the next one has others."""
        built, names = compiled(statement, self.types, prepare=False, prefix=prefix)
        return Call(built, [self.values[name] for name in names])

    def tests(self, request: ScanRequest) -> list[sa.ColumnElement[bool]]:
        """Return the conditions of a scan's rows."""
        inside = self.ranges(request.ranges)
        found = [] if inside is None else [inside]
        return found if request.where is None else [*found, self.filter(request.where)]

    # Ranges

    def ranges(self, ranges: Sequence[Range]) -> sa.ColumnElement[bool] | None:
        """Return the condition of a union of checked ranges; None is every row."""
        conditions = [self._range(one) for one in ranges]
        if not conditions:
            return sa.false()
        if any(one is None for one in conditions):
            return None
        return sa.or_(*(one for one in conditions if one is not None))

    def _range(self, range_: Range) -> sa.ColumnElement[bool] | None:
        begin, end = range_.begin, range_.end
        if begin == () or end == ():  # exclusive, as in checked ranges: drops every row
            return sa.false()
        first, last = tuple(begin or ()), tuple(end or ())
        parts: list[sa.ColumnElement[bool]] = []
        common = _common(first, last)
        if not (len(first) > common or range_.begin_inclusive) or not (len(last) > common or range_.end_inclusive):
            common = 0  # an exclusive bound that is a prefix of the other one excludes their common prefix
        # The common prefix becomes equalities: the server overestimates the rows that a row comparison finds.
        for field, value in zip(self._binding.key_fields, first[:common], strict=False):
            parts.append(self._columns[field.name] == self.parameter(field, value))
        if len(first) > common:
            parts.append(self._bound(common, first, operators.ge if range_.begin_inclusive else operators.gt))
        if len(last) > common:
            parts.append(self._bound(common, last, operators.le if range_.end_inclusive else operators.lt))
        return sa.and_(*parts) if parts else None

    def _bound(
        self,
        common: int,
        bound: tuple[Value, ...],
        compare: Any,  # noqa: ANN401 - an operator
    ) -> sa.ColumnElement[bool]:
        fields = self._binding.key_fields[common : len(bound)]
        columns = [self._columns[field.name] for field in fields]
        values = [self.parameter(field, value) for field, value in zip(fields, bound[common:], strict=True)]
        if len(columns) == 1:
            return compare(columns[0], values[0])  # type: ignore[no-any-return]
        # A comparison of rows compares like tuples, and a prefix matches every row that starts with it.
        return compare(sa.tuple_(*columns), sa.tuple_(*values))  # type: ignore[no-any-return]

    # Filters

    def filter(self, where: Filter) -> sa.ColumnElement[bool]:
        """Return the condition of a bound filter. PostgreSQL treats NULL, NaN and -0.0 as the contract does.

        Raises
        ------
        UnboundFilterError
            If the filter is not a result of `bind_filter`.
        """
        match where:
            case And(parts):
                return sa.and_(sa.true(), *(self.filter(part) for part in parts))
            case Or(parts):
                return sa.or_(sa.false(), *(self.filter(part) for part in parts))
            case IsNull(name, negated):
                column = self._columns[name]
                return column.is_not(None) if negated else column.is_(None)
            case Comparison(name, operator, value):
                parameter = self.parameter(self._binding.spec.field(name), value)
                return getattr(operators, _OPERATORS[operator.value])(  # type: ignore[no-any-return]
                    self._columns[name], parameter
                )
            case IsIn(name, values, negated):
                return self._membership(name, values, negated)
            case StartsWith(name, prefix, negated):
                return self._prefix(name, prefix, negated)
        raise UnboundFilterError(where)

    def _membership(self, name: str, values: tuple[Value, ...], negated: bool) -> sa.ColumnElement[bool]:
        if not values:
            return sa.true() if negated else sa.false()
        field = self._binding.spec.field(name)
        kind = stored_type(field)
        listed = self._parameter(kind.array_oid, array(kind.oid, [encode_value(field, value) for value in values]))
        column = self._columns[name]
        return column != sa.func.all(listed) if negated else column == sa.func.any(listed)

    def _prefix(self, name: str, prefix: Value, negated: bool) -> sa.ColumnElement[bool]:
        field, column = self._binding.spec.field(name), self._columns[name]
        parameter = self.parameter(field, prefix)
        if field.type is FieldType.STRING:
            test: sa.ColumnElement[bool] = sa.func.starts_with(column, parameter)
        else:
            test = sa.func.substring(column, sa.literal_column("1"), sa.func.length(parameter)) == parameter
        if negated:
            return sa.not_(test)
        return sa.and_(column >= parameter, test)  # an index can answer the first part


def _common(first: tuple[Value, ...], last: tuple[Value, ...]) -> int:
    """Return the length of the common prefix of two bounds."""
    count = 0
    for one, other in zip(first, last, strict=False):
        if one != other:
            break
        count += 1
    return count


_OPERATORS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
