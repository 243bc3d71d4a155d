"""The run of a stage: its front is built and its steps are checked before anything starts; then come micro-batches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from structable.spark_bridge.base.errors import carried_error
from structable.spark_bridge.base.micro_batches import MicroBatch
from structable.spark_bridge.base.table_ref import TableRef
from structable.spark_bridge.pipelines.graph import (
    Intermediate,
    LoadedStream,
    Map,
    Merge,
    PartitionBy,
    Send,
    SideInput,
    Sink,
    StepKind,
    TableFeed,
)
from structable.spark_bridge.pipelines.planned import MicroBatchIdentity, PlannedPipeline, Problem, Stage, Step
from structable.spi import PlanError, RecordNotFoundError
from structable.spi.authors import duration_histogram, recording_meter

from .fronts import Front, loaded
from .lookups import RunTables
from .streams import derived, require_columns
from .writes import Write, write_of

_LOADS = (StepKind.SOURCE, StepKind.CHANGES)


def prepared(
    planned: PlannedPipeline, spark: SparkSession, *, streaming: bool, feeds: dict[str, str]
) -> list[StageRun]:
    """Build all stages of a pipeline and check them against their tables; nothing is read or written.

    `feeds` holds the position after which each table between two stages is read; missing ones are added.

    Raises
    ------
    PlanError
        With every problem.
    """
    check = _Check(planned, spark, streaming, feeds)
    stages = [check.stage(stage) for stage in planned.stages]
    if check.problems:
        check.tables.open.close()
        raise PlanError(f"pipeline {planned.name!r}", check.problems) from check.cause
    return [stage for stage in stages if stage is not None]


@dataclass(slots=True)
class _Check:
    planned: PlannedPipeline
    spark: SparkSession
    streaming: bool
    feeds: dict[str, str]
    tables: RunTables = field(init=False)
    problems: list[Problem] = field(default_factory=list)
    cause: Exception | None = None
    between: dict[TableRef, StructType] = field(default_factory=dict)
    """The schemas of streams between stages."""

    def __post_init__(self) -> None:
        self.tables = RunTables(self.planned, self.spark, self.feeds)

    def stage(self, stage: Stage) -> StageRun | None:
        """Return a stage; None if it has problems."""
        before = len(self.problems)
        frames: dict[str, DataFrame] = {}
        writes: dict[str, Write] = {}
        kept: dict[str, frozenset[str]] = {}
        for step in stage.front:
            self._stream(stage, step, frames, kept)
        loads = {step.name: frames[step.name] for step in stage.front if not step.inputs and step.name in frames}
        front = None
        if all(name in frames for name in stage.outputs):
            with self._finding(stage, None):
                front = Front.of(stage, frames)
                empty = {
                    name: self.spark.createDataFrame([], StructType(schema.fields))
                    for name, schema in front.schemas.items()
                }
                frames.update(empty)
        for step in stage.steps:
            if step.writes:
                self._write(stage, step, frames, writes)
                if step.inputs and step.inputs[0] in frames:
                    frames[step.name] = frames[step.inputs[0]]
                    kept[step.name] = kept.get(step.inputs[0], frozenset())
            else:
                self._stream(stage, step, frames, kept)
        if front is None or len(self.problems) > before:
            return None
        read_ahead = front.stateful and not _reads_every_row(stage)
        return StageRun(self.planned, stage, loads, front, self.tables, writes, read_ahead)

    def _stream(self, stage: Stage, step: Step, frames: dict[str, DataFrame], kept: dict[str, frozenset[str]]) -> None:
        node = step.node
        if step.kind in _LOADS:
            if isinstance(node, TableFeed) and node.between and (node.ref not in self.between or not self.streaming):
                if node.ref in self.between:
                    frames[step.name] = self.spark.createDataFrame([], self.between[node.ref])
                return
            with self._finding(stage, step):
                frames[step.name] = loaded(step, self.spark, streaming=self.streaming, feeds=self.feeds)
                wanted = (*(node.key or ()), *(node.order or ())) if isinstance(node, LoadedStream) else ()
                kept[step.name] = frozenset(wanted)
                require_columns(frames[step.name], wanted, "the source lacks the columns of its key or order")
            return
        if not all(name in frames for name in step.inputs):
            return
        wanted_columns = frozenset[str]().union(*(kept.get(name, frozenset()) for name in step.inputs))
        with self._finding(stage, step):
            inputs = [frames[name] for name in step.inputs]
            if step.kind is StepKind.TABLE_JOIN:
                frame = self.tables.joined(step, inputs[0], lambda name, rows: rows)
            else:
                frame = derived(step, inputs, self.planned.partitioners)
            if not isinstance(frame, DataFrame):
                raise ValueError(f"the function returned {frame!r}; it must return a DataFrame")
            if isinstance(node, PartitionBy):
                wanted_columns = wanted_columns & _order_columns(stage) | set(node.key)
            if isinstance(node, Map) and node.rekeys:
                wanted_columns = frozenset()
            if isinstance(node, Map):
                require_columns(
                    frame,
                    sorted(wanted_columns),
                    "a map must keep the columns of key and order, or say rekeys=True; it has lost",
                )
            frames[step.name] = frame
            kept[step.name] = wanted_columns & set(frame.columns)

    def _write(self, stage: Stage, step: Step, frames: Mapping[str, DataFrame], writes: dict[str, Write]) -> None:
        if not all(name in frames for name in step.inputs):
            return
        with self._finding(stage, step):
            writes[step.name] = write = write_of(step, self.planned, self.tables)
            schema = frames[step.inputs[0]].schema if step.inputs else StructType()
            write.check(schema, streaming=self.streaming)
            if isinstance(step.node, Intermediate):
                self.between[step.node.ref] = schema

    @contextmanager
    def _finding(self, stage: Stage, step: Step | None) -> Iterator[None]:
        """Turn an error, including any error of a user's function, into a problem."""
        try:
            yield
        except Exception as error:
            self.cause = self.cause or error
            text = str(error).strip().partition("\n")[0] if isinstance(error, PySparkException) else str(error)
            where = f"stage {stage.name!r}" if step is None else f"{step.kind} {step.name!r}"
            self.problems.append(Problem((), (), f"{where}: {text or type(error).__name__}"))


