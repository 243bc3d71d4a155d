"""Tables with a type: jobs that merge, row kinds, and tables without a key."""

import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, lit
from pyspark.sql.types import StructType

from structable.spark_bridge.coordinator import applications
from structable.spark_bridge.source import bound_data_source
from structable.spark_bridge.write.writer import StagedMessage, StructableWriter
from structable.spi import Field, Storage, TableSpecification
from tests.spark.conftest import Tables, every_store

most_stores = pytest.mark.parametrize("url", ["leveldb", "postgresql"], indirect=True)

COUNTS = TableSpecification(
    "counts",
    [Field.long("k"), Field.long("total"), Field.long("rows")],
    primary_key=["k"],
    options={
        "merge-engine": "aggregation",
        "fields.total.aggregate-function": "sum",
        "fields.rows.aggregate-function": "count",
    },
)
LATEST = TableSpecification(
    "latest",
    [Field.long("k"), Field.long("version"), Field.string("text")],
    primary_key=["k"],
    options={"sequence.field": "version"},
)
FIRST = TableSpecification(
    "first", [Field.long("k"), Field.string("text")], primary_key=["k"], options={"merge-engine": "first-row"}
)
LOG = TableSpecification("log", [Field.long("at"), Field.string("text")], options={"write-mode": "append-only"})
BAG = TableSpecification(
    "bag", [Field.string("word"), Field.long("line")], indexes=["word"], options={"write-mode": "change-log"}
)


@pytest.fixture(autouse=True)
def created(storage: Storage) -> None:
    for spec in (COUNTS, LATEST, FIRST, LOG, BAG):
        storage.admin.create(spec)


def rows(storage: Storage, table: str) -> list[tuple[object, ...]]:
    with storage.table(table).scan() as found:
        return sorted([tuple(row.values()) for row in found], key=repr)


def events(session: SparkSession, number: int = 300) -> DataFrame:
    return session.range(0, number, 1, 3).select((col("id") % 7).alias("k"), lit(1).cast("bigint").alias("n"))


EXPECTED = [(k, 43 if k < 6 else 42, 1) for k in range(7)]


def counted(frame: DataFrame) -> DataFrame:
    return frame.groupBy("k").agg(count("*").alias("total")).withColumn("rows", lit(0).cast("bigint"))


@every_store
def test_counts_submitted_twice_under_one_id_are_exact(tables: Tables, storage: Storage) -> None:
    job = f"hourly-{uuid.uuid4()}"
    for _ in range(2):
        tables.write(counted(events(tables.session)), "counts", mode="upsert", jobId=job)
    assert rows(storage, "counts") == EXPECTED
    tables.write(counted(events(tables.session)), "counts", jobId=f"{job} again")
    assert rows(storage, "counts") == [(k, 2 * total, 2) for k, total, _ in EXPECTED]


@most_stores
def test_rows_of_a_key_in_many_partitions_are_added_up(tables: Tables, storage: Storage) -> None:
    frame = events(tables.session).select("k", col("n").alias("total"), lit(None).alias("rows"))
    tables.write(frame, "counts")
    assert rows(storage, "counts") == [(k, total, None) for k, total, _ in EXPECTED]


@every_store
def test_a_task_that_fails_after_staging_counts_once(tables: Tables, storage: Storage) -> None:
    tables.session.dataSource.register(failing_after_staging(tables.session))
    job = f"hourly-{uuid.uuid4()}"
    for _ in range(2):
        frame = events(tables.session).select("k", col("n").alias("total"), col("n").alias("rows"))
        tables.writer(frame, "counts", jobId=job).format("structable-failing").save()
    assert rows(storage, "counts") == [(k, total, total) for k, total, _ in EXPECTED]


