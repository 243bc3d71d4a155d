"""Steps that write a stream: to a table of a store, with one job each; to a remote table or a sink, at least once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from structable.spark_bridge.base.table_ref import TableRef
from structable.spark_bridge.base.types import new_specification
from structable.spark_bridge.joins import JoinWorker, open_join
from structable.spark_bridge.joins.binding import bind
from structable.spark_bridge.pipelines.graph import ForeignKeyTable, Intermediate, RemoteTable, Send, SideInput, Sink
from structable.spark_bridge.pipelines.planned import MicroBatchIdentity, PlannedPipeline, Step
from structable.spark_bridge.write.arguments import Planner, Sending
from structable.spark_bridge.write.arrangement import COMMIT_VERSION
from structable.spark_bridge.write.jobs import Reshape, WriteSummary, run_job
from structable.spark_bridge.write.rows import plan_rows
from structable.spark_bridge.write.send_options import SendOptions
from structable.spark_bridge.write.table_creation import create_table
from structable.spark_bridge.write.updates import plan_updates
from structable.spi import TableNotFoundError, TableSpecification, WriteMode
from structable.spi.authors import recording_meter

from .lookups import RunTables
from .remote_writes import RemoteWrite


class Write(Protocol):
    """The write of a step."""

    def check(self, schema: StructType, *, streaming: bool) -> None:
        """Raise an error if rows of a schema cannot be written; called before anything runs."""

    def run(self, frame: DataFrame | None, batch: MicroBatchIdentity) -> WriteSummary | None:
        """Write the rows; `frame` is None for a foreign-key join. Return None if the rows were not counted."""


def write_of(step: Step, planned: PlannedPipeline, tables: RunTables) -> Write:
    """Return the write of a step."""
    node = step.node
    match node:
        case Sink():
            return _SinkWrite(node)
        case ForeignKeyTable():
            return _JoinWrite(step, planned, tables)
        case Intermediate():
            return _FeedTableWrite(step, node.ref, tables)
        case Send() | SideInput():
            assert step.table is not None
            target = planned.table(step.table)
            if isinstance(target, RemoteTable):
                options = node.options if isinstance(node, Send) else None
                return RemoteWrite(tables.run, step.table, target, tables.spec(step.table), options, step.order)
            return _ToTable(step, tables, tables.ref(step.table), _plan(step, keyless=tables.spec(step.table).keyless))
    raise TypeError(f"step {step.name!r} writes nothing: {node!r}")


def _plan(step: Step, *, keyless: bool) -> Planner:
    given, order = step.node.options if isinstance(step.node, Send) else SendOptions(), step.order
    if keyless and given.order_by is None:
        order = None  # the derived order is an order within a key
    if given.mode == WriteMode.CHANGES and order == (COMMIT_VERSION,):
        order = None  # then preimages come before postimages
    options = replace(given, order_by=order)
    return plan_updates(options) if options.update else plan_rows(options)


class _ToTable:
    def __init__(self, step: Step, tables: RunTables, ref: TableRef, plan: Planner) -> None:
        self._step, self._tables, self._ref, self._plan = step, tables, ref, plan
        self._sending: Sending | None = None

    def spec(self) -> TableSpecification:
        assert self._step.table is not None
        return self._tables.spec(self._step.table)

    def check(self, schema: StructType, *, streaming: bool) -> None:
        self._sending = self._plan(self.spec(), schema, streaming=streaming)

    def run(self, frame: DataFrame | None, batch: MicroBatchIdentity) -> WriteSummary:
        sending, spec = self._sending, self.spec()
        assert sending is not None
        assert frame is not None

        def prepare(frame: DataFrame) -> tuple[TableSpecification, DataFrame, Reshape]:
            return spec, sending.arrangement.apply(spec, frame), sending.reshape

        wanted = batch.job(self._step, self._ref.name, sending.mode, sending.on_missing)
        run = None if batch.query is None else batch.run
        return run_job(self._ref.store, wanted, frame, prepare, run=run, submits_again=batch.again)


class _FeedTableWrite(_ToTable):
    """The write of a stream between two stages, to a table with a feed, which is made if it is missing."""

    def __init__(self, step: Step, ref: TableRef, tables: RunTables) -> None:
        super().__init__(step, tables, ref, plan_rows(SendOptions(mode="insert", unordered=True)))
        self._spec: TableSpecification | None = None

    def spec(self) -> TableSpecification:
        assert self._spec is not None
        return self._spec

    def check(self, schema: StructType, *, streaming: bool) -> None:
        if not streaming:
            return
        empty = self._tables.spark.createDataFrame([], schema)
        options = {"write-mode": "append-only", "changelog-producer": "input"}
        self._spec = create_table(empty, self._ref, options=options, if_exists="ignore")
        if not all(self._spec.options.get(name) == value for name, value in options.items()):
            raise ValueError(
                f"table {self._ref.name!r}, which this stream would be written to, exists and is not a table between "
                "stages; give the stream another name="
            )
        wanted = new_specification(self._ref.name, schema, (), (), options)
        if set(wanted.fields) != set(self._spec.fields):  # the order of columns does not matter
            was, now = (
                ", ".join(f"{one.name} {one.type_text}" for one in spec.fields) for spec in (self._spec, wanted)
            )
            raise ValueError(
                f"table {self._ref.name!r}, to which this stream was written, has the columns {was}, and the stream "
                f"has {now}; give the stream another name=, or drop the table, and take a new checkpoint"
            )
        if self._ref.name not in self._tables.feeds:
            with self._ref.store.connect() as storage:
                self._tables.feeds[self._ref.name] = str(storage.changes(self._ref.name).latest())
        super().check(schema, streaming=streaming)


@dataclass(frozen=True, slots=True)
class _SinkWrite:
    node: Sink

    def check(self, schema: StructType, *, streaming: bool) -> None:
        return None

    def run(self, frame: DataFrame | None, batch: MicroBatchIdentity) -> WriteSummary | None:
        assert frame is not None
        if recording_meter() is None:
            self._write(frame, batch)
            return None
        seen = Observation()
        self._write(frame.observe(seen, sf.count(sf.lit(1)).alias("rows")), batch)
        if not isinstance(self.node.write, Mapping):
            # If the function has read nothing, no observation will arrive.
            jvm_spark = frame.sparkSession.sparkContext._jsc.sc()
            jvm_spark.listenerBus().waitUntilEmpty()
            if not seen._jo.future().isCompleted():  # type: ignore[union-attr]
                return None
        rows = int(seen.get["rows"])
        return WriteSummary(rows, rows)

    def _write(self, frame: DataFrame, batch: MicroBatchIdentity) -> None:
        write = self.node.write
        if not isinstance(write, Mapping):
            write(frame, batch.number)
            return
        given: Mapping[str, Any] = write
        writer = frame.write.format(given["format"]).options(**given.get("options", {}))
        writer.mode(given.get("mode", "append")).save()


class _JoinWrite:
    """The step that brings the result of a foreign-key join up to date after the stage's writes."""

    def __init__(self, step: Step, planned: PlannedPipeline, tables: RunTables) -> None:
        assert isinstance(step.node, ForeignKeyTable)
        names = planned.graph.names
        self._inputs = names[step.node.left], names[step.node.right]
        self._chained = any(isinstance(planned.table(name), ForeignKeyTable) for name in self._inputs)
        self._join, self._tables = step.node.join, tables
        self._worker: JoinWorker | None = None

    def check(self, schema: StructType, *, streaming: bool) -> None:
        left, right = map(self._tables.spec, self._inputs)
        bind(self._join, left, right)
        try:
            self._opened().check()
        except TableNotFoundError:
            if not self._chained:  # else an earlier step makes the table
                raise

    def run(self, frame: DataFrame | None, batch: MicroBatchIdentity) -> WriteSummary:
        progress = self._opened().run_available()
        return WriteSummary(progress.affected, progress.affected)

    def _opened(self) -> JoinWorker:
        if self._worker is None:
            self._worker = self._tables.open.enter_context(open_join(self._tables.spark, self._join))
        return self._worker
