"""Groups nodes into stages: nodes connected by streams, tables and shared sources, as far as one query allows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import networkx

from .cutting import Cut
from .graph import ForeignKeyTable, Node, Send, StreamJoin
from .reach import Reach


@dataclass(frozen=True, slots=True)
class Clustering:
    """The stages of each node, and stream-stream joins that must be cut off, because one query cannot hold all.

    A node that belongs to one stage has that stage; any other node has the stages of all its readers.
    """

    stages: dict[int, frozenset[int]]
    count: int
    apart: set[int]


def cluster(cut: Cut, partitions: Mapping[int, int | None]) -> Clustering:
    """Divide the nodes into stages, numbered so that a stage comes after the stages whose feeds it reads."""
    reach = Reach(cut.graph)
    levels = dict(cut.levels)
    for number, node in cut.graph.nodes.items():
        if isinstance(node, ForeignKeyTable):
            feeding = (*reach.writers.get(node.left, ()), *reach.writers.get(node.right, ()), node.left, node.right)
            levels[number] = max((levels[one] for one in feeding if one in levels), default=0)
    parts = _parts(_stream_edges(cut.graph.nodes, levels), levels)
    joined = _join_tables(reach, cut, levels, parts)
    counts = _counts(cut.graph.nodes, partitions, joined)
    apart = {
        number
        for number, node in cut.graph.nodes.items()
        if isinstance(node, StreamJoin)
        and number in joined
        and len(found := counts[joined[number]]) > 1
        and partitions[number] != max(found)
    }
    if apart:
        return Clustering({}, 0, apart)
    final = _join_sources(reach, cut, joined, {part: max(found, default=0) for part, found in counts.items()})
    order = networkx.lexicographical_topological_sort(_arcs(cut, final), key=_first_of(final).__getitem__)
    places = {part: place for place, part in enumerate(order)}

    def stages(node: Node, readers: Sequence[tuple[Node, frozenset[int]]]) -> frozenset[int]:
        if node.number in final:
            return frozenset((places[final[node.number]],))
        return frozenset().union(*(found for _, found in readers))

    return Clustering(reach.up(stages), len(places), set())


def _stream_edges(nodes: Mapping[int, Node], levels: Mapping[int, int]) -> Iterable[tuple[int, int]]:
    for number in levels:
        for stream in nodes[number].inputs:
            if levels.get(stream) == levels[number]:
                yield stream, number


def _parts(edges: Iterable[tuple[int, int]], nodes: Iterable[int]) -> dict[int, int]:
    """Return the connected part of each node, named by its lowest node."""
    graph: networkx.Graph[int] = networkx.Graph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from(edges)
    return {node: low for part in networkx.connected_components(graph) for low in (min(part),) for node in part}


def _arcs(cut: Cut, parts: Mapping[int, int]) -> networkx.DiGraph[int]:
    """Return the graph of parts: from the writer of a feed's table to its readers."""
    graph: networkx.DiGraph[int] = networkx.DiGraph()
    graph.add_nodes_from(parts.values())
    for number, part in parts.items():
        for stream in cut.graph.nodes[number].inputs:
            if stream in cut.feeds:
                graph.add_edge(parts[cut.feeds[stream]], part)
    return graph


def _first_of(parts: Mapping[int, int]) -> dict[int, int]:
    first: dict[int, int] = {}
    for number, part in parts.items():
        first[part] = min(number, first.get(part, number))
    return first


