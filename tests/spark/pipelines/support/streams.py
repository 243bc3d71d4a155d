"""Streams of files, and the checkpoint of a pipeline that reads them."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from structable.spark_bridge.pipelines import Pipeline
from tests.spark.support.arrivals import Arrivals, forget_commits


class Streams:
    """Streams of files, and the checkpoint of a pipeline that reads them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self._folder = folder
        self.checkpoint = folder / "checkpoint"

    def of(self, name: str, schema: str) -> Arrivals:
        return Arrivals(self.spark, self._folder / name, schema)

    def forget(self, stage: str, last: int) -> None:
        forget_commits([self.checkpoint / stage], last)

    def run(self, pipeline: Pipeline) -> None:
        pipeline.run_available(self.spark, str(self.checkpoint))
