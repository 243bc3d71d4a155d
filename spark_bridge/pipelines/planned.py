"""The results of planning: groups and problems, and the stages and steps that Spark runs, whose writes have names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

from structable.spi import WriteJob, WriteMode
from structable.spi.authors import requested_job

from .graph import Graph, Node, StepKind
from .partitioners import Partitioner


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of a stage: a DataFrame of a stream made from the DataFrames of `inputs`, a write, or both.

    Steps run in their order; a runner keeps the DataFrame of each stream by its name. A step that does not write is
    lazy in Spark. A send also makes a stream: its input, whose readers come after the write.

    Parameters
    ----------
    name : str
        Unique in the pipeline, and the name of the stream that the step makes. A write's jobs belong to the stream
        `pipeline/query id/name`, with Spark's batch numbers.
    kind : StepKind
        Its work.
    inputs : tuple of str
        The streams that it reads: names of earlier steps of the stage, or of its front. A join's left stream is first.
        Empty for a foreign-key join, which reads the feeds of its tables.
    node : Node
        Its declaration, with functions, columns and options. `kind` decides the class: Source, Changes, StreamJoin,
        Map, Filter, Merge, PartitionBy, TableJoin, Send (of both sends), SideInput, Intermediate, ForeignKeyTable or
        Sink.
    table : str or None
        The declared name of the table that it reads or writes; `Planned.table` has its node. For `intermediate` and
        `changes`, the table's name in its store.
    order : tuple of str or None
        For `send_to`, `send_update_to` and `side_input`: the columns that order the rows of a key. None with
        `unordered` means any order; None without it, the position in the micro-batch, which nothing has shuffled.
    partitions : int or None
        For `partition_by`, its count; for a stream-stream join, the count of its state's partitions.
    partitioner : str or None
        For `partition_by`, the label: `structable`, or a registered `Partitioner`'s (`Planned.partitioners`).
    persist : bool
        Whether the rows must be kept for the rest of the micro-batch: several writes depend on them, and they come from
        a table, whose later state a second reading would see.
    """

    name: str
    kind: StepKind
    inputs: tuple[str, ...]
    node: Node
    table: str | None = None
    order: tuple[str, ...] | None = None
    partitions: int | None = None
    partitioner: str | None = None
    persist: bool = False

    @property
    def writes(self) -> bool:
        """Whether it writes to a table or a sink."""
        return self.kind in _WRITES

    def job(self, pipeline: str, query_id: str) -> str:
        """Return the stream of the step's jobs."""
        return f"{pipeline}/{query_id}/{self.name}"


_WRITES = {
    StepKind.SEND_TO,
    StepKind.SEND_UPDATE_TO,
    StepKind.SIDE_INPUT,
    StepKind.INTERMEDIATE,
    StepKind.FOREIGN_KEY_JOIN,
    StepKind.SINK,
}


@dataclass(frozen=True, slots=True)
class MicroBatchIdentity:
    """The identity of a micro-batch or batch run, by which a repetition makes the same writes.

    Parameters
    ----------
    pipeline : str
        The pipeline.
    number : int
        The micro-batch's number; 0 for a batch run.
    query : str or None
        The query's id; None for a batch run.
    run : str
        The run of the query; for a batch run, its id.
    again : bool
        Whether the caller may submit it again: a batch run with an id of its own.
    """

    pipeline: str
    number: int
    query: str | None
    run: str
    again: bool = False

    def job(self, step: Step, table: str, mode: WriteMode, on_missing: Literal["fail", "skip"]) -> WriteJob:
        """Return the job to request for a step."""
        if self.query is None:
            return requested_job(table, mode, step.job(self.pipeline, self.run), on_missing=on_missing)
        stream = step.job(self.pipeline, self.query)
        return requested_job(table, mode, stream=stream, batch=self.number, on_missing=on_missing)


