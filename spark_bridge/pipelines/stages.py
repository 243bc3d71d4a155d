"""The stages of a pipeline: each is one streaming query, whose steps handle each micro-batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import networkx

from .checks import Checked
from .clusters import cluster
from .cutting import cut
from .graph import (
    ForeignKeyTable,
    Graph,
    Node,
    RemoteTable,
    Send,
    SideInput,
    Sink,
    StepKind,
    StreamJoin,
    Table,
    TableFeed,
    TableJoin,
    free_name,
)
from .planned import Problem, Stage, Step
from .reach import Reach, bit_places
from .stage_steps import build_stage


@dataclass(frozen=True, slots=True)
class StagePlan:
    """The stages, each after the stages in its `before`, with the problems and notes found on the way."""

    stages: tuple[Stage, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]


def find_stages(checked: Checked, pipeline: str, store: str | None) -> StagePlan:
    """Divide a checked graph into stages; `store` is the store for streams between stages."""
    reach = checked.reach
    states = _state_partitions(checked)
    main, sides = _divided(reach)
    apart: set[int] = set()
    alone: set[int] = set()
    while True:
        parts = cut(Reach(main), pipeline, store, states, apart, alone)
        found = cluster(parts, states)
        if not found.apart:
            break
        alone |= found.apart & apart
        apart |= found.apart
    names, texts = reach.graph.names, list(parts.problems)
    cut_sides = [cut(Reach(side), pipeline, store, states) for side in sides]
    for side, one in zip(sides, cut_sides, strict=True):
        if one.feeds or one.problems or len({states[number] for number in side.nodes if number in states}) > 1:
            number = max(side.nodes)
            text = f"side input {names[number]} needs more than one query; send its stream to a table first"
            texts.append((number, text))
    problems = tuple(Problem((), (), text, (names[number],)) for number, text in texts)
    if problems or checked.problems:
        return StagePlan((), problems, ())
    contents: list[list[int]] = [[] for _ in range(found.count)]
    for number in parts.graph.nodes:
        for place in found.stages[number]:
            contents[place].append(number)
    notes: list[str] = []
    stages = [build_stage(checked, states, one.graph, _streams(one.graph), notes) for one in cut_sides]
    stages += (build_stage(checked, states, parts.graph, content, notes) for content in contents)
    named = _with_before(_named(stages), reach.graph)
    return StagePlan(named, problems, (*notes, *_loose_tables(named)))


def _state_partitions(checked: Checked) -> dict[int, int | None]:
    """Return the count of each stream-stream join."""
    nodes = checked.reach.graph.nodes
    return {
        join: checked.counts.partitions[group.members[0]]
        for group in checked.linked
        for join in group.joins
        if isinstance(nodes[join], StreamJoin)
    }


def _streams(graph: Graph) -> list[int]:
    return [number for number, node in graph.nodes.items() if not isinstance(node, Table)]


def _divided(reach: Reach) -> tuple[Graph, list[Graph]]:
    """Return the graph without side inputs, and a graph without sends for each side input."""
    nodes, names = reach.graph.nodes, reach.graph.names
    sides = [number for number, node in nodes.items() if isinstance(node, SideInput)]
    bits = {number: 1 << place for place, number in enumerate(sides)}

    def carry(node: Node, readers: Sequence[tuple[Node, tuple[bool, int]]]) -> tuple[bool, int]:
        main, side = isinstance(node, Send | Sink), bits.get(node.number, 0)
        for _, (found, others) in readers:
            main, side = main or found, side | others
        return main, side

    ends = reach.up(carry)
    tables = {number: node for number, node in nodes.items() if isinstance(node, Table)}
    main = {number: node for number, node in nodes.items() if number in tables or ends[number][0]}
    own: list[dict[int, Node]] = [{} for _ in sides]
    before_send: dict[int, int] = {}
    for number, node in nodes.items():
        inputs = tuple(before_send.get(stream, stream) for stream in node.inputs)
        if isinstance(node, Send):
            before_send[number] = inputs[0]
            continue
        for place in bit_places(ends[number][1]):
            own[place][number] = replace(node, inputs=inputs)
    return Graph(main, names), [Graph({**_joined(tables, side), **side}, names) for side in own]


def _joined(tables: Mapping[int, Node], side: Mapping[int, Node]) -> dict[int, Node]:
    used = dict.fromkeys(node.table for node in side.values() if isinstance(node, TableJoin | SideInput))
    return {table: replace(tables[table], inputs=()) for table in used}


def _named(stages: Sequence[Stage]) -> list[Stage]:
    """Return the stages with names: the side input's, or the first source's that no other stage has."""
    taken: set[str] = set()
    named: list[Stage] = []
    for stage in stages:
        wanted = [step.name for step in stage.steps if step.kind is StepKind.SIDE_INPUT] or [
            step.name for step in sorted(stage.front, key=lambda step: not _between(step)) if not step.inputs
        ]
        name = next((one for one in wanted if one not in taken), None) or free_name(wanted[0], taken)
        taken.add(name)
        named.append(replace(stage, name=name))
    return named


def _between(step: Step) -> bool:
    return isinstance(step.node, TableFeed) and step.node.between


def _with_before(stages: Sequence[Stage], graph: Graph) -> tuple[Stage, ...]:
    """Return the stages in order, each with the stages that must be read to their end before it."""
    between: dict[str | None, str] = {}
    filling: dict[str | None, set[str]] = {}
    writing: dict[tuple[str, str], set[str]] = {}
    tables = {graph.names[number]: node for number, node in graph.nodes.items() if isinstance(node, Table)}
    for stage in stages:
        for step in stage.steps:
            if step.kind is StepKind.INTERMEDIATE:
                between[step.table] = stage.name
                continue
            if step.kind is StepKind.SIDE_INPUT:
                filling.setdefault(step.table, set()).add(stage.name)
            if step.writes and not isinstance(table := tables.get(step.table or ""), RemoteTable | None):
                writing.setdefault((table.ref.url, table.ref.name), set()).add(stage.name)
    before: dict[str, set[str]] = {}
    after_writes: set[tuple[str, str]] = set()
    for stage in stages:
        found = {between[step.table] for step in stage.front if _between(step)}
        for step in stage.steps:
            for name in _read_tables(step, graph.names):
                found |= filling.get(name, set())
        before[stage.name] = found - {stage.name}
        for step in stage.front:
            if isinstance(step.node, TableFeed) and not step.node.between:
                ref = step.node.ref
                after_writes |= {(name, stage.name) for name in writing.get((ref.url, ref.name), ())}
    for first, then in _without_circles(before, after_writes):
        before[then].add(first)
    order: networkx.DiGraph[str] = networkx.DiGraph()
    order.add_nodes_from(before)
    order.add_edges_from((first, then) for then, found in before.items() for first in found)
    places = {stage.name: place for place, stage in enumerate(stages)}
    by_name = {stage.name: replace(stage, before=tuple(sorted(before[stage.name]))) for stage in stages}
    return tuple(by_name[name] for name in networkx.lexicographical_topological_sort(order, key=places.__getitem__))


def _read_tables(step: Step, names: Mapping[int, str]) -> tuple[str | None, ...]:
    if isinstance(step.node, ForeignKeyTable):
        return names[step.node.left], names[step.node.right]
    return (step.table,) if step.kind is StepKind.TABLE_JOIN else ()


def _without_circles(before: Mapping[str, set[str]], more: set[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the further orders of stages, except orders on a circle: feeds of tables may lead back."""
    graph: networkx.DiGraph[str] = networkx.DiGraph()
    graph.add_edges_from((first, then) for then, found in before.items() for first in found)
    graph.add_edges_from(more)
    part_of = {name: place for place, part in enumerate(networkx.strongly_connected_components(graph)) for name in part}
    yield from (edge for edge in sorted(more) if part_of[edge[0]] != part_of[edge[1]])


def _loose_tables(stages: Iterable[Stage]) -> Iterator[str]:
    """Yield a note for each join with a table that another stage writes."""
    writing: dict[str | None, list[Stage]] = {}
    for stage in stages:
        for step in stage.steps:
            if step.kind in (StepKind.SEND_TO, StepKind.SEND_UPDATE_TO):
                writing.setdefault(step.table, []).append(stage)
    for stage in stages:
        for step in stage.steps:
            others = dict.fromkeys(other.name for other in writing.get(step.table, ()) if other is not stage)
            if step.kind is StepKind.TABLE_JOIN and others:
                yield f"join {step.name} reads {step.table} as far as other stages have written it: {', '.join(others)}"
