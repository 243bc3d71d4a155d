"""The front of a stage, its steps, and the results that a micro-batch must keep."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from .checks import Checked
from .graph import (
    ForeignKeyTable,
    Graph,
    Intermediate,
    LoadedStream,
    Node,
    PartitionBy,
    Send,
    SideInput,
    Sink,
    StreamJoin,
    TableFeed,
    TableJoin,
    kind_of,
)
from .planned import Stage, Step
from .reach import Reach
from .step_order import TableUse, order_steps


def build_stage(
    checked: Checked, states: Mapping[int, int | None], graph: Graph, numbers: Iterable[int], notes: list[str]
) -> Stage:
    """Return the stage of some nodes, without its name and `before`.

    Parameters
    ----------
    checked : Checked
        The results of the checks.
    states : mapping of int to int or None
        The count of each stream-stream join.
    graph : Graph
        The graph, with feeds between stages.
    numbers : iterable of int
        The nodes, in the order of the graph.
    notes : list of str
        Receives a note for each join that reads a table before it is written.
    """
    nodes = {number: graph.nodes[number] for number in numbers}
    used = {node.table for node in nodes.values() if isinstance(node, Send | TableJoin | SideInput)}
    whole = Reach(Graph({table: graph.nodes[table] for table in used} | nodes, graph.names))
    useful = whole.up(_is_useful)
    streams = {number: node for number, node in nodes.items() if useful[number]}
    reach = Reach(Graph({table: graph.nodes[table] for table in used} | streams, graph.names))
    inputs = {number: node.inputs for number, node in streams.items()}
    order, read_first = order_steps(inputs, _table_uses(reach, streams))
    for one in read_first:
        writers = ", ".join(sorted(graph.names[writer] for writer in one.writers))
        notes.append(
            f"join {graph.names[one.join]} reads {graph.names[one.table]} as of the micro-batch before: "
            f"{writers} {'depends' if len(one.writers) == 1 else 'depend'} on the join"
        )
    leading = reach.up(_leads_to_state)
    front = {number for number in streams if leading[number] or isinstance(streams[number], LoadedStream | TableFeed)}
    front -= {number for number in front if isinstance(streams[number], Send)}
    kept = _kept(reach, order, front)

    def front_input(stream: int) -> str:
        while isinstance(streams[stream], Send):
            stream = streams[stream].inputs[0]
        return graph.names[stream]

    def step(number: int) -> Step:
        node = streams[number]
        named = front_input if number in front else graph.names.__getitem__
        return Step(
            graph.names[number],
            kind_of(node),
            tuple(named(stream) for stream in node.inputs),
            node,
            table=_table_name(node, graph.names),
            order=checked.orders.get(number),
            partitions=states.get(
                number, checked.counts.partitions.get(number) if isinstance(node, PartitionBy) else None
            ),
            partitioner=checked.labels.get(number),
            persist=number in kept,
        )

    steps = tuple(step(number) for number in order if number not in front)
    ahead = tuple(step(number) for number in order if number in front)
    outputs = {one.name for one in ahead}
    read = [stream for one in steps for stream in one.inputs if stream in outputs]
    counts = {states[number] for number in front if number in states}
    return Stage(
        "",
        tuple(one.name for one in ahead if not one.inputs),
        steps,
        front=ahead,
        outputs=tuple(one.name for one in ahead if one.name in read),
        partitions=max((count for count in counts if count is not None), default=None),
        cached=len(read) > 1 or sum(one.writes and bool(one.inputs) for one in steps) > 1,
        side_input=any(isinstance(node, SideInput) for node in streams.values()),
    )


def _table_name(node: Node, names: Mapping[int, str]) -> str | None:
    match node:
        case Send() | SideInput() | TableJoin():
            return names[node.table]
        case ForeignKeyTable():
            return names[node.number]
        case Intermediate() | TableFeed():
            return node.ref.name
        case _:
            return None


def _is_useful(node: Node, readers: Sequence[tuple[Node, bool]]) -> bool:
    ends = isinstance(node, Send | SideInput | Sink | Intermediate | ForeignKeyTable)
    return ends or any(useful for _, useful in readers)


def _leads_to_state(node: Node, readers: Sequence[tuple[Node, bool]]) -> bool:
    return isinstance(node, StreamJoin) or any(leads for _, leads in readers)


def _table_uses(reach: Reach, steps: Collection[int]) -> list[TableUse]:
    uses = []
    for table in dict.fromkeys((*reach.writers, *reach.joins, *reach.keyed_joins, *reach.graph.nodes)):
        result = [table] if table in steps and isinstance(reach.graph.nodes[table], ForeignKeyTable) else []
        writers = [
            number for number in reach.writers.get(table, ()) if isinstance(reach.graph.nodes[number], Send)
        ] + result
        joins = sorted({*reach.joins.get(table, ()), *reach.keyed_joins.get(table, ())}.intersection(steps))
        if writers and joins:
            uses.append(TableUse(table, joins, sorted(writers)))
    return uses


def _kept(reach: Reach, order: Sequence[int], front: Collection[int]) -> set[int]:
    """Return the steps whose rows come from a table and are read more than once."""
    nodes = reach.graph.nodes

    def read(node: Node, readers: Sequence[tuple[Node, int]]) -> int:
        return sum(1 + (behind if isinstance(reader, Send) else 0) for reader, behind in readers)

    readings = reach.up(read)
    kept: set[int] = set()
    changing: set[int] = set()
    for number in order:
        node = nodes[number]
        if number in front or not (isinstance(node, TableJoin) or not changing.isdisjoint(node.inputs)):
            continue
        if readings[number] > 1 and not isinstance(node, Send | Sink | Intermediate | SideInput):
            kept.add(number)
        else:
            changing.add(number)
    return kept
