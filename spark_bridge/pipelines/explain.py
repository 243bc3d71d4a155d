"""The plan as text: for people, and as JSON, with which a restart is compared."""

from __future__ import annotations

import json
from collections.abc import Iterator

from structable.spi import mask_url

from .graph import (
    ForeignKeyTable,
    LoadedStream,
    Node,
    PartitionBy,
    RemoteTable,
    StepKind,
    StoreTable,
    StreamJoin,
    Table,
    TableJoin,
    kind_of,
    paired,
)
from .planned import Member, PlannedPipeline, Stage, Step

VERSION = 1
"""The version of the JSON."""


def explained(plan: PlannedPipeline) -> str:
    """Return the plan for people."""
    return "\n".join((f"pipeline {plan.name}", *_sections(plan)))


def _sections(plan: PlannedPipeline) -> Iterator[str]:
    kinds = {plan.graph.names[number]: node for number, node in plan.graph.nodes.items()}
    yield "streams"
    for name, count in plan.partitions.items():
        known = "partitions unknown" if count is None else _partitions(count)
        yield f"  {name}: {known} ({'intermediate' if isinstance(kinds[name], PartitionBy) else 'input'})"
    yield "groups" if plan.groups else "groups: none"
    for group in plan.groups:
        yield f"  {_plural('join', group.joins)} {', '.join(group.joins)}"
        yield from (f"    {member}" for member in group.members)
    if plan.stages:
        yield "stages"
    for stage in plan.stages:
        yield f"  {stage.name}: {_stage(stage)}"
        yield from (f"    front: {_step(step)}" for step in stage.front)
        yield from (f"    {place}. {_step(step)}" for place, step in enumerate(stage.steps, 1))
    for title, texts in (("notes", plan.notes), ("problems", tuple(problem.text for problem in plan.problems))):
        if texts:
            yield title
            yield from (f"  {text}" for text in texts)


def _stage(stage: Stage) -> str:
    texts = [f"{_plural('source', stage.sources)} {', '.join(stage.sources)}"]
    if stage.partitions is not None:
        texts.append(f"state of {_partitions(stage.partitions)}")
    if stage.cached:
        texts.append("each micro-batch is cached")
    if stage.before:
        texts.append(f"after {', '.join(stage.before)}")
    return "; ".join(texts)


def _step(step: Step) -> str:
    text = f"{step.kind} {step.name}"
    if step.inputs:
        text += f" of {', '.join(step.inputs)}"
    match step.node:
        case TableJoin(on=on):
            text += f" with table {step.table} on {paired(on)}"
        case StreamJoin(on=on, how=how):
            text += f", {how}, on {paired(on)}"
        case PartitionBy(key=key):
            text += f" by ({', '.join(key)}), {_partitions(step.partitions)}, {step.partitioner}"
        case ForeignKeyTable():
            text += " after the writes of its tables"
        case _ if step.table is not None:
            text += f" {'from' if step.kind is StepKind.CHANGES else 'to'} table {step.table}"
    if step.order:
        text += f", in the order of {', '.join(step.order)}"
    return text + (", kept for its readers" if step.persist else "")


def _plural(word: str, items: tuple[str, ...]) -> str:
    return word if len(items) == 1 else f"{word}s"


def _partitions(count: int | None) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


def to_json(plan: PlannedPipeline) -> str:
    """Return the plan as JSON, sorted by name except for steps."""
    names = plan.graph.names
    streams, tables = {}, {}
    for number, node in plan.graph.nodes.items():
        if isinstance(node, Table):
            tables[names[number]] = _table(plan, node)
        else:
            streams[names[number]] = _stream(plan, node)
    whole = {
        "version": VERSION,
        "pipeline": plan.name,
        "streams": streams,
        "tables": tables,
        "groups": [
            {"joins": list(group.joins), "members": [_member(member) for member in group.members]}
            for group in plan.groups
        ],
        "stages": {stage.name: _stage_facts(stage) for stage in plan.stages},
        "notes": list(plan.notes),
        "problems": [
            {
                "joins": list(problem.joins),
                "members": [_member(member) for member in problem.members],
                "nodes": list(problem.nodes),
                "text": problem.text,
            }
            for problem in plan.problems
        ],
    }
    return json.dumps(whole, indent=2, sort_keys=True)


def _stream(plan: PlannedPipeline, node: Node) -> dict[str, object]:
    names = plan.graph.names
    facts: dict[str, object] = {"kind": str(kind_of(node)), "inputs": [names[stream] for stream in node.inputs]}
    if names[node.number] in plan.partitions:
        facts["partitions"] = plan.partitions[names[node.number]]
    match node:
        case LoadedStream():
            facts |= {"key": node.key, "partitioner": node.partitioner, "order": node.order}
        case PartitionBy():
            facts["key"] = node.key
        case StreamJoin() | TableJoin():
            facts |= {"on": node.on, "how": node.how}
    table = getattr(node, "table", None)
    if table is not None:
        facts["table"] = names[table]
    return facts


def _table(plan: PlannedPipeline, node: Table) -> dict[str, object]:
    names = plan.graph.names
    match node:
        case StoreTable():
            return {
                "kind": "table",
                "store": mask_url(node.ref.url),
                "table": node.ref.name,
                "access": node.access,
                "copartition": node.copartition,
                "side_inputs": sorted(names[stream] for stream in node.side_inputs),
            }
        case RemoteTable():
            return {"kind": "remote", "key": node.key}
        case ForeignKeyTable():
            return {
                "kind": str(StepKind.FOREIGN_KEY_JOIN),
                "store": mask_url(node.ref.url),
                "table": node.ref.name,
                "left": names[node.left],
                "right": names[node.right],
                "how": node.join.how,
            }


def _member(member: Member) -> dict[str, object]:
    return {"name": member.name, "partitions": member.partitions, "reasons": list(member.reasons)}


def _stage_facts(stage: Stage) -> dict[str, object]:
    return {
        "sources": list(stage.sources),
        "front": [_step_facts(step) for step in stage.front],
        "outputs": list(stage.outputs),
        "partitions": stage.partitions,
        "before": list(stage.before),
        "side_input": stage.side_input,
        "steps": [_step_facts(step) for step in stage.steps],
    }


def _step_facts(step: Step) -> dict[str, object]:
    facts: dict[str, object] = {"name": step.name, "kind": str(step.kind), "inputs": list(step.inputs)}
    for name, value in (("table", step.table), ("order", step.order), ("partitions", step.partitions)):
        if value is not None:
            facts[name] = value
    match step.node:
        case PartitionBy(key=key):
            facts |= {"key": key, "partitioner": step.partitioner}
        case StreamJoin(on=on, how=how, window=window):
            facts |= {
                "on": on,
                "how": how,
                "times": [window.left_time, window.right_time],
                "window": [window.before, window.after],
                "lateness": [window.left_lateness, window.right_lateness],
            }
    return facts
