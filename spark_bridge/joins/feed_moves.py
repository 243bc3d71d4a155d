"""A streaming source without rows: a micro-batch begins whenever the feed of one of a join's tables has moved.

Its offsets are valid in one run of a query. So the first micro-batch of each run begins at once, and the content of an
old checkpoint does not matter: the positions of a join are recorded in the store of its result.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import datasource as spark
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from structable.spark_bridge.base.table_ref import TableRef
from structable.spark_bridge.coordinator.applications import coordinator_of
from structable.spark_bridge.coordinator.client import CoordinatorClient
from structable.spark_bridge.jvm.format_lookup import session_active
from structable.spi import StructableError

# While nothing changes, the stores are asked less and less often.
_SHORTEST_PAUSE = 0.01
_LONGEST_PAUSE = 0.2

_lock = threading.Lock()


def feed_moves(session: SparkSession, *tables: TableRef) -> DataFrame:
    """Return a streaming DataFrame without rows, with a micro-batch for moves of these tables' feeds."""

    # Pickled by value, so that passwords are in no option of Spark's.
    class JoinFeeds(_FeedMoves):
        client = coordinator_of(session).client
        refs = tables

    with _lock, session_active(session):
        session.dataSource.register(JoinFeeds)
        return session.readStream.format(JoinFeeds.name()).load()


class _FeedMoves(spark.DataSource):
    client: ClassVar[CoordinatorClient]
    refs: ClassVar[tuple[TableRef, ...]]

    @classmethod
    def name(cls) -> str:
        return "structable-join-feeds"

    def schema(self) -> str:
        return "moved boolean"

    def streamReader(self, schema: StructType) -> _MovesReader:
        return _MovesReader(self.client, self.refs)


class _MovesReader(spark.DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, client: CoordinatorClient, refs: tuple[TableRef, ...]) -> None:
        self._client = client
        self._refs = refs
        self._run = uuid.uuid4().hex
        self._last: dict[str, str] | None = None
        self._only_one = False
        self._pause = _SHORTEST_PAUSE

    def initialOffset(self) -> dict[str, str]:
        return {"run": ""}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._only_one = True

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:
        if self._last is None:
            self._last = {"run": self._run, "at": self._positions()}
        elif not self._only_one:
            time.sleep(self._pause)
            now = {"run": self._run, "at": self._positions()}
            self._pause = _SHORTEST_PAUSE if now != self._last else min(2 * self._pause, _LONGEST_PAUSE)
            self._last = now
        return self._last

    def _positions(self) -> str:
        try:
            return " ".join(str(self._client.latest(ref.store, ref.name)) for ref in self._refs)
        except StructableError:
            return uuid.uuid4().hex  # the step has the same error, and knows whether it may pass

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[spark.InputPartition]:
        return [spark.InputPartition(0)]

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(())
