"""Parts of migrations that Spark's executors fill."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from structable.migrations import Migrator, State
from structable.spark_bridge import spark_map
from structable.spi import Storage, col
from tests.migrations.support.folders import Scripts, put_runs


def test_executors_fill_parts(spark: SparkSession, storage: Storage, url: str, tmp_path: Path) -> None:
    put_runs(storage, 300)
    scripts = Scripts(tmp_path / "program")
    scripts.add("n", up='op.add_field("runs", op.long("n"), derive=op.json_field(("n",), "long"), source="payload")')
    migrator = Migrator(storage, scripts.path, parallel=spark_map(spark, url=url))
    migrator.up()
    [status] = migrator.status()
    assert (status.state, status.seen, status.failed) == (State.DONE, 300, 30)
    assert storage.table("runs").count(where=col("n").is_not_null()) == 270
