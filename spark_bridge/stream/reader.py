"""Streaming reads: micro-batches of a table's changes, after its rows where no start is given."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as spark
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from structable.spark_bridge.base.errors import one_line_errors
from structable.spark_bridge.base.options import ReadOptions
from structable.spark_bridge.base.python_workers import freeze_imports
from structable.spark_bridge.base.types import arrow_schema_of, check_feed_schema, check_read_schema
from structable.spark_bridge.coordinator.client import CoordinatorClient, HeldFirstSnapshot
from structable.spark_bridge.coordinator.feed_streams import Advance, FeedStream, check_streamed, naming_the_cure
from structable.spark_bridge.coordinator.stream_offsets import Offset, StreamOffset, StreamStart, offset_of
from structable.spark_bridge.read.reader import SplitPartition
from structable.spi import FEED_COLUMNS, FeedPosition, RowKind

from .snapshot_parts import SnapshotPart, snapshot_parts

# While nothing changes, the store is asked less and less often.
_SHORTEST_PAUSE = 0.01
_LONGEST_PAUSE = 0.2


class SnapshotPartition(spark.InputPartition):
    """Some rows of the first snapshot, with its version and time."""

    def __init__(self, part: SnapshotPart, offset: StreamOffset) -> None:
        super().__init__(None)
        self.part = part
        self.offset = offset


class FeedStreamReader(spark.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream.

    Spark makes an instance in a process on the driver's machine for each run of a query, which plans, and others that
    only read, in tasks.
    """

    def __init__(self, coordinator: CoordinatorClient, options: ReadOptions, schema: StructType, session: str) -> None:
        self._coordinator = coordinator
        self._options = options
        self._schema = schema
        self._session = session
        self._start = StreamStart.of(options.feed)
        self._planning: FeedStream | None = None
        self._until: FeedPosition | None = None
        self._first: tuple[StreamOffset, HeldFirstSnapshot] | None = None
        self._since: tuple[StreamOffset, float] | None = None  # the newest offset, and the time when it became that
        self._pause = 0.0
        self._asked = 0.0

    @property
    def _stream(self) -> FeedStream:
        if self._planning is None:
            options = self._options
            spec = self._coordinator.describe(options.store, options.table)
            check_streamed(spec, changes=options.feed is not None)
            check = check_read_schema if options.feed is None else check_feed_schema
            fields = tuple(spec.field(name) for name in check(spec, self._schema))
            timed = options.feed is not None and options.feed.starting_timestamp is not None
            zone = self._coordinator.zone(self._session) if timed else None
            self._planning = FeedStream(options, fields, spec.primary_key, zone, spec.table_options.log)
        return self._planning

    @one_line_errors()
    def initialOffset(self) -> Offset:
        return self._start.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    @one_line_errors()
    def prepareForTriggerAvailableNow(self) -> None:
        self._until = self._coordinator.latest(self._options.store, self._options.table)

    @one_line_errors()
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        since = offset_of(start)
        if self._first is not None and self._first[0] == since:
            self._give_up_snapshot()
        if self._takes_snapshot(since):
            return self._snapshot().to_json()
        time.sleep(max(0.0, self._asked + self._pause - time.monotonic()))
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        age = time.monotonic() - self._since[1] if self._since is not None and self._since[0] == since else None
        end = self._coordinator.advance_stream(self._stream, Advance(since, rows, self._until, age))
        self._asked = time.monotonic()
        if end is not None:
            self._pause = 0.0
            offset = StreamOffset(end, _now() if isinstance(since, StreamStart) and since.is_snapshot else None)
            self._since = offset, self._asked
            return offset.to_json()
        self._pause = min(max(2 * self._pause, _SHORTEST_PAUSE), _LONGEST_PAUSE)
        if age is None and isinstance(since, StreamOffset):
            self._since = since, self._asked
        return start  # unchanged, as Spark compares the texts of offsets

    @one_line_errors()
    def partitions(self, start: Offset, end: Offset) -> list[spark.InputPartition]:
        since, until = offset_of(start), offset_of(end)
        assert isinstance(until, StreamOffset)
        if isinstance(since, StreamStart) and since.is_snapshot != (until.time is not None):
            raise ValueError(
                "the first batch in the checkpoint was begun with another start than the options startingVersion and "
                "startingTimestamp say now, and has to be repeated; restore them, or use a new checkpoint"
            )
        freeze_imports()
        if self._takes_snapshot(since):
            if self._first is None or self._first[0] != until:
                self._give_up_snapshot()
                self._first = until, self._coordinator.first_snapshot(self._stream, until.position)
            return [SnapshotPartition(part, until) for part in snapshot_parts(self._first[1].snapshot)]
        splits = self._coordinator.plan_stream(self._stream, since, until.position)
        return [SplitPartition("", split) for split in splits]

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema_of(self._schema)
        read_split = self._options.store.read_split
        with one_line_errors(), naming_the_cure():
            if isinstance(partition, SnapshotPartition):
                own = [name for name in schema.names if self._options.feed is None or name not in FEED_COLUMNS]
                for batch in partition.part.read(own, read_split):
                    freeze_imports()
                    inserted = _inserted(batch.num_rows, partition.offset)
                    arrays = [batch.column(name) if name in own else inserted[name] for name in schema.names]
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            else:
                assert isinstance(partition, SplitPartition)
                for batch in read_split(partition.splits[0]):
                    freeze_imports()
                    yield pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)

    def stop(self) -> None:
        self._give_up_snapshot()

    def _takes_snapshot(self, since: StreamStart | StreamOffset) -> bool:
        """Return whether a batch after an offset has the rows of the table, which a log has not."""
        return isinstance(since, StreamStart) and since.is_snapshot and not self._stream.log

    def _snapshot(self) -> StreamOffset:
        """Take the first snapshot, unless it is taken; return its offset."""
        if self._first is None:
            held = self._coordinator.first_snapshot(self._stream)
            self._first = StreamOffset(held.snapshot.position, held.snapshot.time), held
        return self._first[0]

    def _give_up_snapshot(self) -> None:
        if self._first is not None:
            self._first[1].close()
            self._first = None


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _inserted(rows: int, offset: StreamOffset) -> dict[str, pa.Array[Any]]:
    """Return the columns of a feed for rows of the first snapshot."""
    kind = pa.repeat(pa.scalar(RowKind.INSERT.change_type, pa.string()), rows)
    version = pa.repeat(pa.scalar(offset.position.version, pa.int64()), rows)
    time = pa.repeat(pa.scalar(offset.time, pa.timestamp("us", "UTC")), rows)
    return dict(zip(FEED_COLUMNS, (kind, version, time), strict=True))
