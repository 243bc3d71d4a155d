"""Builds a stream from its inputs, in the same way for a streaming DataFrame, a micro-batch and a batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegralType

from structable.spark_bridge.pipelines.graph import Map, Merge, PartitionBy, RowFilter, StreamJoin
from structable.spark_bridge.pipelines.partitioners import Partitioner, partition_sql
from structable.spark_bridge.pipelines.planned import Step

_WATERMARK = "spark.watermarkDelayMs"
"""The key in the metadata of a column that has a watermark."""


def derived(step: Step, inputs: Sequence[DataFrame], rules: Mapping[str, Partitioner]) -> DataFrame:
    """Return the DataFrame of a stream without tables; lazy."""
    first, node = inputs[0], step.node
    match node:
        case Map():
            return node.function(first)
        case RowFilter():
            return first.where(node.condition if isinstance(node.condition, str) else node.condition(first))
        case Merge():
            return reduce(DataFrame.unionByName, inputs)
        case PartitionBy():
            assert step.partitions is not None
            return _partitioned(first, node.key, step.partitions, rules.get(step.partitioner or ""))
        case StreamJoin():
            return _joined(node, first, inputs[1])
    raise TypeError(f"step {step.name!r} makes no stream: {node!r}")


def require_columns(frame: DataFrame, names: Iterable[str], what: str) -> None:
    """Raise ValueError, whose message begins with `what`, unless a DataFrame has all these columns."""
    lacking = [name for name in names if name not in frame.columns]
    if lacking:
        raise ValueError(f"{what}: {', '.join(lacking)}")


def _partitioned(frame: DataFrame, key: Sequence[str], count: int, rule: Partitioner | None) -> DataFrame:
    """Return the rows in exactly `count` partitions: by the rule, or else by `partition_of`."""
    require_columns(frame, key, "the stream lacks columns of its new key")
    if rule is None:
        number = partition_sql([(name, frame.schema[name].dataType.simpleString()) for name in key], count)
    else:
        number = rule.expression(key, count)
    return frame.repartitionById(count, sf.expr(number).cast("int"))


def _joined(node: StreamJoin, left: DataFrame, right: DataFrame) -> DataFrame:
    window = node.window
    require_columns(left, [window.left_time, *(one for one, _ in node.on)], "the left stream lacks the columns")
    require_columns(right, [window.right_time, *(other for _, other in node.on)], "the right stream lacks the columns")
    for one, other in node.on:
        kinds = left.schema[one].dataType, right.schema[other].dataType
        if kinds[0] != kinds[1] and not all(isinstance(kind, IntegralType) for kind in kinds):
            shown = " and ".join(kind.simpleString() for kind in kinds)
            raise ValueError(f"on compares {one!r} and {other!r}, of the types {shown}; cast one of them in a map")
    left = _watermarked(left, window.left_time, window.left_lateness).alias("l")
    right = _watermarked(right, window.right_time, window.right_lateness).alias("r")
    began, ended = _of("l", window.left_time), _of("r", window.right_time)
    met = (ended >= began - _interval(window.before)) & (ended <= began + _interval(window.after))
    for one, other in node.on:
        met = met & (_of("l", one) == _of("r", other))
    dropped = {other for _, other in node.on} if node.same_names else set()
    columns = [
        sf.coalesce(_of("l", name), _of("r", name)).alias(name) if name in dropped else _of("l", name)
        for name in left.columns
    ]
    rest = [name for name in right.columns if name not in dropped]
    twice = [name for name in rest if name in left.columns]
    if twice:
        raise ValueError(
            f"both streams have the columns {', '.join(twice)}; rename or drop them on one side: "
            "map(lambda df: df.select(...))"
        )
    return left.join(right, met, node.how).select(*columns, *(_of("r", name) for name in rest))


def _watermarked(frame: DataFrame, column: str, lateness: int) -> DataFrame:
    if not frame.isStreaming or _WATERMARK in (frame.schema[column].metadata or {}):
        return frame
    return frame.withWatermark(column, f"{lateness} microseconds")


def _interval(microseconds: int) -> Column:
    return sf.expr(f"interval {microseconds} microseconds")


def _of(side: str, name: str) -> Column:
    return sf.col(f"{side}.`{name.replace('`', '``')}`")
