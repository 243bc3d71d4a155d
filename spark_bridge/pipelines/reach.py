"""The one traversal of a pipeline's graph: every analysis is a function that it carries along the streams.

Tables connect streams that the declaration leaves apart. Each write to a table, and each of its side inputs, has a
virtual edge to every join with the table, if the table is *constrained*: fed by the pipeline, with `copartition=True`,
and not broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from .graph import ForeignKeyTable, Graph, Node, Send, SideInput, StoreTable, TableJoin

Value = TypeVar("Value")
Carried = Callable[[Node, Sequence[tuple[Node, Value]]], Value]


class Reach:
    """The edges of a graph, found once.

    Parameters
    ----------
    graph : Graph
        The graph; each node comes after its inputs.

    Attributes
    ----------
    readers : dict of int to list of int
        The nodes that read each stream; a node that names it twice is listed twice.
    writers, joins : dict of int to list of int
        The sends and side inputs of each table, and its joins with streams.
    keyed_joins : dict of int to list of int
        The foreign-key joins that read each table.
    constrained : set of int
        The tables with virtual edges.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.readers: dict[int, list[int]] = {number: [] for number in graph.nodes}
        self.writers: dict[int, list[int]] = {}
        self.joins: dict[int, list[int]] = {}
        self.keyed_joins: dict[int, list[int]] = {}
        for number, node in graph.nodes.items():
            for stream in node.inputs:
                self.readers[stream].append(number)
            if isinstance(node, Send | SideInput):
                self.writers.setdefault(node.table, []).append(number)
            elif isinstance(node, TableJoin):
                self.joins.setdefault(node.table, []).append(number)
            elif isinstance(node, ForeignKeyTable):
                for table in dict.fromkeys((node.left, node.right)):
                    self.keyed_joins.setdefault(table, []).append(number)
        self.constrained = {table for table in self.writers if _constrained(graph.nodes[table])}

    def down(self, carry: Carried[Value]) -> dict[int, Value]:
        """Return a value for each node, made from the node and the values of its inputs."""
        nodes = self.graph.nodes
        values: dict[int, Value] = {}
        for number, node in nodes.items():
            values[number] = carry(node, [(nodes[stream], values[stream]) for stream in node.inputs])
        return values

    def up(self, carry: Carried[Value]) -> dict[int, Value]:
        """Return a value for each node, made from the node and the values of its readers."""
        nodes = self.graph.nodes
        values: dict[int, Value] = {}
        for number, node in reversed(list(nodes.items())):
            values[number] = carry(node, [(nodes[reader], values[reader]) for reader in self.readers[number]])
        return values


def bit_places(bits: int) -> Iterator[int]:
    """Yield the positions of the set bits: analyses carry sets along streams as numbers."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _constrained(table: Node) -> bool:
    return isinstance(table, StoreTable) and table.copartition and table.access != "broadcast"
