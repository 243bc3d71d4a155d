"""Runs a planned pipeline: for ever, to the present end of its sources, or on batch DataFrames."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from structable.spark_bridge.base.micro_batches import check_trigger, require_streaming
from structable.spark_bridge.base.table_ref import TableRef
from structable.spark_bridge.pipelines.plan import Plan
from structable.spark_bridge.pipelines.planned import MicroBatchIdentity
from structable.spark_bridge.registration import register
from structable.spi import WriteMode

from .plan_files import PlanFile
from .stages import StageRun, prepared

_PARTITIONS = "spark.sql.shuffle.partitions"
_AVAILABLE: Mapping[str, object] = {"availableNow": True}

_starting = threading.Lock()
"""Held while a query starts: it takes the count of its state's partitions from the session."""


def start(
    planned: Plan, spark: SparkSession, checkpoint: str, trigger: Mapping[str, object] | None = None
) -> PipelineRun:
    """Start all stages; side inputs are read to their present end first."""
    check_trigger(trigger)
    stages = _prepared(planned, spark, checkpoint)
    queries: dict[str, StreamingQuery] = {}
    try:
        writers = {stage.name: _writer(stage, checkpoint, trigger) for stage in stages}
        for stage in stages:
            if stage.stage.side_input:
                _run_to_end(stage, checkpoint)
        for stage in stages:
            queries[stage.name] = _started(stage, writers[stage.name])
    except BaseException:
        for query in queries.values():
            query.stop()
        _close(stages)
        raise
    return PipelineRun(stages, queries)


def run_available(planned: Plan, spark: SparkSession, checkpoint: str) -> None:
    """Run each stage, in order of dependence, to the end that its sources had when it began."""
    stages = _prepared(planned, spark, checkpoint)
    try:
        for stage in stages:
            _run_to_end(stage, checkpoint)
    finally:
        _close(stages)


def run_batch(planned: Plan, spark: SparkSession, run_id: str | None = None) -> None:
    """Run each stage once, on batch DataFrames."""
    register(spark)
    batch = MicroBatchIdentity(
        planned.name, 0, None, uuid.uuid4().hex if run_id is None else run_id, again=run_id is not None
    )
    for stage in planned.stages:
        for step in stage.steps:
            batch.job(step, "table", WriteMode.UPSERT, "fail")  # ValueError for a run_id that no job can have
    stages = prepared(planned, spark, streaming=False, feeds={})
    between: dict[TableRef, DataFrame] = {}
    try:
        for run in stages:
            with _naming(run):
                run.batch(batch, between)
    finally:
        for frame in between.values():
            frame.unpersist()
        _close(stages)


def _prepared(planned: Plan, spark: SparkSession, checkpoint: str) -> list[StageRun]:
    if not isinstance(checkpoint, str) or not checkpoint:
        raise ValueError(f"checkpoint is {checkpoint!r}; it must be the folder of the pipeline's checkpoints")
    require_streaming()
    register(spark)
    file = PlanFile(spark, checkpoint)
    feeds = file.check(planned)
    stages = prepared(planned, spark, streaming=True, feeds=feeds)
    try:
        file.keep(planned, feeds)
    except BaseException:
        _close(stages)
        raise
    return stages


def _close(stages: Sequence[StageRun]) -> None:
    for stage in stages:
        stage.tables.open.close()


def _writer(stage: StageRun, checkpoint: str, trigger: Mapping[str, object] | None) -> DataStreamWriter:
    writer = stage.front.frame.writeStream.queryName(f"{stage.planned.name}.{stage.name}")
    writer = writer.option("checkpointLocation", f"{checkpoint.rstrip('/')}/{stage.name}")
    if trigger is not None:
        writer = writer.trigger(**trigger)  # type: ignore[call-overload]
    return writer.foreachBatch(stage.micro_batch)


def _started(stage: StageRun, writer: DataStreamWriter) -> StreamingQuery:
    with _starting:
        if stage.stage.partitions is None:
            return writer.start()
        settings = stage.front.frame.sparkSession.conf
        before = settings.get(_PARTITIONS)
        settings.set(_PARTITIONS, str(stage.stage.partitions))
        try:
            return writer.start()
        finally:
            settings.set(_PARTITIONS, str(before))


def _run_to_end(stage: StageRun, checkpoint: str) -> None:
    query = _started(stage, _writer(stage, checkpoint, _AVAILABLE))
    try:
        query.awaitTermination()
    except Exception as failure:
        raise _named(stage, failure) from failure.__cause__
    finally:
        query.stop()


@contextmanager
def _naming(stage: StageRun) -> Iterator[None]:
    """Add the stage to an error."""
    try:
        yield
    except BaseException as error:
        _named(stage, error)
        raise


def _named(stage: StageRun, failure: BaseException) -> BaseException:
    """Return the error of a failed stage, with its name: the micro-batch's error, or else Spark's."""
    error = stage.error or failure
    note = f"stage {stage.name!r} of pipeline {stage.planned.name!r} failed"
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)
    return error


class PipelineRun:
    """A pipeline that runs: one query for each stage. If one fails, all are stopped.

    Attributes
    ----------
    queries : mapping of str to StreamingQuery
        The queries by the names of their stages, in order of dependence.
    """

    def __init__(self, stages: Sequence[StageRun], queries: Mapping[str, StreamingQuery]) -> None:
        self.queries = dict(queries)
        self._stages = list(stages)
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self._stopping = False
        self._running = len(self._stages)
        self._watches = [
            threading.Thread(target=self._watch, args=(stage,), name=f"structable-{stage.name}", daemon=True)
            for stage in stages
        ]
        for watch in self._watches:
            watch.start()

    @property
    def exception(self) -> BaseException | None:
        """The error of the first stage that failed, with a note of its name; None if none has failed."""
        return self._failure

    def process_available(self) -> None:
        """Wait until everything that existed before this call has passed through all stages.

        Raises the error of a stage that fails.
        """
        for query in self.queries.values():
            try:
                query.processAllAvailable()
            except Exception:
                self._join(5.0)
                self._raise()
                raise
        self._raise()

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until all stages have ended, for `timeout` seconds at most; return whether they have.

        Raises the error of a stage that failed.
        """
        ended = self._join(timeout)
        self._raise()
        return ended

    def stop(self) -> None:
        """Stop all stages, and wait for their end; a micro-batch that is under way runs again at the next start."""
        self._stopping = True
        for query in self.queries.values():
            query.stop()
        self._join(None)

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _join(self, timeout: float | None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        for watch in self._watches:
            watch.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return not any(watch.is_alive() for watch in self._watches)

    def _watch(self, stage: StageRun) -> None:
        query: Any = self.queries[stage.name]
        try:
            query.awaitTermination()
        except Exception as failure:
            with self._lock:
                first = self._failure is None and not self._stopping  # a stopped step may fail
                if first:
                    self._failure = _named(stage, failure)
            if first:
                for other in self.queries.values():
                    if other is not query:
                        other.stop()
        finally:
            with self._lock:
                self._running -= 1
                last = not self._running
            if last:
                _close(self._stages)
