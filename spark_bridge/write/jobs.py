"""Write jobs of DataFrames that the driver's own process begins, runs and commits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame

from structable.spark_bridge.base.store_client import StoreClient
from structable.spark_bridge.coordinator.applications import coordinator_of
from structable.spi import (
    InvalidFieldError,
    RecordNotFoundError,
    SchemaIncompatibleError,
    StructableError,
    TableNotFoundError,
    TableSpecification,
    UnsupportedOperationError,
    WriteJob,
    WriteMode,
)
from structable.spi.authors import recording_meter

from .grouping import KeyCounts
from .staging import StagingReport, collect_reports, report_batch, stage_task, typed_batches

if TYPE_CHECKING:
    from structable.spark_bridge.coordinator.client import CoordinatorClient

_log = logging.getLogger("structable.spark")

# Another attempt of the task would fail in the same way.
_REFUSALS = (InvalidFieldError, SchemaIncompatibleError, TableNotFoundError, UnsupportedOperationError)

Reshape = Callable[[Iterable[pa.RecordBatch], KeyCounts], Iterator[pa.RecordBatch]]
"""Turns the batches of a task into the batches to stage, and counts their rows and keys; picklable."""


@dataclass(frozen=True, slots=True)
class WriteSummary:
    """The results of a write of a batch DataFrame; all zero if its job had been committed before.

    Parameters
    ----------
    rows : int
        The rows read.
    keys : int
        The distinct keys of these rows; in a table without a key, the number of rows.
    missing : int
        The distinct keys whose update was skipped because they had no row. If the answer to the commit was lost,
        and the commit therefore repeated, only keys that the same rows deleted before are counted, and a warning says
        so.
    """

    rows: int
    keys: int
    missing: int = 0


@dataclass(frozen=True, slots=True)
class RowCount:
    """Passes batches on and counts their rows, each as a key of its own."""

    def __call__(self, batches: Iterable[pa.RecordBatch], counts: KeyCounts) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            counts.rows += batch.num_rows
            counts.keys += batch.num_rows
            yield batch


@dataclass(frozen=True, slots=True)
class _StagingTask:
    """Stages the rows of a task; picklable."""

    store: StoreClient
    spec: TableSpecification
    job: WriteJob
    reshape: Reshape

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield report_batch(self._staged(batches))
        except _REFUSALS as error:
            yield report_batch(error)

    def _staged(self, batches: Iterable[pa.RecordBatch]) -> StagingReport[KeyCounts]:
        counts = KeyCounts()
        typed = typed_batches(self.spec, batches)
        first = next((batch for batch in typed if batch.num_rows), None)
        if first is None:
            return StagingReport(None, counts)
        rows = self.reshape(chain((first,), typed), counts)
        with self.store.connect() as storage:
            return StagingReport(stage_task(storage, self.job, rows), counts)


def run_job(
    store: StoreClient,
    wanted: WriteJob,
    frame: DataFrame,
    prepare: Callable[[DataFrame], tuple[TableSpecification, DataFrame, Reshape]],
    *,
    run: str | None = None,
    submits_again: bool = False,
) -> WriteSummary:
    """Write a DataFrame by one job, unless it had been committed before; then nothing is checked or written.

    The rows of a micro-batch are still read then: a stateful query whose state did not move ends for good.

    Parameters
    ----------
    store : StoreClient
        The store.
    wanted : WriteJob
        The job, as it is requested.
    frame : DataFrame
        The rows, which are read once.
    prepare : callable
        Checks the DataFrame; returns the table, the rows in the partitions and order in which they are staged, and the
        function that reshapes a task's batches.
    run : str, optional
        The run of a streaming query, in which the job may begin once.
    submits_again : bool
        Whether the caller may submit the job again if it fails.
    """
    client = coordinator_of(frame.sparkSession).client
    job = client.begin_write(store, wanted, run=run)
    if job.committed:
        client.commit_write(store, job, [])
        if run is not None:
            frame.write.format("noop").mode("overwrite").save()
        return WriteSummary(0, 0)
    try:
        spec, arranged, reshape = prepare(frame)
        reports = collect_reports(arranged, _StagingTask(store, spec, job, reshape))
        counts = KeyCounts()
        for report in reports:
            counts.add(report.counts)
        if counts.missing and job.mode is WriteMode.PATCH and job.on_missing == "fail":
            raise _missing(job.table, counts)
        staged = [report.staged for report in reports if report.staged is not None]
        result = client.commit_write(store, job, staged)
    except BaseException:
        _end(client, store, job, submits_again=submits_again)
        raise
    summary = WriteSummary(counts.rows, counts.keys, counts.missing + result.missing)
    if summary.missing:
        measure_missing(job.table, summary.missing)
    return summary


def measure_missing(table: str, missing: int) -> None:
    """Count keys whose update was skipped."""
    meter = recording_meter()
    if meter is not None:
        description = "Keys of which an update was skipped because they had no row"
        counter = meter.create_counter("structable.updates.missing", unit="{key}", description=description)
        counter.add(missing, {"table": table})


def _missing(table: str, counts: KeyCounts) -> RecordNotFoundError:
    keys = tuple(counts.first_missing)
    error = RecordNotFoundError(table, keys[0], keys, counts.missing)
    error.add_note(
        "These keys are updated after they were deleted, in the same rows. Keys that have no row in the table were not "
        'looked for. on_missing="drop" skips such updates.'
    )
    return error


def _end(client: CoordinatorClient, store: StoreClient, job: WriteJob, *, submits_again: bool) -> None:
    try:
        # An aborted id can never be committed; an aborted batch of a stream can begin again.
        (client.leave_write if submits_again else client.abort_write)(store, job)
    except StructableError as error:
        _log.warning("table %r: what the job %r staged is removed later: %s", job.table, job.job_id, error)
