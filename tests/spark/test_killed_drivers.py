"""A killed driver leaves all of its job or nothing. The job can be run again, and the first batch of a stream too."""

import sys
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from structable.spi import Field, Storage, TableSpecification, connect
from tests.postgresql.support.shared import Schema
from tests.servers.processes import kill_when_reached
from tests.spark.conftest import Tables
from tests.spark.support.samples import RUNS

MOMENTS = ("staged", "committed")
ROWS = 20
STREAMED = TableSpecification(
    "streamed", [Field.long("k")], primary_key=["k"], options={"changelog-producer": "lookup"}
)

# On each store a streaming query whose first batch, of the table's rows, never ends, a job with an endless second task
# and one whose commit is never answered: in one driver, because a JVM starts slowly, and one after the other, because
# Spark gives a Python process that it starts ten seconds, which is little on a busy machine.
DRIVER = """
import os, sys, threading, time
from pyspark.sql import SparkSession
from pyspark import TaskContext
from structable.spark_bridge import register
from structable.spark_bridge.coordinator import write_jobs

rows, checkpoints, *urls = sys.argv[1:]
spark = SparkSession.builder.master("local[4]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
register(spark)
commit = write_jobs.commit_with_retries
reached = set()

def reach(point):
    reached.add(point)
    print(point, flush=True)

def commit_and_stop(storage, job, staged):
    result = commit(storage, job, staged)
    reach(job.job_id)
    threading.Event().wait()

write_jobs.commit_with_retries = commit_and_stop

def stop_in_second_task(batches):
    yield from batches
    if TaskContext.get().partitionId() == 1:
        threading.Event().wait()

def write(url, moment, job_id):
    spark.sparkContext.setJobGroup(job_id, "")
    frame = spark.range(0, int(rows), 1, 2).selectExpr("'etl' as app", "id as started", "'NEW' as status")
    if moment == "staged":
        frame = frame.mapInArrow(stop_in_second_task, frame.schema)
    frame.write.format("structable").option("url", url).option("table", moment).option("mode", "insert").option(
        "jobId", job_id
    ).mode("append").save()

def read(url, point):
    def show_and_stop(frame, batch):
        assert frame.count() == int(rows)
        reach(point)
        threading.Event().wait()

    stream = spark.readStream.format("structable").option("url", url).option("table", "streamed")
    query = stream.option("readChangeFeed", "true").load().writeStream.foreachBatch(show_and_stop)
    return query.option("checkpointLocation", f"{checkpoints}/{point}").start()

def first_task_ended(job_id):
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(job_id)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    return any(stage is not None and stage.numCompletedTasks == 1 for stage in stages)

def end(failure):
    sys.excepthook(failure.exc_type, failure.exc_value, failure.exc_traceback)
    os._exit(1)

threading.excepthook = end
failures = 0
for store, url in enumerate(urls):
    query = read(url, f"streamed-{store}")
    while f"streamed-{store}" not in reached:
        if not query.isActive:
            failures += 1
            if "failed to connect back" not in str(query.exception()) or failures > 10:
                raise query.exception()
            query = read(url, f"streamed-{store}")
        time.sleep(0.05)
    for moment in ("staged", "committed"):
        job_id = f"{moment}-{store}"
        threading.Thread(target=write, args=(url, moment, job_id), daemon=True).start()
        while job_id not in reached:
            if moment == "staged" and first_task_ended(job_id):
                reach(job_id)
            time.sleep(0.05)
threading.Event().wait()
"""


def test_a_killed_driver_leaves_all_or_nothing_and_no_lock(
    spark: SparkSession, tmp_path: Path, postgresql_schema: Schema, caplog: pytest.LogCaptureFixture
) -> None:
    urls = [f"leveldb://{tmp_path}/store", postgresql_schema.url]
    leftovers = [lambda: staged_files(tmp_path / "store"), lambda: staging_tables(postgresql_schema)]
    for url in urls:
        with connect(url) as storage:
            for moment in MOMENTS:
                storage.admin.create(TableSpecification(moment, RUNS.fields, RUNS.primary_key, RUNS.indexes))
                storage.table(moment).upsert({"app": "old", "started": 0})
            storage.admin.create(STREAMED)
            storage.table("streamed").upsert_many({"k": k} for k in range(ROWS))
    points = (f"{point}-{store}" for point in ("streamed", *MOMENTS) for store in range(len(urls)))
    kill_when_reached([sys.executable, "-c", DRIVER, str(ROWS), str(tmp_path), *urls], points)
    for store, url in enumerate(urls):
        with connect(url) as storage:
            assert rows(storage, "staged") == [("old", 0)]
            assert rows(storage, "committed") == ALL
            assert leftovers[store]()
            storage.table("staged").upsert({"app": "old", "started": 0, "status": "WRITTEN"})
            tables = Tables(spark, url)
            frame = spark.range(0, ROWS, 1, 2).selectExpr("'etl' as app", "id as started", "'AGAIN' as status")
            for moment in MOMENTS:
                for _ in range(2 if moment == "staged" else 1):
                    tables.write(frame, moment, mode="insert", jobId=f"{moment}-{store}")
                assert rows(storage, moment) == ALL
                assert f"the job '{moment}-{store}' (option jobId) had been committed before" in caplog.text
            assert {row.status for row in storage.table("staged").scan()} == {"WRITTEN", "AGAIN"}
            assert {row.status for row in storage.table("committed").scan()} == {None, "NEW"}
            assert leftovers[store]() == []
            storage.table("streamed").delete((0,))
            assert streamed(tables, tmp_path / f"streamed-{store}") == [
                [(k, "insert") for k in range(ROWS)],
                [(0, "delete")],
            ]
            for table in (*MOMENTS, "streamed"):
                storage.admin.drop(table)  # which waits for other users of the table


ALL = [*(("etl", number) for number in range(ROWS)), ("old", 0)]


def streamed(tables: Tables, checkpoint: Path) -> list[list[tuple[int, str]]]:
    """Return the micro-batches of a stream that goes on from a checkpoint."""
    found: list[list[tuple[int, str]]] = []
    stream = tables.stream("streamed", readChangeFeed="true")
    query = stream.writeStream.foreachBatch(lambda frame, batch: found.append(sorted(frame.collect())))
    query = query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    assert query.start().awaitTermination(120)
    return [[(row[0], row[1]) for row in batch] for batch in found]


def rows(storage: Storage, table: str) -> list[tuple[object, ...]]:
    """Return the keys of a table."""
    return [tuple(row.key) for row in storage.table(table).scan()]


def staged_files(folder: Path) -> list[str]:
    """Return the files that are staged in a LevelDB store."""
    return [str(file) for file in (folder / "staging").rglob("*") if file.is_file()]


def staging_tables(schema: Schema) -> list[str]:
    """Return the staging tables of a PostgreSQL store."""
    with psycopg.connect(schema.conninfo) as connection:
        found = connection.execute(
            "select relname::text from pg_class where relnamespace = %s::regnamespace "
            "and relkind = 'r' and starts_with(relname, '_stage_')",
            [schema.name],
        )
        return [name for (name,) in found]
