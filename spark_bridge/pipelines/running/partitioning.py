"""Rows brought into exactly the partitions that the plan says."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType, TimestampNTZType, TimestampType

from structable.spark_bridge.pipelines.partitioners import Partitioner
from structable.spark_bridge.sending.arrangement import named

__all__ = ["partitioned"]


def partitioned(frame: DataFrame, key: Sequence[str], count: int, rule: Partitioner | None) -> DataFrame:
    """Return the rows in `count` partitions: by the rule, or else as `partition_of` has it."""
    if rule is None:
        texts = [_text(frame, name) for name in key]
        number = sf.pmod(sf.crc32(sf.concat_ws("\0", *texts).cast(BinaryType())), sf.lit(count))
    else:
        number = sf.expr(rule.expression(key, count))
    return frame.repartitionById(count, number.cast("int"))


def _text(frame: DataFrame, name: str) -> Column:
    """Return the text of a column's values; `partitioners._text` is the same in Python."""
    kind, column = frame.schema[name].dataType, named(name)
    if isinstance(kind, TimestampType):
        column = sf.unix_micros(column)
    elif isinstance(kind, TimestampNTZType):
        column = sf.timestamp_diff("MICROSECOND", sf.lit("1970-01-01").cast(TimestampNTZType()), column)
    elif isinstance(kind, BinaryType):
        column = sf.lower(sf.hex(column))
    return sf.coalesce(column.cast("string"), sf.lit(""))
