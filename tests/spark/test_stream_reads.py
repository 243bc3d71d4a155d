"""Streaming reads of change feeds and of append-only tables."""

import datetime as dt
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from structable.spark_bridge.base.options import ReadOptions
from structable.spark_bridge.base.types import spark_schema
from structable.spark_bridge.coordinator import applications
from structable.spark_bridge.source import StructableDataSource
from structable.spi import FEED_COLUMNS, Field, Storage, TableSpecification, UnsupportedOperationError
from tests.spark.conftest import Tables, every_store
from tests.waiting import until

FED = TableSpecification(
    "fed",
    [Field.long("k"), Field.string("text")],
    primary_key=["k"],
    options={"changelog-producer": "lookup"},
)
LOG = TableSpecification(
    "log",
    [Field.long("k"), Field.int("size")],
    options={"write-mode": "append-only", "changelog-producer": "input"},
)
MESSAGES = TableSpecification("messages", [Field.long("k"), Field.int("size")], options={"write-mode": "log"})
PLACE = {"url": "leveldb:///tables", "table": "fed"}


class Batches:
    """The rows of each micro-batch of queries with one checkpoint, which may fail after they were read."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self.read: list[list[tuple[Any, ...]]] = []
        self.then: Callable[[int], None] = lambda batch: None

    def start(self, frame: DataFrame) -> StreamingQuery:
        return self._writer(frame).start()

    def run(self, frame: DataFrame) -> list[list[tuple[Any, ...]]]:
        """Run a query to the end of what there is, and return its batches."""
        self.read.clear()
        assert self._writer(frame).trigger(availableNow=True).start().awaitTermination(120)
        return list(self.read)

    def _writer(self, frame: DataFrame) -> DataStreamWriter:
        return frame.writeStream.foreachBatch(self._each).option("checkpointLocation", str(self.checkpoint))

    def _each(self, frame: DataFrame, batch: int) -> None:
        self.read.append(sorted(tuple(row) for row in frame.collect()))
        self.then(batch)


@pytest.fixture
def batches(tmp_path: Path) -> Batches:
    return Batches(tmp_path / "checkpoint")


def fail(batch: int) -> None:
    raise RuntimeError(f"batch {batch} fails as planned")


def snapshots(tables: Tables) -> int:
    return applications.coordinators[tables.session.sparkContext].plans()


@every_store
def test_rows_then_changes_though_the_first_batch_is_repeated(
    tables: Tables, storage: Storage, batches: Batches
) -> None:
    storage.admin.create(FED)
    table = storage.table("fed")
    table.upsert_many({"k": k, "text": "new"} for k in range(4))
    frame = tables.stream("fed", readChangeFeed="true")
    assert frame.isStreaming
    assert frame.schema.names == [*FED.field_names, *FEED_COLUMNS]
    batches.then = fail
    with pytest.raises(StreamingQueryException, match="batch 0 fails as planned"):
        batches.run(frame)
    (first,) = batches.read
    version, time = first[0][3:]
    assert first == [(k, "new", "insert", version, time) for k in range(4)]
    until(lambda: snapshots(tables) == 0)  # its process has ended
    table.upsert_many([{"k": 1, "text": "changed"}, {"k": 9, "text": "late"}])
    table.delete((2,))
    batches.then = lambda batch: None
    again, changes = batches.run(frame)
    assert again == first
    assert [row[:3] for row in changes] == [
        (1, "changed", "update_postimage"),
        (1, "new", "update_preimage"),
        (2, "new", "delete"),
        (9, "late", "insert"),
    ]
    assert {row[3] for row in changes} == {change.version for change in storage.changes("fed").read()} - {first[0][3]}
    assert snapshots(tables) == 0
    assert batches.run(frame) == []


def test_limits_and_ends_of_batches(tables: Tables, storage: Storage, batches: Batches) -> None:
    storage.admin.create(FED)
    table = storage.table("fed")
    for rows in (2, 1, 1):
        table.upsert_many({"k": k, "text": str(rows)} for k in range(rows))
    frame = tables.stream("fed", readChangeFeed="true", startingVersion="earliest", maxRowsPerTrigger=3, columns="k")
    batches.then = lambda batch: storage.table("fed").upsert({"k": 10 + batch})
    first, second = batches.run(frame)
    assert [row[:2] for row in first] == [(0, "insert"), (1, "insert")]
    assert [row[:2] for row in second] == [(0, "update_postimage"), (0, "update_preimage")]  # the third changes nothing
    assert [[row[0] for row in batch] for batch in batches.run(frame)] == [[10, 11]]  # written during the first run
    storage.admin.drop("fed")
    storage.admin.create(FED)
    with pytest.raises(StreamingQueryException, match=r"ChangesLostError.*belongs to a feed that is gone"):
        batches.run(frame)


def test_a_starting_time_is_of_the_session(tables: Tables, storage: Storage, batches: Batches) -> None:
    storage.admin.create(FED)
    storage.table("fed").upsert({"k": 1})
    # An hour ago, in UTC; in Los Angeles it is hours ahead.
    ago = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
    frame = tables.stream("fed", readChangeFeed="true", startingTimestamp=f"{ago:%Y-%m-%d %H:%M:%S}")
    assert batches.run(frame) == [[]]
    storage.table("fed").upsert({"k": 2})
    assert [[row[0] for row in batch] for batch in batches.run(frame)] == [[2]]


def test_an_append_only_table_gives_rows_alone_while_its_schema_changes(
    tables: Tables, storage: Storage, batches: Batches
) -> None:
    storage.admin.create(LOG)
    storage.table("log").insert({"k": 1, "size": 1})
    query = batches.start(tables.stream("log"))
    try:
        until(lambda: len(batches.read) == 1)
        storage.admin.create_or_update(LOG.evolve(fields=[*LOG.fields, Field.long("more")]))
        storage.table("log").insert({"k": 2, "size": 2, "more": 2})
        until(lambda: len(batches.read) == 2)
        assert batches.read == [[(1, 1)], [(2, 2)]]
        assert snapshots(tables) == 0
        wide = LOG.evolve(fields=[Field.long("k"), Field.long("size"), Field.long("more")])
        storage.admin.create_or_update(wide)
        storage.table("log").insert({"k": 3, "size": 3})
        with pytest.raises(
            StreamingQueryException, match="'size' is long, and was int when the query started; restart"
        ):
            query.awaitTermination(120)
    finally:
        query.stop()
    assert batches.run(tables.stream("log")) == [[(3, 3, None)]]


@every_store
def test_a_log_is_appended_to_and_read(tables: Tables, storage: Storage, batches: Batches, tmp_path: Path) -> None:
    """Without a start a stream begins with what the log keeps, in batch and stream, though its first batch fails."""
    copy = MESSAGES.evolve(name="copy")
    for spec in (MESSAGES, copy):
        storage.admin.create(spec)
    frame = tables.session.range(0, 6, 1, 2).selectExpr("id as k", "cast(id as int) as size")
    for _ in range(2):
        tables.write(frame, "messages", jobId="once")
    assert [change.row["k"] for change in storage.changes("messages").read()] == [*range(6)]
    for k in (6, 7):
        storage.table("messages").insert({"k": k})
    read = tables.read("messages", readChangeFeed="true")
    assert read.where("_change_type = 'insert' and k > 3").count() == 4
    with pytest.raises(AnalysisException, match=r"a log keeps no rows: read its changes.*readChangeFeed=true"):
        tables.read("messages").collect()

    rows = tables.stream("messages", maxRowsPerTrigger=7)
    assert rows.schema.names == ["k", "size"]
    batches.then = fail
    with pytest.raises(StreamingQueryException, match="batch 0 fails as planned"):
        batches.run(rows)
    batches.then = lambda batch: None
    storage.table("messages").insert({"k": 8})
    expected = [[(k, k) for k in range(6)] + [(6, None)], [(7, None), (8, None)]]
    assert batches.run(rows) == expected
    assert batches.run(rows) == []

    changes = tables.stream("messages", readChangeFeed="true").drop(*FEED_COLUMNS).writeStream.format("structable")
    sink = changes.option("url", tables.url).option("table", "copy").option("checkpointLocation", str(tmp_path / "c"))
    for more in ([], [{"k": 9}]):
        storage.table("messages").insert_many(more)
        assert sink.trigger(availableNow=True).start().awaitTermination(120)
    assert {change.row["k"] for change in storage.changes("copy").read()} == {*range(10)}
    assert sum(1 for _ in storage.changes("copy").read()) == 10


def test_a_stopped_query_gives_up_its_snapshot(tables: Tables, storage: Storage, batches: Batches) -> None:
    storage.admin.create(FED)
    reading, going_on = threading.Event(), threading.Event()

    def wait(batch: int) -> None:
        reading.set()
        going_on.wait(60)

    batches.then = wait
    query = batches.start(tables.stream("fed", readChangeFeed="true"))
    assert reading.wait(120)
    assert snapshots(tables) == 1
    threading.Timer(0.5, going_on.set).start()
    query.stop()
    until(lambda: snapshots(tables) == 0)


def test_what_cannot_be_streamed_is_an_error(tables: Tables, storage: Storage, batches: Batches) -> None:
    storage.admin.create(FED)
    with pytest.raises(StreamingQueryException, match=r"not append-only.*readChangeFeed=true"):
        batches.run(tables.stream("fed"))


@pytest.mark.parametrize(
    ("options", "streaming", "message"),
    [
        ({"readchangefeed": "true", "endingversion": "1"}, True, "endingVersion is for spark.read, and this is"),
        ({"readchangefeed": "true", "endingtimestamp": "2026-01-01"}, True, "endingTimestamp is for spark.read,"),
        ({"readchangefeed": "true", "netchanges": "true"}, True, "netChanges is for spark.read,"),
        ({"leaseseconds": "1"}, True, "leaseSeconds is for spark.read,"),
        ({"startingversion": "1"}, True, "startingVersion: the option readChangeFeed=true is missing"),
        ({"maxrowspertrigger": "0"}, True, "the option maxRowsPerTrigger is '0'"),
        ({"maxrowspertrigger": "1"}, False, "maxRowsPerTrigger is for spark.readStream, and this is spark.read"),
    ],
)
def test_wrong_options(options: dict[str, str], streaming: bool, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReadOptions.parse({**PLACE, **options}, streaming=streaming)


def test_an_older_pyspark_cannot_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.1.2")
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "1")  # as the data source does where it fails
    with pytest.raises(UnsupportedOperationError, match=r"need PySpark 4.2 or later, and this is 4.1.2"):
        StructableDataSource(PLACE).streamReader(spark_schema(FED))
