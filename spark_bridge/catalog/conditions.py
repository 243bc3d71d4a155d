"""Conditions of DELETE, as the JVM tells them, as the filters that choose the same rows."""

from __future__ import annotations

import datetime as dt
import enum
import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pyspark.sql import datasource as spark

from structable.spark_bridge.filters import translate_filter
from structable.spi import Filter, TableSpecification

__all__ = ["Condition", "Rows", "filter_of"]

_EPOCH = dt.datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Condition:
    """A predicate of Spark: `name` is its, or the type of a value."""

    name: str
    column: str = ""
    value: str | None = None
    children: tuple[Condition, ...] = ()

    @classmethod
    def parse(cls, told: Mapping[str, Any]) -> Condition:
        """Return the condition of a JSON object."""
        children = tuple(cls.parse(child) for child in told.get("children", ()))
        return cls(told.get("name") or told["type"], told.get("column", ""), told.get("value"), children)


class Rows(enum.Enum):
    """What conditions without columns choose."""

    ALL = "all rows"
    NONE = "no rows"


def filter_of(spec: TableSpecification, conditions: Iterable[Condition]) -> Filter | Rows | None:
    """Return the filter of the rows for which all conditions are true; None if the store cannot evaluate one."""
    told = [one for one in conditions if one.name != "ALWAYS_TRUE"]
    if not told:
        return Rows.ALL
    if any(one.name == "ALWAYS_FALSE" for one in told):
        return Rows.NONE
    found = [_translated(spec, one, negated=False) for one in told]
    kept = [one for one in found if one is not None]
    return functools.reduce(operator.and_, kept) if len(kept) == len(found) else None


def _translated(spec: TableSpecification, condition: Condition, *, negated: bool) -> Filter | None:
    if condition.name == "NOT":
        return _translated(spec, condition.children[0], negated=not negated)
    if condition.name in ("AND", "OR"):
        # By De Morgan's laws, which hold with three values, `not` comes to single columns only.
        join = operator.and_ if (condition.name == "AND") is not negated else operator.or_
        left, right = (_translated(spec, child, negated=negated) for child in condition.children)
        return None if left is None or right is None else join(left, right)
    try:
        leaf = _leaf(condition)
    except (ValueError, OverflowError):
        return None  # a value that Python does not have, such as a date of the year 10000
    if isinstance(leaf, spark.Not):
        leaf, negated = leaf.child, not negated
    return None if leaf is None else translate_filter(spec, spark.Not(leaf) if negated else leaf)


def _leaf(condition: Condition) -> spark.Filter | None:
    path, values = (condition.column,), tuple(_value(child) for child in condition.children)
    match condition.name:
        case "IS_NULL":
            return spark.IsNull(path)
        case "IS_NOT_NULL":
            return spark.IsNotNull(path)
        case "IN":
            return spark.In(path, values)
        case "<>" if None not in values:
            return spark.Not(spark.EqualTo(path, values[0]))
        case "<=>":
            return spark.EqualNullSafe(path, values[0])
        case "STARTS_WITH":
            return spark.StringStartsWith(path, str(values[0]))
        case name if name in _COMPARISONS and None not in values:
            return _COMPARISONS[name](path, values[0])
    return None


_COMPARISONS: dict[str, Callable[[tuple[str, ...], Any], spark.Filter]] = {
    "=": spark.EqualTo,
    "<": spark.LessThan,
    "<=": spark.LessThanOrEqual,
    ">": spark.GreaterThan,
    ">=": spark.GreaterThanOrEqual,
}


def _value(told: Condition) -> object:
    """Return a value, of which the JVM gives the text of Spark's own form: days, microseconds."""
    if told.value is None:
        return None
    match told.name:
        case "byte" | "short" | "integer" | "long":
            return int(told.value)
        case "float" | "double":
            return float(told.value)
        case "boolean":
            return told.value == "true"
        case "string":
            return told.value
        case "binary":
            return bytes.fromhex(told.value)
        case "date":
            return _EPOCH.date() + dt.timedelta(days=int(told.value))
        case "timestamp_ntz":
            return _EPOCH + dt.timedelta(microseconds=int(told.value))
        case "timestamp":
            return _EPOCH.replace(tzinfo=dt.UTC) + dt.timedelta(microseconds=int(told.value))
        case name if name.startswith("decimal"):
            return Decimal(told.value)
    raise ValueError(f"a value of type {told.name} has no counterpart")
