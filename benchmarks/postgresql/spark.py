"""Spark's reads and atomic writes, against Spark's own JDBC source, whose writes are not atomic."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as f

from benchmarks.measuring import Contender, Measurement, Round, Scale, compare
from benchmarks.rows import TABLE, make_rows
from benchmarks.sessions import JDBC_DRIVER, consume, spark_session
from structable.spark_bridge import register

from .database import AREA, Database, arrow_batches, jdbc_options

_PARTITIONS = 2


def measure(folder: Path, database: Database, scale: Scale) -> Iterator[Measurement]:
    """Measure Spark, if the JDBC driver is installed."""
    if not JDBC_DRIVER.exists():
        print(
            f"Spark is not measured: its floor needs {JDBC_DRIVER}, from Debian's libpostgresql-jdbc-java",
            file=sys.stderr,
        )
        return
    with spark_session(folder) as spark:
        register(spark)
        # Writes first: each recreates its table, which the snapshots of reads would delay.
        yield from _writes(spark, folder, database, scale)
        database.make(scale.many_rows)
        yield from _reads(spark, database, scale)


def _reads(spark: SparkSession, database: Database, scale: Scale) -> Iterator[Measurement]:
    count = scale.many_rows
    started = next(row["started"] for row in make_rows(1))
    assert isinstance(started, int)
    bounds = {"lowerBound": started, "upperBound": started + count, "numPartitions": _PARTITIONS}
    by_jdbc = spark.read.format("jdbc").options(**jdbc_options(database), **bounds).option("partitionColumn", "started")

    def ours() -> DataFrameReader:
        return spark.read.format("structable").option("url", database.ours.url).option("table", TABLE)

    def one_column(rows: DataFrame) -> DataFrame:
        return rows.agg(f.count("*").alias("rows"), f.sum("attempts"))

    def timed(frame: DataFrame) -> float:
        begin = perf_counter()
        (found,) = frame.collect()
        seconds = perf_counter() - begin
        assert found["rows"] == count
        return seconds / count

    rounds = max(scale.rounds - 2, 2)
    yield from compare(
        AREA,
        "Spark's JDBC source, 2 partitions",
        lambda: timed(consume(by_jdbc.load())),
        [Contender("Spark read, all columns", lambda: timed(consume(ours().load())), 1.0)],
        rounds,
    )
    yield from compare(
        AREA,
        "Spark's JDBC source, 2 partitions",
        lambda: timed(one_column(by_jdbc.load())),
        [
            Contender(
                "Spark read, one column", lambda: timed(one_column(ours().option("columns", "attempts").load())), 1.0
            )
        ],
        rounds,
    )


def _writes(spark: SparkSession, folder: Path, database: Database, scale: Scale) -> list[Measurement]:
    """Inserts new rows into an empty table, from Spark's cache."""
    count = scale.many_rows // 4
    file = folder / "rows.parquet"
    pq.write_table(pa.Table.from_batches(arrow_batches(make_rows(count))), file)
    rows = spark.read.parquet(str(file)).repartition(_PARTITIONS).cache()
    assert rows.count() == count

    def floor() -> float:
        with database.connection() as raw:
            database.empty_raw(raw)
        begin = perf_counter()
        rows.write.format("jdbc").options(**jdbc_options(database)).option("batchsize", 10_000).mode("append").save()
        return (perf_counter() - begin) / count

    def ours(mode: str) -> Round:
        def work() -> float:
            with database.storage() as storage:
                database.empty_ours(storage)
            begin = perf_counter()
            writer = rows.write.format("structable").option("url", database.ours.url).option("table", TABLE)
            writer.option("mode", mode).mode("append").save()
            return (perf_counter() - begin) / count

        return work

    return compare(
        AREA,
        "Spark's JDBC source, append, batches of 10,000, not atomic",
        floor,
        # JDBC's append inserts; an upsert of new rows does more.
        [Contender("Spark insert, atomic", ours("insert"), 0.9), Contender("Spark upsert, atomic", ours("upsert"))],
        max(scale.rounds - 2, 2),
    )
