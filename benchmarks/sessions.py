"""Spark for benchmarks. One JVM serves all benchmarks of a run, so each session has the settings of all of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

JDBC_DRIVER = Path("/usr/share/java/postgresql.jar")
"""The path in Debian's libpostgresql-jdbc-java."""


@contextmanager
def spark_session(folder: Path) -> Iterator[SparkSession]:
    """Yield a session with two cores."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # The workers import the floors' data source from here.
    root = str(Path(__file__).resolve().parent.parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("structable benchmarks")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.extraClassPath", str(JDBC_DRIVER))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    try:
        yield spark
    finally:
        spark.stop()


def consume(rows: DataFrame) -> DataFrame:
    """Use all columns of the benchmarks' rows; the result is one row with the number of `rows`."""
    return rows.agg(
        f.count("*").alias("rows"),
        f.max("host"),
        f.max("started"),
        f.max("status"),
        f.max("path"),
        f.sum(f.col("bytes") % 1000),
        f.sum("attempts"),
        f.sum("cost"),
        f.sum(f.col("done").cast("int")),
    )
