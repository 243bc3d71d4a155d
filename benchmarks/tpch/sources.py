"""Sessions of one application that find the tables of TPC-H's queries in different places."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.postgresql.database import Database, jdbc_options
from structable.spark_bridge import register
from tests.spark.tpch.tables import TABLES


def of_files(spark: SparkSession, files: Path) -> SparkSession:
    """Return a session that reads the generator's files."""
    session = _session(spark)
    for spec in TABLES:
        session.read.parquet(str(files / f"{spec.name}.parquet")).createOrReplaceTempView(spec.name)
    return session


def by_structable(spark: SparkSession, url: str) -> SparkSession:
    """Return a session that reads a store through the bridge."""
    session = _session(spark)
    register(session)
    for spec in TABLES:
        table = session.read.format("structable").option("url", url).option("table", spec.name).load()
        table.createOrReplaceTempView(spec.name)
    return session


def by_jdbc(spark: SparkSession, database: Database) -> SparkSession:
    """Return a session that reads structable's own tables by Spark's JDBC catalog.

    Unlike the format "jdbc", the catalog can push aggregates and limits down.
    """
    session, catalog = _session(spark), "spark.sql.catalog.jdbc"
    session.conf.set(catalog, "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog")
    options = {name: value for name, value in jdbc_options(database).items() if name != "dbtable"}
    pushed = ("Predicate", "Aggregate", "Limit", "Offset", "TableSample")
    options |= {f"pushDown{what}": "true" for what in pushed} | {"fetchsize": "10000"}
    for name, value in options.items():
        session.conf.set(f"{catalog}.{name}", value)
    session.sql(f"use jdbc.{database.ours.name}")
    return session


def _session(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    return session
