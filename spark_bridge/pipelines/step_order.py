"""The order of a stage's steps: data first, then writes before the joins on their tables, then declaration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import networkx

from .reach import bit_places


@dataclass(frozen=True, slots=True)
class TableUse:
    """The steps that join with a table, and the steps that write to it, each in the order of declaration."""

    table: int
    joins: Sequence[int]
    writers: Sequence[int]


@dataclass(frozen=True, slots=True)
class ReadFirst:
    """A join that depends on no write of `table` by `writers`, because these depend on the join."""

    join: int
    table: int
    writers: tuple[int, ...]


def order_steps(inputs: Mapping[int, Iterable[int]], tables: Sequence[TableUse]) -> tuple[list[int], list[ReadFirst]]:
    """Return the steps in order, and the joins that read a table before it is written.

    A write comes before the joins on its table. These orders are added join by join, and for each join writer by
    writer; one that would close a circle is left out.

    Parameters
    ----------
    inputs : mapping of int to iterable of int
        The steps, by their numbers of declaration, with the steps whose data each needs.
    tables : sequence of TableUse
        The tables that steps both write and join.
    """
    graph: networkx.DiGraph[int | tuple[str, int]] = networkx.DiGraph()
    graph.add_nodes_from(inputs)
    graph.add_edges_from((source, step) for step, sources in inputs.items() for source in sources)
    whole = graph.copy()
    for use in tables:
        hub = ("table", use.table)
        whole.add_edges_from((writer, hub) for writer in use.writers)
        whole.add_edges_from((hub, join) for join in use.joins)
    circles = [part for part in networkx.strongly_connected_components(whole) if len(part) > 1]
    part_of = {node: place for place, part in enumerate(circles) for node in part}
    closures = [_Closure(graph.subgraph(part)) for part in circles]

    left_out: list[ReadFirst] = []
    uses = sorted(((join, use) for use in tables for join in use.joins), key=lambda pair: (pair[0], pair[1].table))
    for use in tables:
        if ("table", use.table) not in part_of:
            hub = ("table", use.table)
            graph.add_edges_from((writer, hub) for writer in use.writers)
            graph.add_edges_from((hub, join) for join in use.joins)
    for join, use in uses:
        if ("table", use.table) not in part_of:
            continue
        refused = []
        for writer in use.writers:
            place = part_of.get(writer)
            if place is not None and place == part_of.get(join) and not closures[place].add(writer, join):
                refused.append(writer)
            else:
                graph.add_edge(writer, join)
        if refused:
            left_out.append(ReadFirst(join, use.table, tuple(refused)))
    # A hub is sorted by its table, so that it does not affect steps without a required order.
    ordered = networkx.lexicographical_topological_sort(
        graph, key=lambda node: node[1] if isinstance(node, tuple) else node
    )
    return [node for node in ordered if not isinstance(node, tuple)], left_out


class _Closure:
    """All paths of a part of the graph, a bit for each node that is reached; kept while edges are added."""

    def __init__(self, part: networkx.DiGraph[int | tuple[str, int]]) -> None:
        self._bits = {node: 1 << place for place, node in enumerate(part)}
        self._reached = dict.fromkeys(part, 0)
        self._reaching = dict.fromkeys(part, 0)
        self._nodes = list(part)
        for node in networkx.topological_sort(part):
            for before in part.predecessors(node):
                self._reaching[node] |= self._reaching[before] | self._bits[before]
        for node in reversed(list(networkx.topological_sort(part))):
            for after in part.successors(node):
                self._reached[node] |= self._reached[after] | self._bits[after]

    def add(self, start: int, end: int) -> bool:
        """Add an edge and return True, or return False if it would close a circle."""
        if start == end or self._reached[end] & self._bits[start]:
            return False
        if not self._reached[start] & self._bits[end]:
            below, above = self._reached[end] | self._bits[end], self._reaching[start] | self._bits[start]
            for node in self._listed(above):
                self._reached[node] |= below
            for node in self._listed(below):
                self._reaching[node] |= above
        return True

    def _listed(self, bits: int) -> Iterable[int | tuple[str, int]]:
        return (self._nodes[place] for place in bit_places(bits))