def _order_columns(stage: Stage) -> set[str]:
    sources = (step.node for step in stage.front if isinstance(step.node, LoadedStream))
    return {column for source in sources for column in source.order or ()}


def _reads_every_row(stage: Stage) -> bool:
    """Whether a step reads all rows of the front; a job does so even if it was committed before."""
    whole = set(stage.outputs)
    for step in stage.steps:
        match step.node:
            case _ if whole.isdisjoint(step.inputs):
                pass
            case Send() | SideInput() | Intermediate() | Sink(write=Mapping()):
                return True
            case Merge() | PartitionBy():
                whole.add(step.name)
    return False


@dataclass(slots=True)
class StageRun:
    """A stage whose steps were checked.

    Parameters
    ----------
    planned : PlannedPipeline
        The pipeline.
    stage : Stage
        The stage.
    loads : mapping of str to DataFrame
        Its loaded sources.
    front : Front
        Its front.
    tables : RunTables
        The tables that its steps read.
    writes : mapping of str to Write
        Its writes, by the names of their steps.
    read_ahead : bool
        Whether the rows of a micro-batch are read ahead of its steps, which may read none or some of them: the state of
        a query ends for good if a micro-batch leaves it unread.
    error : BaseException or None
        The error of its last micro-batch as an object: Spark passes on only its text.
    """

    planned: PlannedPipeline
    stage: Stage
    loads: Mapping[str, DataFrame]
    front: Front
    tables: RunTables
    writes: Mapping[str, Write]
    read_ahead: bool
    error: BaseException | None = None

    @property
    def name(self) -> str:
        """The stage's name."""
        return self.stage.name

    def micro_batch(self, rows: DataFrame, number: int) -> None:
        """Run the steps of a micro-batch; the function of `foreachBatch`."""
        try:
            micro_batch, run = MicroBatch.of_driver(rows.sparkSession.sparkContext)
            self.run(rows, MicroBatchIdentity(self.planned.name, number, micro_batch.query, run))
        except BaseException as error:
            self.error = error
            raise

    def batch(self, batch: MicroBatchIdentity, between: dict[TableRef, DataFrame]) -> None:
        """Run the steps on batch DataFrames; `between` holds the streams of earlier stages, and gets this stage's."""
        frames: dict[str, DataFrame] = {}
        for step in self.stage.front:
            if isinstance(step.node, TableFeed):
                frames[step.name] = between[step.node.ref]
            elif step.kind in _LOADS:
                frames[step.name] = self.loads[step.name]
            else:
                inputs = [frames[name] for name in step.inputs]
                frames[step.name] = derived(step, inputs, self.planned.partitioners)
        self.run(Front.of(self.stage, frames).frame, batch, between)

    def run(self, rows: DataFrame, batch: MicroBatchIdentity, between: dict[TableRef, DataFrame] | None = None) -> None:
        """Run the steps on the rows of the front; `between` gets the streams to later stages of a batch run."""
        with _Scope() as scope:
            frames = self.front.streams(scope.persisted(rows) if self.stage.cached or self.read_ahead else rows)
            if self.read_ahead:
                rows.count()
            for step in self.stage.steps:
                inputs = [frames[name] for name in step.inputs]
                if step.writes:
                    if between is not None and isinstance(step.node, Intermediate):
                        between[step.node.ref] = inputs[0].persist()
                        with self._telling(step):
                            inputs[0].count()  # now, before later writes to the joined tables
                    else:
                        self._write(step, inputs, batch)
                    if step.table is not None:
                        scope.forget(step.table)
                    if inputs:
                        frames[step.name] = inputs[0]
                    continue
                if step.kind is StepKind.TABLE_JOIN:
                    frame = self.tables.joined(step, inputs[0], scope.table)
                else:
                    frame = derived(step, inputs, self.planned.partitioners)
                frames[step.name] = scope.persisted(frame) if step.persist else frame

    def _write(self, step: Step, inputs: list[DataFrame], batch: MicroBatchIdentity) -> None:
        begun = time.perf_counter()
        with self._telling(step):
            summary = self.writes[step.name].run(inputs[0] if inputs else None, batch)
        rows = None if summary is None else summary.rows
        record(self.planned.name, self.name, step.name, time.perf_counter() - begun, rows)

    @contextmanager
    def _telling(self, step: Step) -> Iterator[None]:
        """Raise a task's own error instead of Spark's error with its text, and name the step."""
        try:
            yield
        except BaseException as failure:
            error = carried_error(failure, self.tables.run) or failure
            if isinstance(error, RecordNotFoundError) and step.kind is StepKind.SEND_UPDATE_TO:
                error.add_note('on_missing="drop" leaves out updates of keys that have no row, default= gives them one')
            error.add_note(f"in {step.kind} {step.name!r} of stage {self.name!r}, pipeline {self.planned.name!r}")
            if error is failure:
                raise
            raise error from failure


