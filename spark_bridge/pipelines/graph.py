"""The graph of a pipeline as it was declared: nodes with numbers, in the order of their declaration.

A node names the streams that it reads, and its table, by their numbers. Streams, tables and sinks share one space of
names; a stream without a name gets one when the graph is planned (`Graph.of`).
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from structable.spark_bridge.base.table_ref import TableRef
from structable.spark_bridge.write.send_options import SendOptions
from structable.spi import Field, Value

from .windows import JoinWindow

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from structable.access import Cache, RateLimit, Retry, TableReadFunction, TableWriteFunction
    from structable.spark_bridge.joins.definition import ForeignKeyJoin

Pairs = tuple[tuple[str, str], ...]
"""The columns that a join compares: of its left stream, and of its right stream or table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A declared stream, table or sink.

    Parameters
    ----------
    number : int
        Its number in the order of declaration, from 0; -1 before it is declared.
    name : str or None
        The given name.
    inputs : tuple of int
        The streams that it reads.
    """

    number: int = -1
    name: str | None = None
    inputs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedStream(Node):
    """An outer stream: `load(spark)` returns its DataFrame."""

    load: Callable[[SparkSession], DataFrame]
    key: tuple[str, ...] | None = None
    partitions: int | None = None
    partitioner: str | None = None
    order: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFeed(Node):
    """An outer stream: the change feed of a table; `between` marks the feed of a stream that joins two stages."""

    ref: TableRef
    partitions: int | None = None
    between: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Map(Node):
    """`function` of the DataFrame; with `rekeys` the key of its rows changes, and is unknown."""

    function: Callable[[DataFrame], DataFrame]
    rekeys: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFilter(Node):
    """The rows for which a condition holds: SQL, or the Column that a function of the DataFrame returns."""

    condition: str | Callable[[DataFrame], Column]


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge(Node):
    """The rows of all inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionBy(Node):
    """An intermediate stream."""

    key: tuple[str, ...]
    partitions: int | None = None
    partitioner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamJoin(Node):
    """A join of two streams within a window; `same_names`: `on` was a list, and one column of each pair remains."""

    on: Pairs
    same_names: bool
    window: JoinWindow
    how: Literal["inner", "left", "right", "full"] | str = "inner"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableJoin(Node):
    """A join of a stream with a table, whose whole primary key `on` covers."""

    table: int
    on: Pairs
    columns: tuple[str, ...] | None = None
    how: Literal["inner", "left"] | str = "inner"
    prefix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Send(Node):
    """A write to a table; also a stream: its rows after the write."""

    table: int
    options: SendOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class SideInput(Node):
    """The write of a table's side input; made by the plan, one for each of them."""

    table: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Intermediate(Node):
    """The write of a stream to the append-only table whose feed another stage reads; made by the plan."""

    ref: TableRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink(Node):
    """`write(DataFrame, batch_id)`, or the `format`, `options` and `mode` of a DataFrameWriter; at least once."""

    write: Callable[[DataFrame, int], object] | Mapping[str, object]
    partitions: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTable(Node):
    """A table of a store."""

    ref: TableRef
    access: Literal["lookup", "broadcast"] | str = "lookup"
    cache: Cache | None = None
    copartition: bool = True
    side_inputs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteTable(Node):
    """A table behind functions, which get keys as tuples in the order of `key`."""

    key: tuple[str, ...]
    schema: tuple[Field, ...]
    read: TableReadFunction[tuple[Value, ...], Mapping[str, Value]] | None = None
    write: TableWriteFunction[tuple[Value, ...], Mapping[str, Value]] | None = None
    read_retry: Retry | None = None
    write_retry: Retry | None = None
    rate_limit: RateLimit | None = None
    cache: Cache | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKeyTable(Node):
    """The result of a foreign-key join of two tables, which has a step of its own."""

    left: int
    right: int
    join: ForeignKeyJoin

    @property
    def ref(self) -> TableRef:
        """The result."""
        return self.join.result


Table = StoreTable | RemoteTable | ForeignKeyTable


class StepKind(enum.StrEnum):
    """The work of a node when the pipeline runs.

    The first three occur only in fronts, the writes only among the steps of a micro-batch.
    """

    SOURCE = "source"
    CHANGES = "changes"
    STREAM_JOIN = "join"
    MAP = "map"
    FILTER = "filter"
    MERGE = "merge"
    PARTITION_BY = "partition_by"
    TABLE_JOIN = "join_table"
    SEND_TO = "send_to"
    SEND_UPDATE_TO = "send_update_to"
    SIDE_INPUT = "side_input"
    INTERMEDIATE = "intermediate"
    FOREIGN_KEY_JOIN = "foreign_key_join"
    SINK = "sink"


_KINDS: dict[type[Node], StepKind] = {
    LoadedStream: StepKind.SOURCE,
    TableFeed: StepKind.CHANGES,
    StreamJoin: StepKind.STREAM_JOIN,
    Map: StepKind.MAP,
    RowFilter: StepKind.FILTER,
    Merge: StepKind.MERGE,
    PartitionBy: StepKind.PARTITION_BY,
    TableJoin: StepKind.TABLE_JOIN,
    SideInput: StepKind.SIDE_INPUT,
    Intermediate: StepKind.INTERMEDIATE,
    ForeignKeyTable: StepKind.FOREIGN_KEY_JOIN,
    Sink: StepKind.SINK,
}


def kind_of(node: Node) -> StepKind:
    """Return the work of a stream, sink or foreign-key join; no other table has any."""
    if isinstance(node, Send):
        return StepKind.SEND_UPDATE_TO if node.options.update else StepKind.SEND_TO
    return _KINDS[type(node)]


@dataclass(frozen=True, slots=True)
class Graph:
    """All nodes by their numbers, in an order in which each comes after its inputs, and the name of each."""

    nodes: Mapping[int, Node]
    names: Mapping[int, str]

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> Graph:
        """Return the graph of nodes, each after its inputs; a node without a name gets one.

        The new name is the nearest given name upstream, the operation and a number; given names take precedence.
        """
        found = {node.number: node for node in nodes}
        taken = {node.name for node in found.values()}
        names: dict[int, str] = {}
        roots: dict[int, str] = {}
        last: Counter[str] = Counter()
        for number, node in found.items():
            if node.name is not None:
                names[number] = roots[number] = node.name
                continue
            roots[number] = names[node.table] if isinstance(node, SideInput) else roots[node.inputs[0]]
            stem = f"{roots[number]}.{kind_of(node)}"
            names[number] = free_name(stem, taken, last[stem] + 1)
            last[stem] = int(names[number].rpartition(".")[2])
        return cls(found, names)


def paired(pairs: Pairs) -> str:
    """Return the columns that a join compares, for people."""
    return ", ".join(left if left == right else f"{left} = {right}" for left, right in pairs)


def free_name(stem: str, taken: Collection[str | None], number: int = 1) -> str:
    """Return the first free name of a stem and a number, counting from the given number."""
    while f"{stem}.{number}" in taken:
        number += 1
    return f"{stem}.{number}"
