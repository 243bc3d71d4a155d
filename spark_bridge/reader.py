"""Reading: splits of one snapshot become Spark's partitions, and their batches go to the JVM unchanged."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource as spark
from pyspark.sql.types import StructType

from structable.spi import Filter, ScanSplit, TableSpecification

from .coordinator_client import CoordinatorClient
from .errors import one_line_errors, quiet_when_abandoned
from .filters import translate_filter
from .garbage_collection import freeze_imports
from .held_plans import Reader
from .options import ReadOptions
from .scan_isolation import execution_of, is_probe, limit_of, zone_of
from .types import arrow_schema_of, check_feed_schema, check_read_schema

__all__ = ["ChangeReader", "FilteringReader", "SplitPartition", "StructableReader"]


class SplitPartition(spark.InputPartition):
    """A split of a plan, which the coordinator holds under its id; a plan of changes needs no hold and has none."""

    def __init__(self, plan_id: str, split: ScanSplit) -> None:
        super().__init__(split.index)
        self.plan_id = plan_id
        self.split = split


class StructableReader(spark.DataSourceReader):
    """Reads columns of a table."""

    def __init__(
        self, coordinator: CoordinatorClient, options: ReadOptions, spec: TableSpecification, schema: StructType
    ) -> None:
        self._coordinator = coordinator
        self._options = options
        self._columns = check_read_schema(spec, schema)
        self._schema = schema
        self._where: Filter | None = None

    @one_line_errors()
    def partitions(self) -> list[spark.InputPartition]:
        if is_probe(self._schema):
            return []
        planned = self._coordinator.plan(self._options, self._columns, self._where, execution_of(self._schema))
        freeze_imports()
        return [SplitPartition(planned.plan_id, split) for split in planned.splits]

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SplitPartition)
        schema = arrow_schema_of(self._schema)
        options = self._options
        held = self._coordinator.holding(partition.plan_id, options, _reader(partition.split))
        with quiet_when_abandoned(), one_line_errors(), held:
            for batch in _first(options.store.read_split(partition.split), limit_of(self._schema)):
                freeze_imports()  # by the first batch everything is imported, the store's driver too
                # The same buffers under Spark's own schema, which must match exactly, nullability too.
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _first(batches: Iterator[pa.RecordBatch], rows: int | None) -> Iterator[pa.RecordBatch]:
    """Yield so many first rows, all if None."""
    if rows is None:
        yield from batches
        return
    while rows > 0:
        batch = next(batches, None)
        if batch is None:
            return
        part = batch.slice(0, rows)
        rows -= part.num_rows
        yield part


def _reader(split: ScanSplit) -> Reader:
    task = TaskContext.get()
    assert task is not None
    execution = task.getLocalProperty("spark.sql.execution.id")
    return Reader(split.index, None if execution is None else int(execution), task.stageId())


class FilteringReader(StructableReader):
    """Also accepts filters from Spark. It must serve one scan only: see `scan_isolation`."""

    def __init__(
        self, coordinator: CoordinatorClient, options: ReadOptions, spec: TableSpecification, schema: StructType
    ) -> None:
        super().__init__(coordinator, options, spec, schema)
        self._spec = spec

    def pushFilters(self, filters: list[spark.Filter]) -> Iterable[spark.Filter]:
        translated = [(condition, translate_filter(self._spec, condition)) for condition in filters]
        pushed = [where for _, where in translated if where is not None]
        if pushed:
            self._where = functools.reduce(operator.and_, pushed)
        return [condition for condition, where in translated if where is None]


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
        if is_probe(self._schema):
            return []
        splits = self._coordinator.plan_changes(self._options, self._columns, zone_of(self._schema))
        freeze_imports()
        return [SplitPartition("", split) for split in splits]

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SplitPartition)
        schema = arrow_schema_of(self._schema)
        with quiet_when_abandoned(), one_line_errors():
            for batch in self._options.store.read_split(partition.split):
                freeze_imports()
                yield pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)
