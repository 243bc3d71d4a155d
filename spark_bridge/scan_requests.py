"""Requests of the JVM to a reader in Python: metadata of its schema's first column, the only channel there is."""

from __future__ import annotations

import json
from dataclasses import dataclass

from pyspark.sql.types import StructType

__all__ = ["REQUEST_KEYS", "ScanRequest", "Top"]

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
class ScanRequest:
    """The properties of a scan besides the columns of its schema."""

    execution: int | None = None  # the execution in which it is planned, if there is one
    zone: str | None = None  # the time zone of the session, if it is known
    where: str | None = None  # the pushed filter, for `pushed_conditions.parse_filter`
    limit: int | None = None  # rows of each partition, at most
    whole: bool = False  # whether one partition gives all the rows of the limit
    top: Top | None = None  # which ones, if not any
    aggregates: str | None = None  # what the store gives in place of rows, for `pushed_aggregates.parse_aggregation`
    scaled: StructType | None = None  # the schema with the decimals of which some columns are the unscaled values

    @classmethod
    def of(cls, schema: StructType) -> ScanRequest:
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
