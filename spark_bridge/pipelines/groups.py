"""Groups of streams that must have one partition count, because they meet in joins, directly or through tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import networkx

from .graph import LoadedStream, Map, Node, PartitionBy, Send, SideInput, StreamJoin, TableFeed, TableJoin, kind_of
from .planned import Group, Member
from .reach import Reach, bit_places


@dataclass(frozen=True, slots=True)
class Linked:
    """A connected set of groups: the numbers of its nodes, in the order of their names.

    `rekeyed` are its maps that may change the key, so that the key is unknown after them; `nodes` has all streams and
    writes between members and joins, including both.
    """

    joins: tuple[int, ...]
    members: tuple[int, ...]
    rekeyed: tuple[int, ...]
    nodes: frozenset[int]


def find_groups(reach: Reach) -> list[Linked]:
    """Return the connected sets of groups.

    A join's group are the inputs and intermediates that reach it without passing a `partition_by`; groups that share a
    stream are linked. If an edge leads to a node from which a join is reached, both ends reach that join, and so do the
    streams above them: linked groups are the connected parts of all such edges.
    """

    def reaches(node: Node, readers: Sequence[tuple[Node, bool]]) -> bool:
        if _grouped(node, reach) or (isinstance(node, Send | SideInput) and _feeds(node, reach)):
            return True
        return any(found for reader, found in readers if not isinstance(reader, PartitionBy))

    inside = reach.up(reaches)
    edges: networkx.Graph[int] = networkx.Graph()
    for number, node in reach.graph.nodes.items():
        if not inside[number]:
            continue
        edges.add_node(number)
        if not isinstance(node, PartitionBy):
            edges.add_edges_from((stream, number) for stream in node.inputs)
        if isinstance(node, Send | SideInput | TableJoin) and _feeds(node, reach):
            edges.add_edge(number, node.table)
    groups = [_linked(reach, part) for part in networkx.connected_components(edges)]
    return sorted(groups, key=lambda group: [reach.graph.names[number] for number in (*group.joins, *group.members)])


def _grouped(node: Node, reach: Reach) -> bool:
    return isinstance(node, StreamJoin) or (isinstance(node, TableJoin) and node.table in reach.constrained)


def _feeds(node: Send | SideInput | TableJoin, reach: Reach) -> bool:
    return node.table in reach.constrained and node.table in reach.joins


def _linked(reach: Reach, part: Iterable[int]) -> Linked:
    nodes = reach.graph.nodes
    ordered = sorted(part, key=lambda number: reach.graph.names[number])
    return Linked(
        tuple(number for number in ordered if _grouped(nodes[number], reach)),
        tuple(number for number in ordered if isinstance(nodes[number], LoadedStream | TableFeed | PartitionBy)),
        tuple(number for number in ordered if isinstance(node := nodes[number], Map) and node.rekeys),
        frozenset(ordered),
    )


def member_reasons(reach: Reach, groups: Iterable[Linked]) -> dict[int, tuple[str, ...]]:
    """Return the reasons for each member of a group: its kind, and the tables that it feeds."""
    feeders = [
        (number, node)
        for number, node in reach.graph.nodes.items()
        if isinstance(node, Send | SideInput) and _feeds(node, reach)
    ]
    bits = {number: 1 << place for place, (number, _) in enumerate(feeders)}

    def fed(node: Node, readers: Sequence[tuple[Node, int]]) -> int:
        found = bits.get(node.number, 0)
        for reader, more in readers:
            if not isinstance(reader, PartitionBy):
                found |= more
        return found

    found = reach.up(fed)
    texts = [_reason(reach, node) for _, node in feeders]
    reasons: dict[int, tuple[str, ...]] = {}
    for group in groups:
        for number in group.members:
            feeding = {texts[place] for place in bit_places(found[number])}
            reasons[number] = (_nature(reach.graph.nodes[number]), *sorted(feeding))
    return reasons


def _reason(reach: Reach, node: Send | SideInput) -> str:
    table = reach.graph.names[node.table]
    return f"side input of {table}" if isinstance(node, SideInput) else f"feeds table {table} ({kind_of(node)})"


def _nature(node: Node) -> str:
    if not isinstance(node, PartitionBy):
        return "input"
    return "intermediate" if node.partitions is None else "intermediate, given"


def shown_group(
    reach: Reach, group: Linked, partitions: Mapping[int, int | None], reasons: Mapping[int, tuple[str, ...]]
) -> Group:
    """Return a group as users see it."""
    names = reach.graph.names
    members = (Member(names[number], partitions[number], reasons[number]) for number in group.members)
    return Group(tuple(names[number] for number in group.joins), tuple(members))
