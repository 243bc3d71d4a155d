"""`send_to`: rows of a DataFrame to a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from structable.spark_bridge.base.table_ref import TableRef
from structable.spi import CHANGE_TYPE, PatchArm, RowKind, TableSpecification, WriteMode
from structable.spi.authors import PATCH_COLUMNS, check_mode

from .arguments import Planner, Request, Sending, columns_of
from .arrangement import COMMIT_VERSION, Arrangement, RowOrder, named
from .folding import DELETES
from .grouping import KeyCounts, counted, last_rows
from .jobs import Reshape, RowCount, WriteSummary
from .send_options import SendOptions, order_of


def send_to(
    df: DataFrame,
    table: TableRef,
    *,
    mode: Literal["upsert", "changes", "replace", "insert"] | str = "upsert",
    order_by: str | list[str] | None = None,
    unordered: bool = False,
    deletes: str | None = None,
    name: str | None = None,
    checkpoint: str | None = None,
    trigger: Mapping[str, object] | None = None,
    job_id: str | None = None,
) -> WriteSummary | StreamingQuery:
    """Write the rows of a DataFrame to a table, by one atomic job; of a stream, each micro-batch by a job of its own.

    A micro-batch takes effect once, even if it is repeated: its job is named by the query, whose id is kept in the
    checkpoint, by `name` and by its number, and is found again as long as the table exists.

    Parameters
    ----------
    df : DataFrame
        The rows: the key and any other fields, in the table's types, or ones that are cast to them without loss.
    table : TableRef
        The table.
    mode : str
        "upsert": each row is merged as the table's merge engine says; "changes": as a change of the kind in the column
        `_change_type`; "replace": it becomes the row; "insert": it is inserted, and a key that exists fails the job.
    order_by : str or list of str, optional
        The order of the rows of one key within a micro-batch: ascending by these columns, nulls first. A column that is
        not a field is not written. By default `_commit_version` in mode changes, if there is such a column, else the
        position in the DataFrame, which is lost when the DataFrame is shuffled.
    unordered : bool
        Whether the rows of a key may take effect in any order.
    deletes : str, optional
        A boolean column, not written: true deletes the key. Only in mode replace, and in mode upsert, where such a row
        is a change -D and all others are +U.
    name : str, optional
        The name of the write within its query, and of the query; required for a streaming DataFrame, and only for it.
    checkpoint : str, optional
        The folder of the query's checkpoint; required for a streaming DataFrame, and only for it.
    trigger : mapping, optional
        The arguments of `DataStreamWriter.trigger`; for a streaming DataFrame.
    job_id : str, optional
        Names the job of a batch DataFrame, so that submitting it again does nothing, for 7 days.

    Returns
    -------
    WriteSummary or StreamingQuery
        The summary of the write, or the query that was started.

    Raises
    ------
    ValueError
        For arguments that do not go together; the message names the argument.
    InvalidFieldError
        If the DataFrame does not fit the table, with every difference, before a task runs; or if a row does not fit.
    """
    order = order_of(order_by, unordered=unordered)
    options = SendOptions(mode=mode, order_by=order, unordered=unordered, deletes=deletes)
    return Request(df, table, name, checkpoint, trigger, job_id).start(plan_rows(options))


def plan_rows(options: SendOptions) -> Planner:
    """Return the function that plans the writing of rows."""
    chosen, order, deletes = WriteMode(options.mode), options.order_by, options.deletes

    def plan(spec: TableSpecification, schema: StructType, *, streaming: bool) -> Sending:
        if spec.keyless and order is not None:
            raise ValueError(f"order_by is {order!r}, and table {spec.name!r} has no primary key")
        check_mode(spec, chosen)
        fields = columns_of(spec, schema, chosen, order=order, deletes=deletes)
        job_mode, beside = chosen, dict[str, Column]()
        inner: tuple[str | RowOrder, ...] = (RowOrder.POSITION,) if order is None else order
        if chosen is WriteMode.CHANGES:
            beside[CHANGE_TYPE] = named(CHANGE_TYPE)
            if order is None and COMMIT_VERSION in schema.fieldNames():
                inner = (COMMIT_VERSION, RowOrder.PREIMAGES_FIRST, RowOrder.POSITION)
        elif deletes is not None and chosen is WriteMode.UPSERT:
            job_mode = WriteMode.CHANGES
            beside[CHANGE_TYPE] = sf.when(named(deletes), sf.lit(str(RowKind.DELETE))).otherwise(
                sf.lit(str(RowKind.UPDATE_AFTER))
            )
        elif deletes is not None:
            job_mode = WriteMode.PATCH
            beside[DELETES] = named(deletes)
        # Rows that stay in their partitions reach the job in their order, but their keys are not counted.
        by_key = not spec.keyless and (
            job_mode is WriteMode.PATCH
            or (not options.unordered and inner != (RowOrder.POSITION,))
            or (not streaming and chosen is not WriteMode.INSERT)
        )
        reshape: Reshape = RowCount()
        if by_key:
            reshape = _LastRowPatches(spec.primary_key) if job_mode is WriteMode.PATCH else _KeyCount(spec.primary_key)
        return Sending(job_mode, Arrangement(fields, beside, by_key, () if options.unordered else inner), reshape)

    return plan


@dataclass(frozen=True, slots=True)
class _KeyCount:
    """Passes sorted batches on and counts their keys."""

    key: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch], counts: KeyCounts) -> Iterator[pa.RecordBatch]:
        return counted(batches, self.key, counts)


@dataclass(frozen=True, slots=True)
class _LastRowPatches:
    """Makes patches of sorted batches: the last row of each key replaces it or deletes it."""

    key: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch], counts: KeyCounts) -> Iterator[pa.RecordBatch]:
        for batch in last_rows(batches, self.key, counts):
            arms = pc.if_else(batch.column(DELETES).fill_null(False), str(PatchArm.DELETE), str(PatchArm.REPLACE))
            yield batch.drop_columns([DELETES]).append_column(PATCH_COLUMNS[0], arms)
