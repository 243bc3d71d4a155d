"""The picture of a pipeline: in the languages of Mermaid and Graphviz, and as SVG by Graphviz' program `dot`."""

from __future__ import annotations

import errno
import html
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .graph import (
    ForeignKeyTable,
    LoadedStream,
    Node,
    PartitionBy,
    RemoteTable,
    Send,
    SideInput,
    Sink,
    StoreTable,
    TableFeed,
    TableJoin,
    kind_of,
)
from .planned import PlannedPipeline

_RED = "#c62828"
_MERMAID_SHAPES = {
    "step": '["{}"]',
    "input": '(["{}"])',
    "table": '[("{}")]',
    "sink": '>"{}"]',
    "intermediate": '{{{{"{}"}}}}',
}
_DOT_SHAPES = {"step": "box", "input": "oval", "table": "cylinder", "sink": "note", "intermediate": "hexagon"}


@dataclass(frozen=True, slots=True)
class _Box:
    id: str
    kind: str
    lines: tuple[str, ...]
    red: bool


@dataclass(frozen=True, slots=True)
class _Arrow:
    start: str
    end: str
    virtual: bool
    text: str = ""


def mermaid(plan: PlannedPipeline) -> str:
    """Return a flowchart in Mermaid's language."""
    boxes, arrows = _picture(plan)
    lines = ["flowchart LR"]
    for box in boxes:
        text = "<br>".join(html.escape(line) for line in box.lines)
        lines.append(f"    {box.id}{_MERMAID_SHAPES[box.kind].format(text)}")
    for arrow in arrows:
        text = f"|{arrow.text}|" if arrow.text else ""
        lines.append(f"    {arrow.start} {'-.->' if arrow.virtual else '-->'}{text} {arrow.end}")
    red = [box.id for box in boxes if box.red]
    if red:
        lines += (f"    classDef problem stroke:{_RED},color:{_RED}", f"    class {','.join(red)} problem")
    return "\n".join(lines)


def dot(plan: PlannedPipeline) -> str:
    """Return a digraph in Graphviz' language."""
    boxes, arrows = _picture(plan)
    fonts = (f'    {part} [fontname="sans-serif" fontsize={size}]' for part, size in (("node", 11), ("edge", 9)))
    lines = ["digraph pipeline {", "    rankdir=LR", *fonts]
    for box in boxes:
        text = "\\n".join(line.replace('"', '\\"') for line in box.lines)
        colour = f' color="{_RED}" fontcolor="{_RED}"' if box.red else ""
        lines.append(f'    {box.id} [label="{text}" shape={_DOT_SHAPES[box.kind]}{colour}]')
    for arrow in arrows:
        marks = [*(["style=dashed"] if arrow.virtual else []), *([f'label="{arrow.text}"'] if arrow.text else [])]
        lines.append(" ".join(("   ", arrow.start, "->", arrow.end, *([f"[{' '.join(marks)}]"] if marks else []))))
    return "\n".join((*lines, "}"))


def svg(plan: PlannedPipeline, path: Path) -> None:
    """Write the picture as SVG; FileNotFoundError without Graphviz."""
    try:
        run = subprocess.run(["dot", "-Tsvg"], input=dot(plan).encode(), capture_output=True, check=True)
    except FileNotFoundError:
        missing = "Graphviz' program dot is not in PATH; install graphviz, or take the picture as Mermaid"
        raise FileNotFoundError(errno.ENOENT, missing, "dot") from None
    path.write_bytes(run.stdout)


def _picture(plan: PlannedPipeline) -> tuple[list[_Box], list[_Arrow]]:
    nodes, names = plan.graph.nodes, plan.graph.names
    red = {name for problem in plan.problems for name in (*problem.joins, *problem.nodes)}
    red |= {member.name for problem in plan.problems for member in problem.members}
    sides = [node for node in nodes.values() if isinstance(node, SideInput)]
    red |= {names[side.table] for side in sides if names[side.number] in red}
    shown = sorted((number for number, node in nodes.items() if not isinstance(node, SideInput)), key=names.__getitem__)
    ids = {number: f"n{place}" for place, number in enumerate(shown)}
    grouped = {name for group in plan.groups for name in group.joins}
    boxes = [
        _Box(ids[number], _kind(nodes[number]), tuple(_lines(plan, nodes[number])), names[number] in red)
        for number in shown
    ]
    arrows = [
        *(arrow for number in shown for arrow in _arrows(plan, nodes[number], ids, grouped)),
        *sorted(
            (_Arrow(ids[side.inputs[0]], ids[side.table], virtual=True, text="side input") for side in sides),
            key=lambda arrow: (arrow.start, arrow.end),
        ),
    ]
    return boxes, arrows


def _kind(node: Node) -> str:
    match node:
        case LoadedStream() | TableFeed():
            return "input"
        case StoreTable() | RemoteTable() | ForeignKeyTable():
            return "table"
        case PartitionBy():
            return "intermediate"
        case Sink():
            return "sink"
        case _:
            return "step"


def _lines(plan: PlannedPipeline, node: Node) -> Iterator[str]:
    name = plan.graph.names[node.number]
    yield name
    if name in plan.partitions:
        count = plan.partitions[name]
        yield f"{'unknown' if count is None else count} partition{'' if count == 1 else 's'}"
    elif isinstance(node, ForeignKeyTable) or _kind(node) == "step":
        yield str(kind_of(node))


def _arrows(plan: PlannedPipeline, node: Node, ids: dict[int, str], grouped: set[str]) -> Iterator[_Arrow]:
    here = ids[node.number]
    for stream in node.inputs:
        yield _Arrow(ids[stream], here, virtual=False)
    match node:
        case ForeignKeyTable():
            for table in dict.fromkeys((node.left, node.right)):
                yield _Arrow(ids[table], here, virtual=False)
        case Send():
            yield _Arrow(here, ids[node.table], virtual=False)
        case TableJoin():
            yield _Arrow(ids[node.table], here, virtual=plan.graph.names[node.number] in grouped)