def failing_after_staging(session: SparkSession) -> type:
    """Return a data source whose every task fails at its first attempt, after its rows are staged."""

    class FailingWriter(StructableWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:  # type: ignore[override]
            message = StructableWriter.write(self, iterator)
            task = TaskContext.get()
            assert task is not None
            if task.attemptNumber() == 0 and not self._job.committed:
                raise RuntimeError("this task fails after staging")
            return message

    bound = bound_data_source(applications.coordinators[session.sparkContext].client)

    class FailingSource(bound):  # type: ignore[misc,valid-type]
        @classmethod
        def name(cls) -> str:
            return "structable-failing"

        def writer(self, schema: StructType, overwrite: bool) -> StructableWriter:
            made: StructableWriter = bound.writer(self, schema, overwrite)
            made.__class__ = FailingWriter
            return made

    return FailingSource


@most_stores
def test_changes_apply_their_kinds(tables: Tables, storage: Storage) -> None:
    frame = tables.session.createDataFrame(
        [("+I", 1, 5, 1), ("insert", 2, 7, 1), ("-D", 1, 2, 1), ("update_preimage", 2, 7, 1), ("+U", 2, 9, 1)],
        "_change_type string, k bigint, total bigint, rows bigint",
    )
    tables.write(frame, "counts", mode="changes")
    assert rows(storage, "counts") == [(1, 3, 0), (2, 9, 1)]
    # What a change feed adds is left out.
    fed = frame.where("k = 1").withColumn("_commit_version", lit(9)).withColumn("_commit_timestamp", lit("now"))
    tables.write(fed, "counts", mode="changes")
    assert rows(storage, "counts") == [(1, 6, 0), (2, 9, 1)]


@most_stores
def test_the_highest_sequence_wins_in_any_order(tables: Tables, storage: Storage) -> None:
    frame = tables.session.range(0, 100, 1, 4).selectExpr("id % 3 as k", "(id * 37) % 100 as version", "'x' as text")
    tables.write(frame, "latest", mode="upsert")
    tables.write(frame.where("version < 50").withColumn("text", lit("late")), "latest", mode="upsert")
    best = {row.k: row.version for row in frame.groupBy("k").agg({"version": "max"}).toDF("k", "version").collect()}
    assert rows(storage, "latest") == sorted((k, version, "x") for k, version in best.items())


@every_store
def test_tables_without_a_key_are_inserted_into_and_read(tables: Tables, storage: Storage) -> None:
    frame = tables.session.range(0, 30, 1, 3).selectExpr("id as at", "if(id % 2 = 0, 'even', null) as text")
    job = f"log-{uuid.uuid4()}"
    for _ in range(2):
        tables.write(frame, "log", jobId=job)
    tables.write(frame.where("at < 5"), "log", mode="insert")
    read = tables.read("log")
    assert read.schema.simpleString() == "struct<at:bigint,text:string>"
    assert (read.count(), read.where("text = 'even'").count(), read.where("at < 5").count()) == (35, 18, 10)
    assert read.groupBy("at").count().where("count = 2").count() == 5
    tables.session.sql("DROP VIEW IF EXISTS log")
    read.createOrReplaceTempView("log")
    tables.session.sql("INSERT INTO log VALUES (99, 'by SQL')")
    assert storage.table("log").count() == 36


@most_stores
def test_a_bag_takes_rows_and_gives_them_back(tables: Tables, storage: Storage) -> None:
    words = tables.session.createDataFrame([("to", 1), ("be", 1), ("to", 1)], "word string, line bigint")
    tables.write(words, "bag")
    assert sorted(tuple(row) for row in tables.read("bag").collect()) == [("be", 1), ("to", 1), ("to", 1)]
    tables.write(words.distinct().withColumn("_change_type", lit("delete")), "bag", mode="changes")
    assert rows(storage, "bag") == [("to", 1)]
    assert [tuple(row) for row in tables.read("bag").where("word = 'to'").collect()] == [("to", 1)]


@pytest.mark.parametrize(
    ("table", "frame", "options", "message"),
    [
        ("counts", "1L as k", {"mode": "changes"}, "field '_change_type': must be in the DataFrame once, as a string"),
        ("counts", "1L as k, 1 as _change_type", {"mode": "changes"}, "field '_change_type': must be in the DataFrame"),
        ("counts", "1L as k, '+I' as _change_type", {}, "'_change_type': is not a field"),
        ("log", "1L as at", {"mode": "upsert"}, "it has no write jobs of mode upsert"),
        ("log", "1L as at, '+I' as _change_type", {"mode": "changes"}, "it has no write jobs of mode changes"),
        ("bag", "'x' as word", {"mode": "overwrite"}, "it has no write jobs of mode overwrite"),
    ],
)
def test_what_a_table_does_not_take_fails_before_any_task(
    tables: Tables, storage: Storage, table: str, frame: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(AnalysisException) as caught:
        tables.write(tables.session.sql(f"SELECT {frame}"), table, **options)
    assert message in str(caught.value).splitlines()[0]
    assert storage.table(table).count() == 0


@pytest.mark.parametrize(
    ("table", "frame", "message"),
    [
        ("counts", "1L as k, '+X' as _change_type", r"field '_change_type'.*'\+X' is not a row kind"),
        ("counts", "1L as k, string(null) as _change_type", "field '_change_type'.*None is not a row kind"),
        ("first", "1L as k, '-D' as _change_type", r"merge-engine first-row takes no retract \(-D\)"),
    ],
)
def test_bad_changes_leave_nothing(tables: Tables, storage: Storage, table: str, frame: str, message: str) -> None:
    good = tables.session.sql("SELECT 2L as k, '+I' as _change_type")
    with pytest.raises(PythonException, match=message):
        tables.write(good.union(tables.session.sql(f"SELECT {frame}")), table, mode="changes")
    assert storage.table(table).count() == 0
