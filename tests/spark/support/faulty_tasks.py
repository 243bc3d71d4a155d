"""A Spark application whose tasks fail after they have staged their rows: one fails, one has a twin, one is killed.

Usage: faulty_tasks.py SETTINGS, JSON with the keys `master`, `java` for the flags of executors, `folder` for
checkpoints and marks, and `stores`, names and URLs. Every store gets the sums of a stream of four micro-batches or
more, of `ROWS` rows each.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from structable.spark_bridge import register
from structable.spark_bridge.base.micro_batches import MicroBatch
from structable.spark_bridge.coordinator.applications import coordinator_of
from structable.spark_bridge.source import bound_data_source
from structable.spark_bridge.stream.writer import BatchMessage, StructableStreamWriter

ROWS = 40


def executor() -> int:
    """Return the process that the daemon of Python workers belongs to."""
    return int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])


class FaultyWriter(StructableStreamWriter):
    """In micro-batch 0 an attempt fails, in 1 a twin stages at once, in 2 one kills its executor; all have staged.

    Spark starts no twin of a task on the same machine, so that the twin is a thread.
    """

    def __init__(self, plain: StructableStreamWriter, marks: str) -> None:
        self.__dict__.update(plain.__dict__)
        self.marks = marks

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchMessage:  # type: ignore[override]
        task = TaskContext.get()
        assert task is not None
        fault, killed = (MicroBatch.of_task().number, task.partitionId()), Path(self.marks, "killed")
        if fault == (1, 1):
            batches = list(iterator)
            with ThreadPoolExecutor() as pool:
                twins = [pool.submit(StructableStreamWriter.write, self, iter(batches)) for _ in range(2)]
                Path(self.marks, "twin").touch()
                return next(as_completed(twins)).result()
        message = super().write(iterator)
        if fault == (0, 0) and task.attemptNumber() == 0:
            raise RuntimeError("this attempt fails after staging")
        if fault == (2, 0) and not killed.exists():
            killed.touch()
            os.kill(executor(), signal.SIGKILL)
            time.sleep(60)
        return message


def main() -> None:
    settings: dict[str, Any] = json.loads(sys.argv[1])
    spark = (
        SparkSession.builder.master(settings["master"])
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.extraJavaOptions", settings["java"])
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    register(spark)
    plain = bound_data_source(coordinator_of(spark).client)

    class Faulty(plain):  # type: ignore[misc, valid-type]
        @classmethod
        def name(cls) -> str:
            return "faulty"

        def streamWriter(self, schema: StructType, overwrite: bool) -> FaultyWriter:
            marks = self.options.pop("marks")
            return FaultyWriter(super().streamWriter(schema, overwrite), marks)

    spark.dataSource.register(Faulty)
    for store, url in settings["stores"].items():
        marks = Path(settings["folder"], store)
        marks.mkdir(parents=True)
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
        rows = source.option("numPartitions", 2).load()
        sums = rows.selectExpr("concat('k', value % 7) k", "1L as rows", "value as total")
        written = sums.writeStream.format("faulty").option("url", url).option("table", "sums")
        query = written.option("marks", str(marks)).option("checkpointLocation", str(marks / "checkpoint")).start()
        while query.exception() is None and (query.lastProgress is None or query.lastProgress["batchId"] < 3):
            time.sleep(0.05)
        query.stop()
        print(f"{store} {query.exception()} {sorted(mark.name for mark in marks.iterdir())}", flush=True)
    print("ended", flush=True)


if __name__ == "__main__":
    main()
