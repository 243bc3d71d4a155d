"""Planning 1,000 nodes against 100: many small groups, long chains of joins, tables that all share, and circles."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from benchmarks.measuring import Contender, Measurement, Scale, compare
from structable.spark_bridge import TableRef
from structable.spark_bridge.pipelines import JoinWindow, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_GOAL = 15.0
_WINDOW = JoinWindow("at", "seen", "1 minute", "1 minute", "1 minute", "1 minute")


def measure(scale: Scale) -> Iterator[Measurement]:
    """Plan each shape, declared for each round, with 100 nodes and with 1,000; in seconds of the processor."""
    for name, declare in SHAPES.items():
        few, many = _planned(declare, 100), _planned(declare, 1_000)
        against = f"100 nodes: {name}"
        ours = Contender(f"plan 1,000 nodes: {name}", many, _GOAL)
        yield from compare("pipelines", against, few, [ours], scale.rounds)


def _planned(declare: Callable[[int], Pipeline], nodes: int) -> Callable[[], float]:
    def work() -> float:
        pipeline = declare(nodes)
        start = time.process_time()
        pipeline.plan()
        return time.process_time() - start

    return work


def _load(spark: SparkSession) -> DataFrame:
    raise AssertionError("planning loads nothing")


def _write(frame: DataFrame, batch: int) -> None:
    raise AssertionError("planning writes nothing")


def _table(name: str) -> TableRef:
    return TableRef("leveldb:///tmp/planning", name)


def _applications(nodes: int) -> Pipeline:
    """Applications of 10 nodes side by side: a table with a stream joined to it, and a join of streams behind it."""
    pipeline = Pipeline("many")
    for place in range(nodes // 10):
        views = pipeline.source(f"v{place}", _load, key="id", partitions=16, partitioner="structable", order="at")
        updates = pipeline.source(f"u{place}", _load, key="id", partitions=4, order="at")
        clicks = pipeline.source(f"c{place}", _load, key="id", partitions=16, partitioner="structable")
        table = pipeline.table(f"t{place}", _table(f"t{place}"))
        updates.partition_by("id").send_to(table)
        known = views.join_table(table, "id", name=f"k{place}")
        known.filter("x > 0").join(clicks, "id", window=_WINDOW).sink(f"o{place}", _write)
    return pipeline


def _chain(nodes: int) -> Pipeline:
    """One chain of joins of streams: all inputs are one group."""
    pipeline = Pipeline("chain")
    stream = pipeline.source("first", _load, key="id", partitions=8, partitioner="structable")
    for place in range((nodes - 2) // 3):
        other = pipeline.source(f"s{place}", _load, key="id", partitions=8, partitioner="structable").filter("x")
        stream = stream.join(other, "id", window=_WINDOW)
    stream.sink("out", _write)
    return pipeline


def _sends(nodes: int) -> Pipeline:
    """One stream that is sent to table after table, each joined: every table is fed by one input."""
    pipeline = Pipeline("sends")
    stream = pipeline.source("first", _load, key="id", partitions=8, partitioner="structable", order="at")
    for place in range((nodes - 2) // 3):
        table = pipeline.table(f"t{place}", _table(f"t{place}"))
        stream = stream.send_to(table).join_table(table, "id")
    stream.sink("out", _write)
    return pipeline


def _shared(nodes: int) -> Pipeline:
    """One table that half of the streams feed, and the other half joins."""
    pipeline = Pipeline("shared")
    table = pipeline.table("t", _table("t"))
    for place in range((nodes - 1) // 5):
        source = pipeline.source(f"a{place}", _load, key="id", partitions=8, partitioner="structable", order="at")
        source.send_to(table)
        other = pipeline.source(f"b{place}", _load, key="id", partitions=8, partitioner="structable")
        other.join_table(table, "id").sink(f"o{place}", _write)
    return pipeline


def _circles(nodes: int) -> Pipeline:
    """A ring of tables: each stream is joined with one table and sent to the next."""
    pipeline = Pipeline("circles")
    count = nodes // 4
    tables = [pipeline.table(f"t{place}", _table(f"t{place}")) for place in range(count)]
    for place in range(count):
        source = pipeline.source(f"s{place}", _load, key="id", partitions=8, partitioner="structable", order="at")
        source.join_table(tables[place], "id").send_to(tables[(place + 1) % count])
    return pipeline


SHAPES: dict[str, Callable[[int], Pipeline]] = {
    "applications side by side": _applications,
    "a chain of joins": _chain,
    "a chain of sends": _sends,
    "a table that all share": _shared,
    "a ring of tables": _circles,
}
"""Each declares a pipeline of about the given number of nodes."""
