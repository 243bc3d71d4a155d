"""Rows brought into exactly the partitions that the plan says."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from structable.spark_bridge.pipelines.partitioners import Partitioner, partition_sql

__all__ = ["partitioned"]


def partitioned(frame: DataFrame, key: Sequence[str], count: int, rule: Partitioner | None) -> DataFrame:
    """Return the rows in `count` partitions: by the rule, or else as `partition_of` has it."""
    if rule is None:
        number = partition_sql([(name, frame.schema[name].dataType.simpleString()) for name in key], count)
    else:
        number = rule.expression(key, count)
    return frame.repartitionById(count, sf.expr(number).cast("int"))
