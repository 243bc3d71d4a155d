"""Facts of a table for the JVM's planning of a scan: its keys and indexes, possible pushdown, and its size."""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import StructField, StructType

from structable.spi import TableSpecification, TableStatistics

from .options import Pushdown, ReadOptions
from .types import spark_schema

__all__ = ["FACTS_OPTION", "facts_schema", "size_schema"]

FACTS_OPTION = "structable.facts"
"""The option of a data source that has the JVM's question, `table` or `size`; its schema is then the answer."""


def facts_schema(spec: TableSpecification, options: ReadOptions, *, aggregates: bool) -> StructType:
    """Return all columns of a table, the first with its keys and indexes, and with what may be pushed down.

    `aggregates` says whether the store computes them.
    """
    pushdown = Pushdown.NONE if options.feed is not None else options.pushdown
    # Spark takes a list without members for one of numbers.
    lists = {name: list(names) for name, names in (("key", spec.primary_key), ("indexes", spec.indexes)) if names}
    return _answer(spec, {"pushdown": str(pushdown), "aggregates": aggregates, **lists})


def size_schema(spec: TableSpecification, options: ReadOptions, statistics: TableStatistics | None) -> StructType:
    """Return all columns of a table, the first with its rows and bytes, as far as they are reported."""
    if statistics is not None:
        return _answer(spec, {"rows": statistics.rows, "bytes": statistics.bytes})
    return _answer(spec, {} if options.reported_rows is None else {"rows": options.reported_rows})


def _answer(spec: TableSpecification, facts: dict[str, Any]) -> StructType:
    first, *others = spark_schema(spec).fields
    return StructType([StructField(first.name, first.dataType, first.nullable, facts), *others])
