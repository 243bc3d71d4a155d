"""Scans as tables and streams of Arrow, and as frames of pandas. Imports pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from ._arrow import arrow_schema, rows_to_batches
from ._operations import Scan
from ._rules.arguments import check_columns
from ._scans import PlannedScan, RowIterator
from ._specification import TableSpecification

if TYPE_CHECKING:
    import pandas as pd


class _ScannedTable(Protocol):
    @property
    def specification(self) -> TableSpecification: ...

    def _scan(self, scan: Scan) -> RowIterator: ...

    def _plan(self, scan: Scan) -> PlannedScan | None: ...


def schema_of_scan(spec: TableSpecification, scan: Scan) -> pa.Schema:
    """Return the schema of the batches of a scan: exactly its columns, in their order."""
    return arrow_schema(spec, check_columns(spec, scan.columns))


def collected(table: _ScannedTable, scan: Scan) -> pa.Table:
    """Return the rows of a scan, in its order."""
    spec = table.specification
    schema = schema_of_scan(spec, scan)
    planned = table._plan(scan)
    if planned is None:
        return pa.Table.from_batches(_of_rows(spec, schema, table._scan(scan)), schema)
    missing = [name for name in spec.primary_key if name not in schema.names]
    if missing and not planned.plan.ordered:  # the rows are sorted by their keys here
        planned.plan.close()
        planned = table._plan(scan._replace(columns=[*schema.names, *missing])) or planned
    read = arrow_schema(spec, planned.plan.columns)
    found = pa.Table.from_batches(_of_plan(planned, read), read)
    if not planned.plan.ordered and not spec.keyless:
        found = found.sort_by([(name, "ascending") for name in spec.primary_key])
    return found.select(schema.names)


def streamed(table: _ScannedTable, scan: Scan, rows: RowIterator | None) -> pa.RecordBatchReader:
    """Return the rows of a scan batch by batch, in the order of the store if they are planned.

    Rows that were already scanned are used only if there is no plan: making batches of them takes many times longer.
    """
    spec = table.specification
    schema = schema_of_scan(spec, scan)
    planned = table._plan(scan)
    if planned is None:
        found = table._scan(scan) if rows is None else rows
        return pa.RecordBatchReader.from_batches(schema, _of_rows(spec, schema, found))
    return pa.RecordBatchReader.from_batches(schema, _of_plan(planned, schema))


def _of_rows(spec: TableSpecification, schema: pa.Schema, rows: RowIterator) -> Iterator[pa.RecordBatch]:
    with rows:
        yield from rows_to_batches(spec, rows, schema.names)


def _of_plan(planned: PlannedScan, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with planned.plan as plan:
        for split in plan.splits:
            for batch in planned.read_split(split):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def as_pandas(table: pa.Table) -> pd.DataFrame:
    """Return a frame of the same values: integers and booleans with nulls in pandas' nullable types."""
    import pandas as pd

    nullable: dict[pa.DataType, Any] = {
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
    }
    frame = table.to_pandas()
    for name, column in zip(table.column_names, table.columns, strict=True):
        if column.null_count and column.type in nullable:
            frame[name] = column.to_pandas(types_mapper=nullable.get)
    return frame
