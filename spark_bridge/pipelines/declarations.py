"""The declarations of a pipeline so far: its nodes, their names, and registered partitioners."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, runtime_checkable

from .arguments import checked_name
from .graph import Node, Table
from .partitioners import STRUCTABLE, Partitioner


@runtime_checkable
class _Handle(Protocol):
    """A stream or a table of a pipeline."""

    @property
    def declared(self) -> Declarations: ...

    @property
    def number(self) -> int: ...


class Declarations:
    """The nodes of a pipeline, in the order of their declaration.

    Parameters
    ----------
    pipeline : str
        The pipeline's name.
    """

    def __init__(self, pipeline: str) -> None:
        self.pipeline = pipeline
        self.nodes: dict[int, Node] = {}
        self.partitioners: dict[str, Partitioner] = {}
        self._names: set[str] = set()

    def add(self, node: Node) -> int:
        """Add a node, and return its number; raise ValueError for a name that is not allowed or already used."""
        if node.name is not None:
            checked_name("name", node.name)
            if node.name in self._names:
                raise ValueError(
                    f"the name {node.name!r} is used already; give another: streams, tables and sinks share one space"
                )
            self._names.add(node.name)
        number = len(self.nodes)
        self.nodes[number] = replace(node, number=number)
        return number

    def label(self, partitioner: object) -> str | None:
        """Return the label of a partitioner, and register it if it is a `Partitioner`."""
        if isinstance(partitioner, Partitioner):
            if self.partitioners.setdefault(partitioner.label, partitioner) != partitioner:
                raise ValueError(f"two partitioners have the label {partitioner.label!r}; give each a label of its own")
            return partitioner.label
        if partitioner is None or (isinstance(partitioner, str) and partitioner):
            return partitioner
        raise ValueError(f"partitioner is {partitioner!r}; it must be a label such as {STRUCTABLE!r}, or a Partitioner")

    def stream(self, given: object, argument: str) -> int:
        """Return the number of a stream of this pipeline."""
        return self._number(given, argument, "stream")

    def table(self, given: object, argument: str) -> int:
        """Return the number of a table of this pipeline."""
        return self._number(given, argument, "table")

    def _number(self, given: object, argument: str, wanted: str) -> int:
        is_table = isinstance(given, _Handle) and isinstance(given.declared.nodes[given.number], Table)
        if not isinstance(given, _Handle) or is_table != (wanted == "table"):
            raise TypeError(f"{argument} is {given!r}; it must be a {wanted} of the pipeline {self.pipeline!r}")
        if given.declared is not self:
            raise ValueError(
                f"{argument} is a {wanted} of another pipeline, {given.declared.pipeline!r}; declare it in "
                f"{self.pipeline!r}"
            )
        return given.number
