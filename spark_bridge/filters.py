"""Spark's filters as structable's, if both have exactly the same meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyspark.sql import datasource as spark

from structable.spi import Column, FieldType, Filter, InvalidFieldError, TableSpecification, Value, col
from structable.spi.rules.filters import bind_filter

__all__ = ["translate_filter"]

_FLOATS = (FieldType.FLOAT, FieldType.DOUBLE)


def translate_filter(spec: TableSpecification, condition: spark.Filter) -> Filter | None:
    """Return the filter that is true of exactly the same rows, or None if Spark must evaluate the condition itself.

    A value that the field cannot hold (a NUL in a text, a number out of range) is no error: Spark evaluates it.
    """
    translated = _translated(spec, condition)
    if translated is None:
        return None
    try:
        bind_filter(spec, translated)
    except InvalidFieldError:
        return None
    return translated


_COMPARISONS: dict[type[spark.Filter], Callable[[Column, Value], Filter]] = {
    spark.EqualTo: Column.__eq__,
    spark.GreaterThan: Column.__gt__,
    spark.GreaterThanOrEqual: Column.__ge__,
    spark.LessThan: Column.__lt__,
    spark.LessThanOrEqual: Column.__le__,
}


def _translated(spec: TableSpecification, condition: spark.Filter) -> Filter | None:
    if isinstance(condition, spark.Not):
        return _negated(spec, condition.child)
    name = _field_name(spec, condition)
    if name is None:
        return None
    column = col(name)
    if type(condition) in _COMPARISONS:
        return _COMPARISONS[type(condition)](column, getattr(condition, "value"))  # noqa: B009
    match condition:
        case spark.EqualNullSafe():
            return column.is_null() if condition.value is None else Column.__eq__(column, condition.value)
        case spark.In() if _plain_list(spec, name, condition.value):
            return column.isin(condition.value)
        case spark.IsNull():
            return column.is_null()
        case spark.IsNotNull():
            return column.is_not_null()
        case spark.StringStartsWith() if spec.field(name).type is FieldType.STRING:
            return column.startswith(condition.value)
    return None


def _negated(spec: TableSpecification, child: spark.Filter) -> Filter | None:
    if isinstance(child, spark.EqualNullSafe) and child.value is not None:
        # `a <=> 1` is false, not unknown, where a is null, so that its negation is true there.
        name = _field_name(spec, child)
        return None if name is None else (col(name) != child.value) | col(name).is_null()
    translated = _translated(spec, child)
    return None if translated is None else ~translated


def _field_name(spec: TableSpecification, condition: spark.Filter) -> str | None:
    path: tuple[str, ...] = getattr(condition, "attribute", ())
    return path[0] if len(path) == 1 and path[0] in spec else None


def _plain_list(spec: TableSpecification, name: str, values: Iterable[Value]) -> bool:
    # A null in the list makes `in` unknown instead of false. On floats, Spark compares by bits once the list is long,
    # so that -0.0 is no longer 0.0: those lists stay with Spark.
    values = tuple(values)
    return bool(values) and None not in values and spec.field(name).type not in _FLOATS
