"""The demo's streams: flights arrive and update two tables, which two more queries copy by their feeds."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

from structable.spark_bridge import TableRef, send_to
from structable.spi import Storage

from .tables import STREAMED


def stream_flights(spark: SparkSession, url: str, copy: str, folder: Path) -> int:
    """Stream the flights of the table, three months at a time, and return the number of micro-batches.

    Every query ends with what is there: those of the copies read the feeds while the others write.
    """
    files = folder / "arriving"
    flights = _table(spark, url, "flights", "year,month,carrier,tailnum,dest,dep_time,dep_delay,time_hour")
    flights.repartition(12, "month").write.partitionBy("month").parquet(str(files))
    arriving = spark.readStream.schema(flights.schema).option("maxFilesPerTrigger", 3).parquet(str(files))

    copies = [_copy(spark, url, copy, spec.name, folder) for spec in STREAMED]
    arrivals = [
        _send(_traffic(arriving), url, "traffic", folder),
        _send(_aircraft(arriving), url, "aircraft", folder),
    ]
    for query in arrivals:
        query.awaitTermination()
    for query in copies:
        query.processAllAvailable()
        query.stop()
    return sum(len([one for one in query.recentProgress if one["numInputRows"]]) for query in (*arrivals, *copies))


def _traffic(arriving: DataFrame) -> DataFrame:
    return arriving.select(
        "carrier",
        "month",
        sql.lit(1).cast("long").alias("flights"),
        sql.col("dep_time").isNull().cast("long").alias("cancelled"),
        sql.col("dep_delay").alias("worst_delay"),
    )


def _aircraft(arriving: DataFrame) -> DataFrame:
    known = arriving.where("tailnum is not null and dep_time is not null")
    return known.select(
        "tailnum",
        sql.col("time_hour").alias("seen"),
        "dest",
        "carrier",
        sql.lit(1).cast("long").alias("departures"),
    )


def _send(rows: DataFrame, url: str, table: str, folder: Path) -> StreamingQuery:
    checkpoint = str(folder / "checkpoints" / table)
    query = send_to(
        rows, TableRef(url, table), unordered=True, name=table, checkpoint=checkpoint, trigger={"availableNow": True}
    )
    assert isinstance(query, StreamingQuery)
    return query


def _copy(spark: SparkSession, url: str, copy: str, table: str, folder: Path) -> StreamingQuery:
    feed = spark.readStream.format("structable").option("url", url).option("table", table)
    writer = feed.option("readChangeFeed", "true").load().writeStream.format("structable").option("mode", "changes")
    checkpoint = str(folder / "checkpoints" / f"copy-{table}")
    return writer.option("url", copy).option("table", table).option("checkpointLocation", checkpoint).start()


def _table(spark: SparkSession, url: str, name: str, columns: str) -> DataFrame:
    return spark.read.format("structable").option("url", url).option("table", name).option("columns", columns).load()


def differing(storage: Storage, copy: Storage) -> list[str]:
    """Return the names of the tables whose copies differ."""
    return [
        spec.name for spec in STREAMED if list(storage.table(spec.name).scan()) != list(copy.table(spec.name).scan())
    ]