@dataclass(frozen=True, slots=True)
class Stage:
    """One streaming query; its checkpoint is the folder of its name.

    Parameters
    ----------
    name : str
        Unique in the pipeline, fit for the name of a folder.
    sources : tuple of str
        The streams that the query reads from outside, in the order of the front. A source that two stages read is
        loaded by each.
    steps : tuple of Step
        The steps of each micro-batch, in their order.
    front : tuple of Step
        The steps built as streaming DataFrames, in order: the sources, and everything before a stream-stream join.
    outputs : tuple of str
        The streams of the front that the steps read. They are unioned, each in a struct column of its own.
    partitions : int or None
        `spark.sql.shuffle.partitions` of the query's session, for the state of its stream-stream joins; None without.
    cached : bool
        Whether the front is read more than once, so that a micro-batch is persisted.
    before : tuple of str
        The stages that are run to their present end before this one: in `start` the side inputs whose tables this stage
        reads; in `run_available` also the stages that write the tables whose feeds it reads.
    side_input : bool
        Whether it writes a side input: at every start it is read to its present end before the other stages start.
    """

    name: str
    sources: tuple[str, ...]
    steps: tuple[Step, ...]
    front: tuple[Step, ...] = ()
    outputs: tuple[str, ...] = ()
    partitions: int | None = None
    cached: bool = False
    before: tuple[str, ...] = ()
    side_input: bool = False


class Member(str):
    """A stream of a group, an input or an intermediate: the text `name: count (reason; reason)`, and its facts.

    Parameters
    ----------
    name : str
        The stream.
    partitions : int or None
        Its count; None, in the text `unknown`, if it has none.
    reasons : tuple of str
        Its kind, and the tables that it feeds.
    """

    __slots__ = ("name", "partitions", "reasons")
    name: str
    partitions: int | None
    reasons: tuple[str, ...]

    def __new__(cls, name: str, partitions: int | None, reasons: tuple[str, ...]) -> Self:
        count = "unknown" if partitions is None else partitions
        member = super().__new__(cls, f"{name}: {count} ({'; '.join(reasons)})")
        member.name, member.partitions, member.reasons = name, partitions, reasons
        return member

    def __getnewargs__(self) -> tuple[str, int | None, tuple[str, ...]]:  # type: ignore[override]
        return self.name, self.partitions, self.reasons


@dataclass(frozen=True, slots=True)
class Group:
    """Joins that share streams, by their names, and all streams that reach them: one partition count for all."""

    joins: tuple[str, ...]
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """A reason why the pipeline cannot run, with its cure.

    Parameters
    ----------
    joins : tuple of str
        The joins that it concerns; empty for a fault of the graph.
    members : tuple of Member
        Every member of their groups.
    text : str
        The problem, with its joins, members and cure.
    nodes : tuple of str
        Other streams, tables and sinks that it concerns.
    """

    joins: tuple[str, ...]
    members: tuple[Member, ...]
    text: str
    nodes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class PlannedPipeline:
    """A planned pipeline.

    Parameters
    ----------
    name : str
        The pipeline.
    graph : Graph
        Its nodes, including those that the plan inserted, and their names.
    partitions : mapping of str to int or None
        The count of each input and intermediate stream; None for an input without one.
    groups : tuple of Group
        The groups.
    stages : tuple of Stage
        The stages, each after the stages in its `before`; empty if there are problems.
    notes : tuple of str
        Remarks that need no change of the pipeline.
    problems : tuple of Problem
        The reasons why it cannot run; empty unless it was planned with `strict=False`.
    partitioners : mapping of str to Partitioner
        The registered partitioners by their labels.
    """

    name: str
    graph: Graph
    partitions: Mapping[str, int | None]
    groups: tuple[Group, ...]
    stages: tuple[Stage, ...]
    notes: tuple[str, ...]
    problems: tuple[Problem, ...]
    partitioners: Mapping[str, Partitioner]

    def table(self, name: str) -> Node:
        """Return the node of a table: StoreTable, RemoteTable or ForeignKeyTable."""
        return next(node for number, node in self.graph.nodes.items() if self.graph.names[number] == name)
