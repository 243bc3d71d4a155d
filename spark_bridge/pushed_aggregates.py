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

from structable.spi import AggregateExpression, Aggregation, Expression, col
from structable.spi.expressions import Constant
from structable.spi.fitting_sums import fitting_batches
from structable.spi.table_options import AggregateFunction

__all__ = ["parse_aggregation", "spark_batches"]

_OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def parse_aggregation(text: str) -> Aggregation:
    """Return the aggregation that the JVM wrote; of functions that are equal here each has a column in Spark."""
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


def spark_batches(aggregation: Aggregation, batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield partial aggregates of a store in the types that Spark expects."""
    columns = [batch.column(name) for name in aggregation.columns]
    return fitting_batches(aggregation, pa.table(columns, names=[str(place) for place in range(len(columns))]), schema)
