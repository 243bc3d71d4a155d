"""The filters that the JVM pushes down, as structable's.

The JVM sends only conditions that mean in Spark exactly what they mean here, on columns of the table and values that
they can hold; `java/StructableConditions.java` writes them, as JSON: `["and", ..]`, `["or", ..]`, `["not", condition]`,
`["null", column]`, `["in", column, values]`, `["columns", operator, column, column]`, and `[operator, column, value]`.
Values are in the form in which Spark computes: dates in days and times in microseconds since 1970, bytes in base 64,
decimals and floats as text.
"""

from __future__ import annotations

import base64
import datetime as dt
import functools
import json
import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from structable.spi import Column, FieldType, Filter, TableSpecification, Value, col

__all__ = ["parse_filter"]

_EPOCH = dt.datetime(1970, 1, 1)


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
