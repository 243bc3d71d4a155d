"""Reading: splits of one snapshot become Spark's partitions, and their batches go to the JVM unchanged."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource as spark
from pyspark.sql.types import StructType

from structable.spark_bridge.base.errors import one_line_errors, quiet_when_abandoned
from structable.spark_bridge.base.options import ReadOptions
from structable.spark_bridge.base.python_workers import acknowledge, freeze_imports
from structable.spark_bridge.base.types import arrow_schema_of, check_feed_schema, check_read_schema, field_changed
from structable.spark_bridge.coordinator.client import CoordinatorClient
from structable.spark_bridge.coordinator.held_plans import PlannedSplits, SplitTask
from structable.spark_bridge.coordinator.replanning import Rerun, digest_of, pickled_scan
from structable.spark_bridge.jvm.scan_requests import ReadRequest
from structable.spi import Aggregation, ScanSplit, TableSpecification
from structable.spi.arrow import aggregate_schema, arrow_schema
from structable.spi.authors import check_aggregation

from .pushdown import parse_aggregation, parse_filter, require_unchanged, spark_batches
from .split_results import chosen, unscaled_batch


class SplitPartition(spark.InputPartition):
    """Splits of a plan, mostly one, which the coordinator holds under its id; a plan of changes has no hold.

    It is number `part` of the `parts` of the scan.
    """

    def __init__(
        self, plan_id: str, *splits: ScanSplit, order: tuple[str, ...] = (), part: int = 0, parts: int = 1
    ) -> None:
        super().__init__(splits[0].index)
        self.plan_id = plan_id
        self.splits = splits
        self.order = order
        self.part = part
        self.parts = parts


class StructableReader(spark.DataSourceReader):
    """Reads columns of a table, or what was pushed down in their place."""

    def __init__(
        self, coordinator: CoordinatorClient, options: ReadOptions, spec: TableSpecification, schema: StructType
    ) -> None:
        self._coordinator = coordinator
        self._options = options
        request = ReadRequest.of(schema)
        self._aggregation: Aggregation | None = None
        if request.aggregates is not None:
            self._aggregation = parse_aggregation(request.aggregates)
            checked = check_aggregation(spec, self._aggregation)
            assert checked is not None
            self._columns: tuple[str, ...] | Aggregation = checked
            self._stored = aggregate_schema(spec, checked)
        else:
            self._columns = check_read_schema(spec, request.scaled or schema)
            self._stored = arrow_schema(spec, self._columns)
        self._given = arrow_schema_of(schema)
        if self._aggregation is not None:
            require_unchanged(options.table, self._aggregation, self._given, self._stored)
        self._where = None if request.where is None else parse_filter(spec, request.where)
        self._request = replace(request, where=None)
        if request.whole:
            self._options = replace(options, splits=1)
        self._scan = pickled_scan(self._options, self._columns, self._where)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_where": None}  # tasks have it in the scan, and their splits

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge()

    @one_line_errors()
    def partitions(self) -> list[spark.InputPartition]:
        return self.planned()

    def planned(self) -> list[spark.InputPartition]:
        """Take a snapshot, and return its partitions."""
        execution, digest = self._request.execution, digest_of(self._scan)
        planned = self._coordinator.plan(self._options, self._columns, self._where, execution, digest)
        freeze_imports()
        plan_id, splits, order = planned.plan_id, planned.splits, planned.order
        if self._request.whole:
            return [SplitPartition(plan_id, *splits, order=order)]
        return [
            SplitPartition(plan_id, split, order=order, part=part, parts=len(splits))
            for part, split in enumerate(splits)
        ]

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SplitPartition)
        request = self._request
        with quiet_when_abandoned(), one_line_errors():
            planned = self._planned(partition)
            for split in planned.splits:
                # A split that a limit leaves unread is held too, so that the coordinator does not wait for it.
                with self._coordinator.holding(planned.plan_id, self._options, _reader(split)):
                    if request.whole and request.limit == 0:
                        continue
                    for batch in self._results(split, request, planned.order):
                        if request.whole and request.limit is not None:
                            request = replace(request, limit=request.limit - batch.num_rows)
                        yield batch

    def _planned(self, partition: SplitPartition) -> PlannedSplits:
        """Return the splits for this task, planned again if Spark executes the plan of an earlier execution."""
        execution, outermost = _execution("id"), _execution("root.id")
        if execution is not None and execution != self._request.execution:
            rerun = Rerun(
                partition.plan_id, partition.part, partition.parts, execution, execution == outermost, _task().stageId()
            )
            again = self._coordinator.planned_again(rerun, self._scan)
            if again is not None:
                return again
        return PlannedSplits(partition.plan_id, partition.splits, order=partition.order)

    def _results(self, split: ScanSplit, request: ReadRequest, order: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        schema = self._given
        batches = self._checked(_frozen(self._options.store.read_split(split)))
        if self._aggregation is not None:
            for batch in batches:
                yield from spark_batches(self._aggregation, batch, schema)
            return
        for batch in chosen(batches, request, order):
            # The same buffers under Spark's own schema, which must match exactly, nullability too.
            yield unscaled_batch(batch, schema)

    def _checked(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Refuse columns that are of another type than when Spark planned, instead of casting them."""
        for batch in batches:
            if batch.schema.equals(self._stored):
                yield batch
                continue
            for was, now in zip(self._stored, batch.schema, strict=True):
                if now.type != was.type or now.nullable > was.nullable:
                    raise field_changed(self._options.table, was.name, was, now)
            yield batch


def _frozen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        freeze_imports()  # by the first batch everything is imported, the store's driver too
        yield batch


def _reader(split: ScanSplit) -> SplitTask:
    return SplitTask(split.index, _execution("id"), _task().stageId())


def _execution(name: str) -> int | None:
    number = _task().getLocalProperty(f"spark.sql.execution.{name}")
    return None if number is None else int(number)


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None
    return task


class ChangeReader(spark.DataSourceReader):
    """Reads columns of the changes of a table; Spark evaluates all filters."""

    def __init__(
        self, coordinator: CoordinatorClient, options: ReadOptions, spec: TableSpecification, schema: StructType
    ) -> None:
        self._coordinator = coordinator
        self._options = options
        self._columns = check_feed_schema(spec, schema)
        self._schema = schema

    @one_line_errors()
    def partitions(self) -> list[spark.InputPartition]:
        return self.planned()

    def planned(self) -> list[spark.InputPartition]:
        """Fix the range, and return its partitions."""
        zone = ReadRequest.of(self._schema).zone
        splits = self._coordinator.plan_changes(self._options, self._columns, zone)
        freeze_imports()
        return [SplitPartition("", split) for split in splits]

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SplitPartition)
        schema = arrow_schema_of(self._schema)
        with quiet_when_abandoned(), one_line_errors():
            for batch in self._options.store.read_split(partition.splits[0]):
                freeze_imports()
                yield pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)


class ReadPartition:
    """The function by which a task reads its partition, the one value of its input."""

    def __init__(self, reader: StructableReader | ChangeReader) -> None:
        self._reader = reader
        self.__module__ = "pyspark.sql.worker.plan_data_source_read"  # profiled as other data sources

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        [partition] = [batch.column(0)[0].as_py() for batch in batches]
        return self._reader.read(pickle.loads(partition))
