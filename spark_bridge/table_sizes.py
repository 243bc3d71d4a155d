"""How large tables are, for Spark's planner: asked by the JVM through the data source, kept for some seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from pyspark.sql.types import LongType, StructField, StructType

from structable.spi import StructableError

from .coordinator_client import CoordinatorClient
from .options import ReadOptions
from .store_client import StoreClient
from .stores import OpenStores

__all__ = ["BYTES", "REQUEST", "ROWS", "TableSizes", "answer_size", "asks_size"]

REQUEST = "structable.size"
"""The option of a data source that is asked for a size; its schema is then the answer."""
ROWS, BYTES = "rows", "bytes"
"""The members of the answer's metadata; without them the size is not known."""
KEPT_SECONDS = 5.0
"""The planner asks for each scan of a query, and soon after a change the numbers should be new."""
_MOST_KEPT = 1_000

Size = tuple[int, int]
"""Rows, and bytes of all columns."""


def asks_size(options: Mapping[str, str]) -> bool:
    """Whether the options of a data source ask for the size of its table."""
    return REQUEST in options


def answer_size(coordinator: CoordinatorClient, options: Mapping[str, str]) -> StructType:
    """Return a schema whose first field has the size in its metadata, if it is known."""
    read = ReadOptions.parse({name: value for name, value in options.items() if name != REQUEST})
    size = None
    if read.feed is None and read.statistics:
        size = coordinator.size(read.store, read.table)
        if size is not None and read.rows is not None:
            rows, width = read.rows, size[1] // max(1, size[0])
            size = rows, rows * max(1, width)
    told = {} if size is None else {ROWS: size[0], BYTES: size[1]}
    return StructType([StructField("size", LongType(), True, told)])


class TableSizes:
    """The sizes of tables, asked again after some seconds; safe to share between threads."""

    def __init__(self, stores: OpenStores) -> None:
        self._stores = stores
        self._lock = threading.Lock()
        self._known: dict[tuple[StoreClient, str], tuple[float, Size | None]] = {}

    def of(self, store: StoreClient, table: str) -> Size | None:
        """Return rows and bytes; None if the store does not tell, as a planner can go on without them."""
        now = time.monotonic()
        with self._lock:
            found = self._known.get((store, table))
        if found is not None and now - found[0] < KEPT_SECONDS:
            return found[1]
        size: Size | None = None
        try:
            with self._stores.using(store) as storage:
                statistics = storage.statistics(table)
            size = statistics.rows, statistics.bytes
        except StructableError:
            size = None  # the query itself says what is wrong, if anything is
        with self._lock:
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            self._known[store, table] = now, size
        return size
