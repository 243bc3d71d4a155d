"""The plan of a pipeline, and its making."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from structable.spi import PlanError

from .checks import check, partition_counts
from .drawing import dot, mermaid, svg
from .explain import explained, to_json
from .graph import Graph, Node, SideInput, StoreTable
from .partitioners import Partitioner
from .planned import PlannedPipeline, Problem
from .reach import Reach
from .repairs import repaired
from .stages import find_stages


@dataclass(frozen=True, slots=True)
class Plan(PlannedPipeline):
    """A planned pipeline, which can be shown as text and as pictures."""

    def explain(self) -> str:
        """Return the plan for people: streams, groups with members, stages with numbered steps, notes, problems."""
        return explained(self)

    def to_json(self) -> str:
        """Return the plan as JSON, version 1: the same text for the same pipeline, sorted by name except for steps."""
        return to_json(self)

    def to_mermaid(self) -> str:
        """Return a flowchart in Mermaid's language; virtual edges are dashed, nodes with problems are red."""
        return mermaid(self)

    def to_dot(self) -> str:
        """Return the same picture in Graphviz' language."""
        return dot(self)

    def to_svg(self, path: str | Path) -> None:
        """Write the same picture to a file, by Graphviz' program `dot`.

        Raises
        ------
        FileNotFoundError
            If there is no `dot`.
        """
        svg(self, Path(path))


@dataclass(frozen=True, slots=True)
class Settings:
    """The arguments of a pipeline."""

    name: str
    default_partitions: int | None
    partition_cap: int | None
    repartition: bool
    intermediate_store: str | None


def plan_nodes(
    settings: Settings, declared: Mapping[int, Node], partitioners: Mapping[str, Partitioner], *, strict: bool
) -> Plan:
    """Plan declared nodes; `strict`: problems are a PlanError."""
    graph = _with_side_inputs(declared)
    limits = settings.default_partitions, settings.partition_cap
    checked = check(Reach(graph), *limits, partitioners)
    notes: list[str] = []
    repair = repaired(checked) if settings.repartition else None
    if repair is not None:
        graph, notes = repair
        checked = check(Reach(graph), *limits, partitioners)
    problems = list(checked.problems)
    if not declared:
        problems.append(Problem((), (), "nothing is declared; declare a source and what becomes of it"))
    staged = find_stages(checked, settings.name, settings.intermediate_store)
    problems += staged.problems
    if problems and strict:
        raise PlanError(f"pipeline {settings.name!r}", problems)
    return Plan(
        name=settings.name,
        graph=graph,
        partitions=partition_counts(checked.counts, graph.names),
        groups=checked.groups,
        stages=staged.stages,
        notes=(*notes, *checked.notes, *staged.notes),
        problems=tuple(problems),
        partitioners=dict(partitioners),
    )


def _with_side_inputs(declared: Mapping[int, Node]) -> Graph:
    """Return the graph of declared nodes, with the write of each side input."""
    nodes = list(declared.values())
    for table in declared.values():
        for stream in table.side_inputs if isinstance(table, StoreTable) else ():
            nodes.append(SideInput(number=len(nodes), inputs=(stream,), table=table.number))
    return Graph.of(nodes)
