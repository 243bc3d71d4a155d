"""Pipelines from lines of text, so that one case can be declared in every order.

S1 source 16          an input of 16 partitions; without a number the count is not declared
I by S2 8             an intermediate of stream S2, with a count or without
M merge A B           the rows of both
J join A B            a stream-stream join
T table               a table; `T table A` has the side input A, `T broadcast` and `T apart` are not constrained
W send A T            send_to; `W update A T` is send_update_to
L lookup A T          a join of stream A with table T
O sink A 8            a sink, with a count or without
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import networkx

from structable.spark_bridge import TableRef
from structable.spark_bridge.pipelines import JoinWindow, Pipeline, Stream, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WINDOW = JoinWindow("at", "seen", "1 minute", "1 minute", "1 minute", "1 minute")
STORE = "leveldb:///tmp/pipelines"


def load(spark: SparkSession) -> DataFrame:
    raise AssertionError("planning loads nothing")


def write(frame: DataFrame, batch: int) -> None:
    raise AssertionError("planning writes nothing")


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().splitlines() if line.strip()]


def inputs_of(line: list[str]) -> list[str]:
    """Return the streams and tables that a line names."""
    return [word for word in line[2:] if not word.isdigit()]


def orders(case: list[list[str]]) -> Iterator[list[list[str]]]:
    """Yield the lines in every order in which each comes after those that it names; sinks come last."""
    sinks = [line for line in case if line[1] == "sink"]
    case = [line for line in case if line[1] != "sink"]
    by_name = {line[0]: line for line in case}
    graph: networkx.DiGraph[str] = networkx.DiGraph()
    graph.add_nodes_from(by_name)
    graph.add_edges_from((name, line[0]) for line in case for name in inputs_of(line))
    for order in networkx.all_topological_sorts(graph):
        yield [*(by_name[name] for name in order), *sinks]


def declare(case: Iterable[list[str]], **settings: int | str | None) -> Pipeline:
    pipeline = Pipeline("app", **settings)  # type: ignore[arg-type]
    streams: dict[str, Stream] = {}
    tables: dict[str, Table] = {}
    for name, verb, *words in case:
        count = int(words[-1]) if words and words[-1].isdigit() else None
        match verb:
            case "source":
                streams[name] = pipeline.source(
                    name, load, key="id", partitions=count, partitioner="structable", order="at"
                )
            case "by":
                streams[name] = streams[words[0]].partition_by("id", partitions=count, name=name)
            case "merge":
                streams[name] = streams[words[0]].merge(*(streams[word] for word in words[1:]), name=name)
            case "join":
                streams[name] = streams[words[0]].join(streams[words[1]], "id", window=WINDOW, name=name)
            case "table" | "broadcast" | "apart":
                tables[name] = pipeline.table(
                    name,
                    TableRef(STORE, name),
                    access="broadcast" if verb == "broadcast" else "lookup",
                    copartition=verb != "apart",
                    side_inputs=[streams[word] for word in words],
                )
            case "send":
                streams[name] = streams[words[0]].send_to(tables[words[1]], name=name)
            case "update":
                streams[name] = streams[words[0]].send_update_to(tables[words[1]], name=name)
            case "lookup":
                streams[name] = streams[words[0]].join_table(tables[words[1]], "id", name=name)
            case "sink":
                streams[words[0]].sink(name, write, partitions=count)
            case _:
                raise ValueError(verb)
    return pipeline
