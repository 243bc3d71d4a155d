"""Tasks of which Spark needs only the first rows end without a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from structable.spi import Field, TableSpecification, connect

pytestmark = pytest.mark.xdist_group("spark-applications")

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from structable.spark_bridge import TableRef, lookup_join, register

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
reader = spark.read.format("structable").option("url", sys.argv[1]).option("table", "big").option("splits", "1")
assert len(reader.load().limit(1).collect()) == 1
keys = spark.range(0, 20_000, 1, 1).withColumnRenamed("id", "k")
assert len(lookup_join(keys, TableRef(sys.argv[1], "big"), "k").limit(1).collect()) == 1
assert reader.load().count() == 20_000  # by processes that were started after the others had ended
spark.stop()
"""


def test_a_limit_leaves_no_traceback(tmp_path: Path) -> None:
    url = f"leveldb://{tmp_path}/store"
    with connect(url) as storage:
        storage.admin.create(TableSpecification("big", [Field.long("k"), Field.string("v")], ["k"]))
        for first in range(0, 20_000, 5_000):
            storage.table("big").insert_many({"k": k, "v": "x" * 500} for k in range(first, first + 5_000))
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, url], capture_output=True, text=True, env=environment, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