def record(pipeline: str, stage: str, step: str, seconds: float, rows: int | None) -> None:
    """Record a write of a micro-batch in the program's metrics; rows that were not counted are None."""
    meter = recording_meter()
    if meter is None:
        return
    attributes = {"pipeline": pipeline, "stage": stage, "step": step}
    duration_histogram(meter, "structable.step.duration", "Time of a step's write of a micro-batch").record(
        seconds, attributes
    )
    if rows is not None:
        description = "Rows that a step wrote; none if the micro-batch had been written before"
        meter.create_counter("structable.step.rows", unit="{row}", description=description).add(rows, attributes)


class _Scope:
    """DataFrames that a micro-batch has persisted, until its end."""

    def __init__(self) -> None:
        self._frames: list[DataFrame] = []
        self._tables: dict[str, DataFrame] = {}

    def __enter__(self) -> _Scope:
        return self

    def __exit__(self, *raised: object) -> None:
        for frame in reversed(self._frames):
            frame.unpersist()

    def persisted(self, frame: DataFrame) -> DataFrame:
        self._frames.append(frame.persist())
        return self._frames[-1]

    def table(self, name: str, rows: DataFrame) -> DataFrame:
        """Return the snapshot of a table that is read whole."""
        if name not in self._tables:
            self._tables[name] = self.persisted(rows)
        return self._tables[name]

    def forget(self, name: str) -> None:
        """Read a table again from now on, because it was written."""
        self._tables.pop(name, None)
