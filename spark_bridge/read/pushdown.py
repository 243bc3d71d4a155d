"""What the JVM pushes down, as structable's: filters and aggregates, which it writes as JSON.

The JVM sends only conditions that mean in Spark exactly what they mean here, on columns of the table and values that
they can hold. `jvm/java/StructableConditions.java` writes them: `["and", ..]`, `["or", ..]`, `["not", condition]`,
`["null", column]`, `["in", column, values]`, `["columns", operator, column, column]`, and `[operator, column, value]`.
Values are in the form in which Spark computes: dates in days and times in microseconds since 1970, bytes in base 64,
decimals and floats as text.

`jvm/java/StructableAggregates.java` writes aggregates: `{"group_by": names, "functions": [[function, argument], ..]}`.
An argument is `["column", name]`, `["number", digits]` or `[operator, argument, argument]`; `["count"]` counts rows.
"""

from __future__ import annotations

import base64
import datetime as dt
import functools
import json
import operator
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa

from structable.spark_bridge.base.types import field_changed
from structable.spi import (
    AggregateExpression,
    AggregateFunction,
    Aggregation,
    Column,
    Expression,
    FieldType,
    Filter,
    TableSpecification,
    Value,
    col,
)
from structable.spi.arrow import fitting_batches
from structable.spi.authors import Constant, FieldValue

_EPOCH = dt.datetime(1970, 1, 1)
_OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def _time(microseconds: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(microseconds=microseconds)


_COMPARISONS: dict[str, Callable[[Column, Value | Column], Filter]] = {
    "=": Column.__eq__,
    "<=>": Column.__eq__,
    "<>": Column.__ne__,
    "<": Column.__lt__,
    "<=": Column.__le__,
    ">": Column.__gt__,
    ">=": Column.__ge__,
}

_VALUES: dict[FieldType, Callable[[Any], Value]] = {
    FieldType.DECIMAL: Decimal,
    FieldType.FLOAT: float,
    FieldType.DOUBLE: float,
    FieldType.BYTES: base64.b64decode,
    FieldType.DATE: lambda days: (_EPOCH + dt.timedelta(days=days)).date(),
    FieldType.TIMESTAMP: lambda microseconds: _time(microseconds).replace(tzinfo=dt.UTC),
    FieldType.TIMESTAMP_NTZ: _time,
}


def parse_filter(spec: TableSpecification, text: str) -> Filter:
    """Return the filter that the JVM wrote, which is true of exactly the same rows."""
    return _parsed(spec, json.loads(text), negated=False)


def _parsed(spec: TableSpecification, condition: list[Any], *, negated: bool) -> Filter:
    kind, *parts = condition
    if kind == "not":
        return _parsed(spec, parts[0], negated=not negated)
    if kind in ("and", "or"):
        joined = operator.and_ if (kind == "and") != negated else operator.or_
        return functools.reduce(joined, (_parsed(spec, part, negated=negated) for part in parts))
    if kind == "columns":
        compare, one, other = parts
        made = _COMPARISONS[compare](col(one), col(other))
        return ~made if negated else made
    name = parts[0]
    column = col(name)
    if kind == "null":
        return column.is_not_null() if negated else column.is_null()
    value: Callable[[Any], Value] = _VALUES.get(spec.field(name).type, lambda value: value)
    if kind == "in":
        made = column.isin([value(one) for one in parts[1]])
    elif kind == "starts":
        made = column.startswith(parts[1])
    elif kind == "<=>" and negated:
        # `a <=> 1` is false, not unknown, where a is null, so that its negation is true there.
        return (column != value(parts[1])) | column.is_null()
    else:
        made = _COMPARISONS[kind](column, value(parts[1]))
    return ~made if negated else made


def parse_aggregation(text: str) -> Aggregation:
    """Return the aggregation that the JVM wrote; functions that are equal here may have several columns in Spark."""
    given = json.loads(text)
    functions = [
        AggregateExpression(AggregateFunction(function), *map(_expression, argument))
        for function, *argument in given["functions"]
    ]
    return Aggregation(functions, given["group_by"])


def _expression(argument: list[Any]) -> Expression:
    kind, *parts = argument
    if kind == "column":
        return col(parts[0]).as_expression()
    if kind == "number":
        return Constant(Decimal(parts[0]))
    left, right = map(_expression, parts)
    made: Expression = _OPERATORS[kind](left, right)
    return made


def require_unchanged(table: str, aggregation: Aggregation, given: pa.Schema, stored: pa.Schema) -> None:
    """Check that a store's aggregates are of the types that Spark's plan has.

    Raises
    ------
    InvalidFieldError
        If a field has another type, or a decimal more digits after the point, than when Spark made the plan.
    """
    functions: list[AggregateExpression | None] = [*[None] * len(aggregation.group_by), *aggregation.functions]
    # A store returns one column for functions that are equal here.
    for one, was, now in zip(functions, given, map(stored.field, aggregation.columns), strict=True):
        if one is not None and one.function is AggregateFunction.COUNT:
            continue
        if one is not None and one.function is AggregateFunction.SUM:
            changed = now.type.scale > (was.type.scale if pa.types.is_decimal(was.type) else 0)
        else:
            changed = now.type != was.type
        if changed:
            field = one.argument if one is not None else None
            raise field_changed(table, field.field if isinstance(field, FieldValue) else now.name, was, now)


def spark_batches(aggregation: Aggregation, batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield partial aggregates of a store in the types that Spark expects."""
    columns = [batch.column(name) for name in aggregation.columns]
    return fitting_batches(aggregation, pa.table(columns, names=[str(place) for place in range(len(columns))]), schema)
