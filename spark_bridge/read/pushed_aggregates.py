"""The aggregates that the JVM pushes down, as structable's.

`java/StructableAggregates.java` writes them, as JSON: `{"group_by": columns, "functions": [[function, argument], ..]}`.
An argument is `["column", name]`, `["number", digits]` or `[operator, argument, argument]`; `["count"]` counts rows.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa

from structable.spark_bridge.base.types import field_changed
from structable.spi import AggregateExpression, Aggregation, Expression, col
from structable.spi.arrow_aggregates import fitting_batches
from structable.spi.expressions import Constant, FieldValue
from structable.spi.table_options import AggregateFunction

__all__ = ["parse_aggregation", "require_unchanged", "spark_batches"]

_OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


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
    # A store gives functions that are equal here once.
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
