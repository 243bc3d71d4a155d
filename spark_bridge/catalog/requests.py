"""Requests of the JVM: an option of the data source, answered by the schema that it has then."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.types import StructType

from structable.spark_bridge.base.store_client import READ_OPTIONS, STREAM_WRITE_OPTIONS, WRITE_OPTIONS, StoreClient
from structable.spark_bridge.coordinator.client import CoordinatorClient

REQUEST = "structable.catalog"
"""The option that has a request."""

_ONE_READ = (
    "table",
    "columns",
    "readchangefeed",
    "startingversion",
    "startingtimestamp",
    "endingversion",
    "endingtimestamp",
    "netchanges",
    "maxrowspertrigger",
)
NOT_READ = ("url", *_ONE_READ)
"""The options that reads of a catalog do not take: its tables are read with their own schema and all columns."""
ONLY_READ = tuple(sorted(READ_OPTIONS.keys() - WRITE_OPTIONS.keys()))
"""The options of a catalog that no write takes."""


@dataclass(frozen=True, slots=True)
class CatalogRequest:
    """The request of a statement to a store."""

    command: str
    store: StoreClient
    table: str = ""
    schema: StructType = field(default_factory=StructType)
    properties: tuple[tuple[str, str], ...] = ()
    where: str = ""  # for `pushdown.parse_filter`

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> CatalogRequest:
        """Return the request that options have; ValueError for options that a catalog does not take."""
        given = {name: value for name, value in options.items() if name != REQUEST}
        for name in (*_ONE_READ, *(WRITE_OPTIONS.keys() | STREAM_WRITE_OPTIONS.keys()) - READ_OPTIONS.keys()):
            if name in given:
                shown = (READ_OPTIONS | WRITE_OPTIONS | STREAM_WRITE_OPTIONS)[name]
                raise ValueError(f"the option {shown} is not for a catalog, but for one read or write of a table")
        url = given.get("url")
        if not url:
            raise ValueError("the catalog has no store; set spark.sql.catalog.NAME.url to its url")
        connection = sorted((name, value) for name, value in given.items() if name not in READ_OPTIONS)
        asked: dict[str, Any] = json.loads(options[REQUEST])
        return cls(
            asked["command"],
            StoreClient(url, tuple(connection)),
            asked.get("table", ""),
            StructType.fromJson(json.loads(asked["schema"])) if "schema" in asked else StructType(),
            tuple(zip(asked.get("names", ()), asked.get("values", ()), strict=True)),
            asked.get("where", ""),
        )


def asks_catalog(options: Mapping[str, str]) -> bool:
    """Whether the options of a data source are a request of a catalog."""
    return REQUEST in options


def answer_catalog(coordinator: CoordinatorClient, options: Mapping[str, str]) -> StructType:
    """Return the answer to the request that options have."""
    return coordinator.run_catalog_command(CatalogRequest.parse(options))
