"""The plan's file next to the checkpoints, with which a restart is compared; accessed by Hadoop's file system API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from pyspark.sql import SparkSession

from structable.spark_bridge.pipelines.plan import Plan
from structable.spark_bridge.pipelines.restart import check_restart

_NAME = "structable-plan.json"


class PlanFile:
    """The plan of the checkpoints in a folder.

    Parameters
    ----------
    spark : SparkSession
        The session whose Hadoop configuration has the file systems.
    checkpoint : str
        The folder.
    """

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        self._spark = spark
        self._jvm = cast(Any, spark._jvm)
        self._settings = spark._jsc.hadoopConfiguration()
        self._folder = checkpoint
        self._path = self._jvm.org.apache.hadoop.fs.Path(checkpoint, _NAME)
        self._files = self._path.getFileSystem(self._settings)

    def check(self, plan: Plan) -> dict[str, str]:
        """Raise PlanChangedError, with every difference, if a plan cannot continue from the checkpoints.

        Return the position where the feed of each table between two stages begins; empty if there is no plan yet.
        """
        before = self._read()
        if before is None:
            return {}
        check_restart(before, plan)
        feeds: dict[str, str] = json.loads(before).get("feeds", {})
        return feeds

    def keep(self, plan: Plan, feeds: Mapping[str, str]) -> None:
        """Write a plan and the positions where its feeds begin, all or nothing."""
        text = json.dumps({**json.loads(plan.to_json()), "feeds": feeds}, indent=2, sort_keys=True)
        if text == self._read():
            return
        made = self._jvm.org.apache.hadoop.fs.Path(self._folder, f".{_NAME}.new")
        stream = self._files.create(made, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        gateway = self._spark.sparkContext._gateway
        assert gateway is not None
        rename = self._jvm.org.apache.hadoop.fs.Options.Rename
        overwrite = gateway.new_array(rename, 1)
        overwrite[0] = rename.OVERWRITE
        context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(self._path.toUri(), self._settings)
        context.rename(made, self._path, overwrite)

    def _read(self) -> str | None:
        if not self._files.exists(self._path):
            return None
        stream = self._files.open(self._path)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
        finally:
            stream.close()
