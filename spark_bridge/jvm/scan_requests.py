"""Messages between the JVM and a reader in Python about a scan: metadata of the first column of a schema.

There is no other channel. When the JVM begins to plan, it asks for facts of a table, and for its size; its request for
a scan comes with the schema of the reader.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StructField, StructType

from structable.spark_bridge.base.options import Pushdown, ReadOptions
from structable.spark_bridge.base.types import spark_schema
from structable.spi import TableSpecification, TableStatistics

FACTS_OPTION = "structable.facts"
"""The option of a data source that has the JVM's question, `table` or `size`; its schema is then the answer."""
REQUEST_KEYS = {
    "EXECUTION": "structable.execution",
    "ZONE": "structable.zone",
    "WHERE": "structable.where",
    "LIMIT": "structable.limit",
    "WHOLE": "structable.whole",
    "TOP": "structable.top",
    "AGGREGATES": "structable.aggregates",
    "UNSCALED": "structable.unscaled",
}
"""The keys of the metadata, by their names in the source of the JVM's side."""


@dataclass(frozen=True, slots=True)
class Top:
    """The first rows in an order."""

    columns: tuple[str, ...]
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """The properties of a scan besides the columns of its schema."""

    execution: int | None = None  # the execution in which it is planned, if there is one
    zone: str | None = None  # the time zone of the session, if it is known
    where: str | None = None  # the pushed filter, for `pushdown.parse_filter`
    limit: int | None = None  # rows of each partition, at most
    whole: bool = False  # whether one partition gives all the rows of the limit
    top: Top | None = None  # which ones, if not any
    aggregates: str | None = None  # what the store gives in place of rows, for `pushdown.parse_aggregation`
    scaled: StructType | None = None  # the schema with decimals, where some columns hold their unscaled values

    @classmethod
    def of(cls, schema: StructType) -> ReadRequest:
        """Return the request in the metadata of a reader's schema; an empty one if Spark's own scan made the schema."""
        metadata = schema.fields[0].metadata if schema.fields else {}
        given = {name: metadata.get(key) for name, key in REQUEST_KEYS.items()}
        top = None if given["TOP"] is None else json.loads(given["TOP"])
        return cls(
            None if given["EXECUTION"] is None else int(given["EXECUTION"]),
            given["ZONE"],
            given["WHERE"],
            given["LIMIT"],
            bool(given["WHOLE"]),
            None if top is None else Top(tuple(top[0]), *top[1:]),
            given["AGGREGATES"],
            None if given["UNSCALED"] is None else StructType.fromJson(json.loads(given["UNSCALED"])),
        )


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
