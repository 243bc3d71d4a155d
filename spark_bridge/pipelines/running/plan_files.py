"""The file beside the checkpoints that a restart is compared with, read and written by the Hadoop file system API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from pyspark.sql import SparkSession

from structable.spark_bridge.pipelines.plan import Plan
from structable.spark_bridge.pipelines.restart import check_restart

__all__ = ["PlanFile"]

_NAME = "structable-plan.json"


class PlanFile:
    """The plan that the checkpoints in a folder were made with.

    Parameters
    ----------
    spark : SparkSession
        Whose Hadoop configuration has the file systems.
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
        """Raise PlanChangedError, with every difference, if a plan cannot go on from the checkpoints.

        Returns where the feed of each table between two stages begins; nothing if there is no plan yet.
        """
        before = self._read()
        if before is None:
            return {}
        check_restart(before, plan)
        feeds: dict[str, str] = json.loads(before).get("feeds", {})
        return feeds

    def keep(self, plan: Plan, feeds: Mapping[str, str]) -> None:
        """Write a plan and where its feeds begin, all of it or none."""
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
