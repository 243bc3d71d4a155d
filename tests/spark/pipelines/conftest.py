"""Streams of files for pipelines."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.pipelines.support.streams import Streams


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Streams:
    return Streams(spark, tmp_path)
