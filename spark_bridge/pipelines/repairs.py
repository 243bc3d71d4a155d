"""`on_mismatch="repartition"`: a `partition_by` behind each input that does not fit the joins that it reaches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .checks import Checked
from .graph import Graph, LoadedStream, Node, PartitionBy, Send, SideInput, StreamJoin, TableFeed, free_name
from .groups import Linked
from .partitioners import STRUCTABLE


@dataclass(frozen=True, slots=True)
class _Repair:
    key: tuple[str, ...]
    partitions: int | None


def repaired(checked: Checked) -> tuple[Graph, list[str]] | None:
    """Return the graph with `<input>.auto` behind each input that does not fit, and a note for each; None if all fit.

    `<input>.auto` has the largest known count of its group, and the columns of the first join that it reaches. Readers
    of the input that reach no join continue to read the input itself.
    """
    repairs = _repairs(checked)
    if not repairs:
        return None
    graph = checked.reach.graph
    names, taken = dict(graph.names), set(graph.names.values())
    notes: list[str] = []
    nodes: dict[int, Node] = {}
    instead: dict[int, int] = {}
    reaching = frozenset[int]().union(*(group.nodes for group in checked.linked))
    fresh = max(graph.nodes) + 1
    for number, node in graph.nodes.items():
        nodes[number] = node
        if number in reaching and not isinstance(node, PartitionBy):
            nodes[number] = replace(node, inputs=tuple(instead.get(stream, stream) for stream in node.inputs))
        repair = repairs.get(number)
        if repair is None:
            continue
        name = f"{names[number]}.auto"
        names[fresh] = free_name(name, taken) if name in taken else name
        nodes[fresh] = PartitionBy(
            number=fresh,
            name=names[fresh],
            inputs=(number,),
            key=repair.key,
            partitions=repair.partitions,
        )
        instead[number], fresh = fresh, fresh + 1
        count = "the default count of" if repair.partitions is None else repair.partitions
        notes.append(
            f"input {names[number]}: {names[instead[number]]} was inserted, {count} partitions by "
            f"({', '.join(repair.key)}), because on_mismatch is repartition"
        )
    return Graph(nodes, names), notes


def _repairs(checked: Checked) -> dict[int, _Repair]:
    nodes = checked.reach.graph.nodes
    first = _first_joins(checked)
    misfits = {origin for fault in checked.key_faults for origin in fault.origins}
    repairs: dict[int, _Repair] = {}
    for group in checked.linked:
        inputs = [node for number in group.members if isinstance(node := nodes[number], LoadedStream | TableFeed)]
        known = {count for number in group.members if (count := checked.counts.partitions[number]) is not None}
        largest = max(known, default=None)
        wrong = {node.number for node in inputs if node.partitions is None or node.partitions != largest}
        wrong |= {node.number for node in inputs if node.number in misfits}
        if wrong or group in checked.label_faults:
            label = _followed_label(checked, group, wrong)
            wrong |= {
                node.number
                for node in inputs
                if isinstance(node, LoadedStream) and node.partitioner not in (None, label)
            }
        for number in wrong:
            node = nodes[number]
            key = node.key if isinstance(node, LoadedStream) and number not in misfits else None
            repairs[number] = _Repair(key or first[number].columns, largest)
    return repairs


def _followed_label(checked: Checked, group: Linked, wrong: set[int]) -> str:
    """Return the rule that an `.auto` can follow: the one rule of the other members, if it can be computed."""
    members = (checked.reach.graph.nodes[number] for number in group.members if number not in wrong)
    declared = {node.partitioner for node in members if isinstance(node, LoadedStream | PartitionBy)} - {None}
    computable = declared & checked.computable
    return str(*computable) if len(declared) == len(computable) == 1 else STRUCTABLE


@dataclass(frozen=True, slots=True)
class _NearestJoin:
    distance: int
    name: str
    columns: tuple[str, ...]


def _first_joins(checked: Checked) -> dict[int, _NearestJoin]:
    """Return the nearest join that each stream reaches, with the stream's columns that it should be partitioned by."""
    reach, wanted = checked.reach, checked.wanted
    names = reach.graph.names

    def side(join: int, distance: int, *, right: bool) -> _NearestJoin:
        return _NearestJoin(distance, names[join], tuple(pair[right] for pair in wanted[join]))

    def carry(node: Node, readers: Sequence[tuple[Node, _NearestJoin | None]]) -> _NearestJoin | None:
        found: list[_NearestJoin] = []
        for reader, beyond in readers:
            if isinstance(reader, PartitionBy):
                continue
            if isinstance(reader, StreamJoin):
                found.append(side(reader.number, 1, right=reader.inputs[0] != node.number))
                continue
            if reader.number in wanted:
                found.append(side(reader.number, 1, right=False))
            elif isinstance(reader, Send | SideInput) and reader.table in reach.constrained:
                found += (side(join, 2, right=True) for join in reach.joins.get(reader.table, ()))
            if beyond is not None:
                found.append(replace(beyond, distance=beyond.distance + 1))
        return min(found, key=lambda join: (join.distance, join.name), default=None)

    return {number: join for number, join in reach.up(carry).items() if join is not None}