def _join_tables(reach: Reach, cut: Cut, levels: Mapping[int, int], parts: Mapping[int, int]) -> dict[int, int]:
    """Join the parts that written tables connect, except parts with a feed from one to another."""
    hubs = list(_table_users(reach, levels))
    arcs = list(_arcs(cut, parts).edges)
    graph: networkx.DiGraph[object] = networkx.DiGraph()
    graph.add_nodes_from(parts.values())
    graph.add_edges_from(arcs)
    for table, users in hubs:
        for user in users:
            graph.add_edges_from((((table,), parts[user]), (parts[user], (table,))))
    circles = {node: place for place, part in enumerate(networkx.strongly_connected_components(graph)) for node in part}
    through_feeds = {circles[start] for start, end in arcs if circles[start] == circles[end]}
    edges: list[tuple[int, int]] = []
    for _, users in hubs:
        first: dict[object, int] = {}
        for user in users:
            kept = levels[user] if circles[parts[user]] in through_feeds else None
            edges.append((first.setdefault(kept, user), user))
    return _parts([*edges, *((part, node) for node, part in parts.items())], parts)


def _table_users(reach: Reach, levels: Collection[int]) -> Iterable[tuple[int, list[int]]]:
    nodes = reach.graph.nodes
    for table, node in nodes.items():
        writers = [number for number in reach.writers.get(table, ()) if isinstance(nodes[number], Send)]
        if isinstance(node, ForeignKeyTable):
            writers.append(table)
        users = [*writers, *reach.joins.get(table, ()), *reach.keyed_joins.get(table, ())]
        if writers and len(users) > 1:
            yield table, [user for user in users if user in levels]


def _counts(
    nodes: Mapping[int, Node], partitions: Mapping[int, int | None], parts: Mapping[int, int]
) -> dict[int, set[int]]:
    counts: dict[int, set[int]] = {part: set() for part in parts.values()}
    for number, part in parts.items():
        if isinstance(nodes[number], StreamJoin) and (count := partitions[number]) is not None:
            counts[part].add(count)
    return counts


_Class = tuple[int, int]
"""The largest number of feeds on a path to a part, and the number of its state's partitions, 0 without state."""


def _join_sources(reach: Reach, cut: Cut, parts: Mapping[int, int], counts: Mapping[int, int]) -> dict[int, int]:
    """Join the parts that read a common source, if no feed leads from one to another and they need one count."""
    depths: dict[int, int] = {}
    arcs = _arcs(cut, parts)
    for part in networkx.topological_sort(arcs):
        depths[part] = max((depths[before] + 1 for before in arcs.predecessors(part)), default=0)
    classes: dict[int, _Class] = {part: (depths[part], counts[part]) for part in arcs}
    if len(set(classes.values())) > 1:
        # Parts without state join one another first, then the parts of the largest count with a shared source.
        shared = _sharing(reach, parts, classes)
        chosen: dict[tuple[int, _Class], int] = {}
        for number, (depth, count) in shared:
            if number not in parts and count and (free := shared.get((number, (depth, 0)))) is not None:
                chosen[free] = max(count, chosen.get(free, 0))
        for part, (depth, count) in classes.items():
            classes[part] = (depth, count or chosen.get(shared[part, (depth, count)], 0))
    shared = _sharing(reach, parts, classes)
    lowest: dict[tuple[int, _Class], int] = {}
    for part in sorted(classes):
        lowest.setdefault(shared[part, classes[part]], part)
    return {number: lowest[shared[part, classes[part]]] for number, part in parts.items()}


def _sharing(
    reach: Reach, parts: Mapping[int, int], classes: Mapping[int, _Class]
) -> dict[tuple[int, _Class], tuple[int, _Class]]:
    """Return a label for the connected nodes of each part, and for each shared node one per class of its readers."""
    graph: networkx.Graph[tuple[int, _Class]] = networkx.Graph()
    graph.add_nodes_from((part, kind) for part, kind in classes.items())

    def carry(node: Node, readers: Sequence[tuple[Node, frozenset[_Class]]]) -> frozenset[_Class]:
        if (part := parts.get(node.number)) is not None:
            return frozenset((classes[part],))
        for reader, kinds in readers:
            graph.add_edges_from(
                ((node.number, kind), (parts.get(reader.number, reader.number), kind)) for kind in kinds
            )
        return frozenset().union(*(kinds for _, kinds in readers))

    reach.up(carry)
    connected = networkx.connected_components(graph)
    return {node: first for found in connected for first in (min(found),) for node in found}
