"""The file beside the checkpoints that a restart is compared with, read and written by the Hadoop file system API."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from structable.spark_bridge.pipelines.plan import Plan
from structable.spark_bridge.pipelines.restart import check_restart

__all__ = ["record_plan"]

_NAME = "structable-plan.json"


def record_plan(spark: SparkSession, plan: Plan, checkpoint: str) -> None:
    """Compare a plan with that of the checkpoint, which it then replaces.

    Raises
    ------
    PlanChangedError
        With every difference that the state of the checkpoint does not allow.
    """
    jvm: Any = spark._jvm
    java = spark._jsc.hadoopConfiguration()
    path = jvm.org.apache.hadoop.fs.Path(checkpoint, _NAME)
    files = path.getFileSystem(java)
    now = plan.to_json()
    if files.exists(path):
        stream = files.open(path)
        try:
            before = bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
        finally:
            stream.close()
        check_restart(before, plan)
        if before == now:
            return
    made = jvm.org.apache.hadoop.fs.Path(checkpoint, f".{_NAME}.new")
    stream = files.create(made, True)
    try:
        stream.write(bytearray(now.encode()))
    finally:
        stream.close()
    rename = jvm.org.apache.hadoop.fs.Options.Rename
    overwrite = spark.sparkContext._gateway.new_array(rename, 1)  # type: ignore[union-attr]
    overwrite[0] = rename.OVERWRITE
    jvm.org.apache.hadoop.fs.FileContext.getFileContext(path.toUri(), java).rename(made, path, overwrite)
