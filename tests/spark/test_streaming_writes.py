"""Streams of rows into tables: each micro-batch takes effect once, whatever is repeated."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.streaming.readwriter import DataStreamWriter

from structable.spark_bridge import TableRef, foreach_batch, send_to
from structable.spark_bridge.base.micro_batches import MicroBatch
from structable.spark_bridge.stream.writer import BatchMessage, StructableStreamWriter
from structable.spi import Field, Storage, StructableError, TableSpecification, UnsupportedOperationError
from structable.spi.authors import requested_job
from tests.spark.conftest import every_store
from tests.spark.support.arrivals import Arrivals, ended, forget_commits

NOW = {"availableNow": True}
SCHEMA = "page string, views bigint"


def totals(name: str) -> TableSpecification:
    """Return a table in which a row that is written twice shows."""
    fields = [Field.string("page"), Field.long("views")]
    options = {"merge-engine": "aggregation", "fields.views.aggregate-function": "sum"}
    return TableSpecification(name, fields, ["page"], options=options)


def contents(storage: Storage, table: str) -> dict[object, object]:
    return {row["page"]: row["views"] for row in storage.table(table).scan()}


@pytest.fixture
def arrivals(spark: SparkSession, tmp_path: Path) -> Arrivals:
    return Arrivals(spark, tmp_path / "arrivals", SCHEMA)


def sink(writer: DataStreamWriter, url: str, table: str, checkpoint: Path) -> DataStreamWriter:
    place = writer.format("structable").option("url", url).option("table", table)
    return place.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)


@every_store
def test_a_repeated_micro_batch_takes_effect_once(
    arrivals: Arrivals, storage: Storage, url: str, tmp_path: Path
) -> None:
    ways = ("format", "function", "sent")
    for way in ways:
        storage.admin.create(totals(way))
    checkpoints = {way: tmp_path / f"checkpoint-{way}" for way in ways}

    def run() -> list[list[int]]:
        stream = arrivals.stream()
        function = stream.writeStream.foreachBatch(foreach_batch(url, "function")).trigger(availableNow=True)
        return [
            ended(sink(stream.writeStream, url, "format", checkpoints["format"]).start()),
            ended(function.option("checkpointLocation", str(checkpoints["function"])).start()),
            ended(send_to(stream, TableRef(url, "sent"), name="all", checkpoint=str(checkpoints["sent"]), trigger=NOW)),
        ]

    arrivals.add({"page": "a", "views": 1}, {"page": "b", "views": 10}, {"page": "a", "views": 100})
    arrivals.add({"page": "a", "views": 1000})
    assert run() == [[0, 1]] * 3
    forget_commits(checkpoints.values(), last=1)
    arrivals.add({"page": "b", "views": 10000})
    assert run() == [[1, 2]] * 3
    for way in ways:
        assert contents(storage, way) == {"a": 1101, "b": 10010}


def test_a_table_of_a_catalog_takes_a_stream(
    arrivals: Arrivals, catalog: str, storage: Storage, tmp_path: Path
) -> None:
    storage.admin.create(totals("t"))

    def run() -> list[int]:
        writer = arrivals.stream().writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return ended(writer.trigger(availableNow=True).toTable(f"{catalog}.t"))

    arrivals.add({"page": "a", "views": 1})
    assert run() == [0]
    forget_commits([tmp_path / "checkpoint"], last=0)
    arrivals.add({"page": "a", "views": 10})
    assert run() == [0, 1]
    assert contents(storage, "t") == {"a": 11}


def test_retried_tasks_count_once_and_an_empty_micro_batch_is_one(
    arrivals: Arrivals, storage: Storage, url: str, tmp_path: Path
) -> None:
    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        task = TaskContext.get()
        assert task is not None
        if task.attemptNumber() == 0:
            raise RuntimeError("this attempt fails")

    storage.admin.create(totals("pages"))
    arrivals.add({"page": "a", "views": 1}, {"page": "a", "views": 10})
    arrivals.add()
    arrivals.add({"page": "a", "views": 100})
    stream = arrivals.stream().mapInArrow(fail_once, SCHEMA)
    assert ended(sink(stream.writeStream, url, "pages", tmp_path / "checkpoint").start()) == [0, 1, 2]
    assert contents(storage, "pages") == {"a": 111}


def test_a_failed_micro_batch_leaves_nothing_and_comes_again(
    arrivals: Arrivals, storage: Storage, url: str, tmp_path: Path
) -> None:
    for table in ("pages", "sent"):
        storage.admin.create(TableSpecification(table, [Field.string("page"), Field.long("views")], ["page"]))
        storage.table(table).insert({"page": "b"})
    arrivals.add({"page": "a", "views": 1})
    arrivals.add({"page": "b", "views": 1}, {"page": "c", "views": 1})

    def insert(table: str) -> None:
        if table == "pages":
            writer = sink(arrivals.stream().writeStream, url, table, tmp_path / table).option("mode", "insert")
            ended(writer.start())
        else:
            ref, checkpoint = TableRef(url, table), str(tmp_path / table)
            ended(send_to(arrivals.stream(), ref, mode="insert", name="x", checkpoint=checkpoint, trigger=NOW))

    for table in ("pages", "sent"):
        with pytest.raises(StreamingQueryException, match=r"already has a row with the key \('b',\)"):
            insert(table)
        assert contents(storage, table) == {"a": 1, "b": None}
        storage.table(table).delete(("b",))
        insert(table)
        assert contents(storage, table) == {"a": 1, "b": 1, "c": 1}


def test_output_modes_complete_and_update(arrivals: Arrivals, storage: Storage, url: str, tmp_path: Path) -> None:
    for table in ("complete", "update"):
        storage.admin.create(TableSpecification(table, [Field.string("page"), Field.long("views")], ["page"]))
        storage.table(table).insert({"page": "old"})
    arrivals.add({"page": "a", "views": 1}, {"page": "b", "views": 10})
    arrivals.add({"page": "a", "views": 100})
    counts = arrivals.stream().groupBy("page").sum("views").withColumnRenamed("sum(views)", "views")
    ended(sink(counts.writeStream.outputMode("complete"), url, "complete", tmp_path / "complete").start())
    assert contents(storage, "complete") == {"a": 101, "b": 10}
    updates = counts.writeStream.outputMode("update").foreachBatch(foreach_batch(url, "update", mode="replace"))
    ended(updates.option("checkpointLocation", str(tmp_path / "update")).trigger(availableNow=True).start())
    assert contents(storage, "update") == {"old": None, "a": 101, "b": 10}


def test_a_stateful_query_goes_on_after_a_micro_batch_that_was_written(
    arrivals: Arrivals, storage: Storage, url: str, tmp_path: Path
) -> None:
    storage.admin.create(TableSpecification("counted", [Field.string("page"), Field.long("count")], ["page"]))

    def run() -> list[int]:
        writer = arrivals.stream().groupBy("page").count().writeStream.outputMode("update")
        writer = writer.foreachBatch(foreach_batch(url, "counted")).trigger(availableNow=True)
        return ended(writer.option("checkpointLocation", str(tmp_path / "query")).start())

    arrivals.add({"page": "a", "views": 1})
    arrivals.add({"page": "a", "views": 1})
    assert run() == [0, 1]
    forget_commits([tmp_path / "query"], last=1)
    arrivals.add({"page": "a", "views": 1})
    assert run() == [1, 2]
    assert [row.astuple() for row in storage.table("counted").scan()] == [("a", 3)]


def test_writes_of_one_micro_batch_need_names(arrivals: Arrivals, storage: Storage, url: str, tmp_path: Path) -> None:
    storage.admin.create(totals("pages"))
    arrivals.add({"page": "a", "views": 1})
    refused: list[Exception] = []

    def write(frame: DataFrame, batch: int) -> None:
        foreach_batch(url, "pages")(frame, batch)
        foreach_batch(url, "pages", name="again")(frame, batch)
        for wrong in (batch, batch + 1):
            try:
                foreach_batch(url, "pages", name="again")(frame, wrong)
            except ValueError as error:
                refused.append(error)

    writer = arrivals.stream().writeStream.foreachBatch(write).trigger(availableNow=True)
    ended(writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start())
    assert contents(storage, "pages") == {"a": 2}
    assert "name is 'again', under which table 'pages' was written before in this micro-batch (0)" in str(refused[0])
    assert str(refused[1]) == "batch is 1, and this is micro-batch 0; pass its number on"


def test_what_does_not_fit_is_refused_before_a_task_runs(
    arrivals: Arrivals, storage: Storage, url: str, tmp_path: Path
) -> None:
    storage.admin.create(totals("pages"))
    arrivals.add({"page": "a", "views": 1})
    for option, value, message in (
        ("jobId", "x", "the option jobId is not for writing streams"),
        ("mode", "patch", "the option mode is 'patch'; allowed are"),
    ):
        query = sink(arrivals.stream().writeStream, url, "pages", tmp_path / option).option(option, value).start()
        with pytest.raises(StreamingQueryException, match=message):
            ended(query)
    wrong = arrivals.stream().selectExpr("page", "cast(views as double) views", "page as other")
    with pytest.raises(StreamingQueryException, match=r"views.*cast it: .cast\('bigint'\)"):
        ended(sink(wrong.writeStream, url, "pages", tmp_path / "wrong").start())
    assert contents(storage, "pages") == {}


def test_a_micro_batch_is_known_by_its_query_and_number(spark: SparkSession, url: str) -> None:
    with pytest.raises(UnsupportedOperationError, match=r"queryId \(None\) .* are not set in this thread"):
        foreach_batch(url, "pages")(spark.range(1), 0)


def test_messages_of_another_micro_batch_are_not_committed() -> None:
    writer = StructableStreamWriter.__new__(StructableStreamWriter)
    writer._options = type("Options", (), {"table": "pages"})()
    job = requested_job("pages", "upsert", stream="q/", batch=3)
    one, other = (BatchMessage(MicroBatch(query, 3), job, None) for query in ("q", "other"))
    cases: list[tuple[list[WriterCommitMessage | None], int]] = [([one], 4), ([one, other], 3), ([None], 3)]
    for messages, number in cases:
        with pytest.raises(StructableError, match=f"the tasks of micro-batch {number} ran for .*: not committed"):
            writer.commit(messages, number)


def test_older_versions_of_pyspark_cannot_stream(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.1.2")
    with pytest.raises(UnsupportedOperationError, match=r"streams need PySpark 4\.2 or later, and this is 4\.1\.2"):
        foreach_batch(url, "pages")
