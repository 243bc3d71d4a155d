"""`Aggregation`: the aggregate functions of a table's fields."""

from __future__ import annotations

import decimal
import math
import operator
from collections.abc import Callable
from typing import Any, TypeAlias

from .changes import RowKind
from .errors import InvalidFieldError, UnsupportedOperationError
from .fields import Field, FieldType
from .rules.values import check_value
from .specification import TableSpecification
from .table_options import Aggregate, AggregateFunction
from .values import Value, is_nan

__all__ = ["Aggregation"]

_Step: TypeAlias = Callable[[Any, Any], Any]
_EXACT = decimal.Context(prec=80, traps=[decimal.Inexact, decimal.InvalidOperation])
_ARITHMETIC = (AggregateFunction.SUM, AggregateFunction.COUNT, AggregateFunction.PRODUCT)
_UNDONE = (AggregateFunction.SUM, AggregateFunction.COUNT)


class Aggregation:
    """The functions of one table, by field name; immutable."""

    def __init__(self, spec: TableSpecification) -> None:
        self._table = spec.name
        self._fields = {name: spec.field(name) for name in spec.table_options.functions}
        self._aggregates = spec.table_options.functions
        self._steps = {name: self._step(one) for name, one in self._aggregates.items()}

    def refuse_retract(self, kind: RowKind, name: str, value: Value) -> None:
        """Raise UnsupportedOperationError for a value whose function cannot undo it."""
        aggregate = self._aggregates.get(name)
        if aggregate is None or value is None or aggregate.function in _UNDONE or aggregate.ignore_retract:
            return
        raise UnsupportedOperationError(
            f"table {self._table!r}: field {name!r} is aggregated by {aggregate.function}, which cannot retract "
            f"({kind}) a value; leave it null, or set fields.{name}.ignore-retract"
        )

    def operand(self, name: str, kind: RowKind, value: Value) -> Value:
        """Return what a change adds to a field, as `combined` takes it: null for nothing."""
        aggregate = self._aggregates[name]
        if value is None or (kind.retracts and aggregate.ignore_retract):
            return None
        if aggregate.function is AggregateFunction.COUNT:
            return -1 if kind.retracts else 1
        if kind.retracts:
            assert isinstance(value, int | float | decimal.Decimal), "a sum: others are refused"
            return _EXACT.minus(value) if isinstance(value, decimal.Decimal) else -value
        return value

    def fits(self, field: Field, operand: Value) -> bool:
        """Tell whether an operand is a value of its field: the negative of the lowest integer is not."""
        try:
            return operand is None or check_value(self._table, field, operand) is not None
        except InvalidFieldError:
            return False

    def sets(self, name: str, *, new: bool, retracted: bool) -> bool:
        """Tell whether a named value is taken as it is, null too."""
        function = self._aggregates[name].function
        if retracted:
            return False
        return function is AggregateFunction.LAST_VALUE or (function is AggregateFunction.FIRST_VALUE and new)

    def combined(self, name: str, before: Value, operand: Value) -> Value:
        """Return a field's value after an operand.

        Raises
        ------
        InvalidFieldError
            If the result does not fit the field.
        """
        if operand is None:
            return before
        field, function = self._fields[name], self._aggregates[name].function
        if before is None and function not in (AggregateFunction.FIRST_VALUE, AggregateFunction.LISTAGG):
            return self._checked(field, operand, operand)
        result = self._steps[name](before, operand)
        if function in _ARITHMETIC:
            return self._number(field, function, before, operand, result)
        return result  # type: ignore[no-any-return]  # a value, as the arguments

    def _number(self, field: Field, function: AggregateFunction, before: Value, operand: Value, result: Value) -> Value:
        if field.type in (FieldType.FLOAT, FieldType.DOUBLE):
            assert isinstance(before, float)
            assert isinstance(operand, float)
            rounded = self._checked(field, result, operand)
            assert isinstance(rounded, float)
            if math.isinf(rounded) and math.isfinite(before) and math.isfinite(operand):
                raise self._overflow(field, before, operand)
            if function is AggregateFunction.PRODUCT and rounded == 0 and before != 0 and operand != 0:
                raise InvalidFieldError(
                    self._table, field.name, f"the product of {before} and {operand} underflows to 0"
                )
            return rounded
        return self._checked(field, result, operand)

    def _checked(self, field: Field, result: Value, operand: Value) -> Value:
        try:
            return check_value(self._table, field, result)
        except InvalidFieldError as error:
            raise self._overflow(field, result, operand) from error

    def _overflow(self, field: Field, result: Value, operand: Value) -> InvalidFieldError:
        function = self._aggregates[field.name].function
        return InvalidFieldError(
            self._table, field.name, f"its {function} with {operand!r} overflows {field.type_text} ({result!r})"
        )

    def _step(self, aggregate: Aggregate) -> _Step:
        match aggregate.function:
            case AggregateFunction.SUM:
                return _sum
            case AggregateFunction.PRODUCT:
                return operator.mul
            case AggregateFunction.COUNT:
                return operator.add
            case AggregateFunction.MIN:
                return lambda before, given: given if _less(given, before) else before
            case AggregateFunction.MAX:
                return lambda before, given: given if _less(before, given) else before
            case AggregateFunction.LAST_VALUE | AggregateFunction.LAST_NON_NULL_VALUE:
                return lambda before, given: given
            case AggregateFunction.FIRST_VALUE | AggregateFunction.FIRST_NON_NULL_VALUE:
                return lambda before, given: before
            case AggregateFunction.LISTAGG:
                return lambda before, given: _joined(before, given, aggregate)
            case AggregateFunction.BOOL_AND:
                return lambda before, given: before and given
            case AggregateFunction.BOOL_OR:
                return lambda before, given: before or given


def _sum(before: Any, given: Any) -> Any:  # noqa: ANN401 - numbers of one type
    return _EXACT.add(before, given) if isinstance(before, decimal.Decimal) else before + given


def _less(one: Any, other: Any) -> bool:  # noqa: ANN401 - values of one type
    """Compare by the contract's order, in which NaN is greater than every number."""
    return bool(one < other) or (is_nan(other) and not is_nan(one))


def _joined(before: str | None, given: str, aggregate: Aggregate) -> str | None:
    delimiter = aggregate.delimiter
    parts = [given]
    if aggregate.distinct:
        known = set(before.split(delimiter)) if before else set()
        parts = [part for part in dict.fromkeys(given.split(delimiter)) if part not in known]
    parts = [part for part in parts if part]
    return delimiter.join([before, *parts] if before else parts) if parts else before
