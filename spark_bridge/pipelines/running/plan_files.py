"""The file beside the checkpoints that a restart is compared with, read and written by the Hadoop file system API."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession

from structable.spark_bridge.pipelines.planned import Planned
from structable.spark_bridge.pipelines.restart import differences, state_of
from structable.spi import PlanChangedError

__all__ = ["check_restart"]

_NAME = "structable-plan.json"
_CURE = "Take a new checkpoint, or restore what was; a count is pinned to the old one by partitions=."


def check_restart(spark: SparkSession, planned: Planned, checkpoint: str) -> None:
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
    now = state_of(planned)
    if files.exists(path):
        stream = files.open(path)
        try:
            was = json.loads(bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream)))
        finally:
            stream.close()
        found = differences(was, now)
        if found:
            raise PlanChangedError(f"pipeline {planned.name!r}", found, _CURE)
        if was == now:
            return
    made = jvm.org.apache.hadoop.fs.Path(checkpoint, f".{_NAME}.new")
    stream = files.create(made, True)
    try:
        stream.write(bytearray(json.dumps(now, indent=2, sort_keys=True).encode() + b"\n"))
    finally:
        stream.close()
    rename = jvm.org.apache.hadoop.fs.Options.Rename
    overwrite = spark.sparkContext._gateway.new_array(rename, 1)  # type: ignore[union-attr]
    overwrite[0] = rename.OVERWRITE
    jvm.org.apache.hadoop.fs.FileContext.getFileContext(path.toUri(), java).rename(made, path, overwrite)
