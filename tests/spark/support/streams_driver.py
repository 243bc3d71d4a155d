"""A Spark application with all streams of a test, which is killed at any time and started again.

Prints a line for each write job that it committed. Usage: streams_driver.py SETTINGS, JSON with the keys

- `master`, and `java`: the flags of its executors;
- `folder`: where checkpoints are, and `arrivals`: the folder of files that arrive;
- `stores`: names and URLs; each gets the sums and the profiles of what arrives;
- `by_function`: the store whose sums are written by a `foreachBatch` function, the others' by the format;
- `source` and `copy`: the URLs between which the table "followed" is copied by its change feed;
- `stop_after`: the number of the commit after which the application does nothing more, as if it hung; -1 for none;
- `ends`: whether the streams end when they have read all that is there.
"""

import itertools
import json
import sys
import threading
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from structable.spark_bridge import TableRef, foreach_batch, register, send_update_to
from structable.spark_bridge.coordinator import write_jobs
from structable.spi import CommitResult, StagedWrite, Storage, WriteJob

ARRIVING = "k string, n bigint"


def tell_commits(stop_after: int) -> None:
    """Print a line after each commit, and stop all that commit after a certain one."""
    commit, numbers, stopped = write_jobs.commit_with_retries, itertools.count(1), threading.Event()

    def told(storage: Storage, job: WriteJob, staged: list[StagedWrite]) -> tuple[CommitResult, int]:
        if stopped.is_set():
            threading.Event().wait()
        result = commit(storage, job, staged)
        number = next(numbers)
        print(f"committed {job.table}", flush=True)
        if number == stop_after:
            stopped.set()
            print("stopped", flush=True)
            threading.Event().wait()
        return result

    write_jobs.commit_with_retries = told


def started(spark: SparkSession, settings: dict[str, Any]) -> Iterator[StreamingQuery]:
    """Start one stream after the other."""
    trigger: dict[str, Any] = {"availableNow": True} if settings["ends"] else {"processingTime": "0 seconds"}
    for store, url in settings["stores"].items():
        files = 1000 if settings["ends"] else 2
        arriving = spark.readStream.schema(ARRIVING).option("maxFilesPerTrigger", files).json(settings["arrivals"])
        checkpoint = f"{settings['folder']}/{store}"
        sums = arriving.selectExpr("k", "1L as rows", "n as total").writeStream.trigger(**trigger)
        if store == settings["by_function"]:
            sums = sums.foreachBatch(foreach_batch(url, "sums"))
        else:
            sums = sums.format("structable").option("url", url).option("table", "sums")
        yield sums.option("checkpointLocation", f"{checkpoint}-sums").start()
        profiles = send_update_to(
            arriving.selectExpr("k", "n as latest"),
            TableRef(url, "profiles"),
            default={"visits": 0, "made": "by default"},
            order_by="latest",
            name=f"profiles {store}",
            checkpoint=f"{checkpoint}-profiles",
            trigger=trigger,
        )
        assert isinstance(profiles, StreamingQuery)
        yield profiles
    followed = spark.readStream.format("structable").option("url", settings["source"]).option("table", "followed")
    copied = followed.option("readChangeFeed", "true").load().writeStream.format("structable")
    copied = copied.option("url", settings["copy"]).option("table", "copied").option("mode", "changes")
    checkpoint = f"{settings['folder']}/copied"
    yield copied.option("checkpointLocation", checkpoint).trigger(**trigger).start()


def main() -> None:
    settings = json.loads(sys.argv[1])
    tell_commits(settings["stop_after"])
    spark = (
        SparkSession.builder.master(settings["master"])
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.extraJavaOptions", settings["java"])
        .config("spark.sql.files.openCostInBytes", "1")  # else each small file is a task, here and when they are listed
        .config("spark.sql.sources.parallelPartitionDiscovery.threshold", "1000000")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    register(spark)
    queries = []
    for query in started(spark, settings):
        queries.append(query)
        if settings["ends"]:
            query.awaitTermination()
    for query in queries:
        query.awaitTermination()
    print("ended", flush=True)


if __name__ == "__main__":
    main()
