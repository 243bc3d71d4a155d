"""The front of a stage: the streams that Spark reads and joins, in one DataFrame that each micro-batch splits again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from structable.spark_bridge.base.table_ref import TableRef
from structable.spark_bridge.pipelines.graph import LoadedStream, TableFeed
from structable.spark_bridge.pipelines.planned import Stage, Step
from structable.spi import FEED_COLUMNS

_STATE = re.compile(r"^\W*(?:Join|Aggregate|Deduplicate|GlobalLimit|Sort|Flat|Transform)", re.MULTILINE)
"""Matches the nodes of a streaming plan that have state, and some that have none."""


@dataclass(frozen=True, slots=True)
class Front:
    """The streams of a front that the steps read. If there are several, each has a struct column for its rows.

    Parameters
    ----------
    frame : DataFrame
        The union of the streams.
    schemas : mapping of str to StructType
        The schema of each stream, by name.
    """

    frame: DataFrame
    schemas: Mapping[str, StructType]

    @property
    def stateful(self) -> bool:
        """Whether Spark keeps state for it, as for a stream-stream join or a source that deduplicates."""
        if not self.frame.isStreaming:
            return False
        return _STATE.search(self.frame._jdf.queryExecution().analyzed().toString()) is not None

    @classmethod
    def of(cls, stage: Stage, frames: Mapping[str, DataFrame]) -> Front:
        outputs = [frames[name] for name in stage.outputs]
        schemas = {name: frames[name].schema for name in stage.outputs}
        if len(outputs) > 1:
            structs = [frame.select(sf.struct("*").alias(f"_{place}")) for place, frame in enumerate(outputs)]
            united = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), structs)
        else:
            united = outputs[0]
        if len(stage.sources) > 1 and united.isStreaming:
            # Spark's checkpoint identifies sources by their places in the plan: put all first, in a fixed order.
            nothing = [sf.lit(None).cast(column.dataType).alias(column.name) for column in united.schema.fields]
            leaves = [frames[name].where(sf.lit(False)).select(*nothing) for name in stage.sources]
            united = reduce(DataFrame.union, [*leaves, united])
        return cls(united, schemas)

    def streams(self, rows: DataFrame) -> dict[str, DataFrame]:
        """Return the streams of a micro-batch."""
        if len(self.schemas) == 1:
            return dict.fromkeys(self.schemas, rows)
        return {
            name: rows.where(sf.col(f"_{place}").isNotNull()).select(f"_{place}.*")
            for place, name in enumerate(self.schemas)
        }


def loaded(step: Step, spark: SparkSession, *, streaming: bool, feeds: Mapping[str, str]) -> DataFrame:
    """Return the DataFrame of a source, streaming or batch as the run needs it.

    `feeds` holds, for each table between two stages, the position after which it is read.

    Raises
    ------
    ValueError
        If the source gives the other kind.
    """
    node = step.node
    if isinstance(node, LoadedStream):
        frame = node.load(spark)
        if not isinstance(frame, DataFrame):
            raise ValueError(f"load returned {frame!r}; it must return a DataFrame")
        if frame.isStreaming != streaming:
            found, wanted = ("batch", "streaming") if streaming else ("streaming", "batch")
            cure = "spark.readStream, or run_batch" if streaming else "spark.read, or start and run_available"
            raise ValueError(f"load returned a {found} DataFrame, and this run needs a {wanted} one; use {cure}")
        return frame
    assert isinstance(node, TableFeed)
    if not streaming:
        raise ValueError(f"the changes of table {node.ref.name!r} are a stream; use start or run_available")
    reader = spark.readStream.format("structable").options(**read_options(node.ref)).option("readChangeFeed", "true")
    if not node.between:
        return reader.load()
    return reader.option("startingVersion", feeds[node.ref.name]).load().drop(*FEED_COLUMNS)


def read_options(ref: TableRef) -> dict[str, str]:
    """Return the options with which the Spark format reads a table."""
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in ref.options}
    return {**texts, "url": ref.url, "table": ref.name}
