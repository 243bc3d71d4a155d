"""Streaming writes: each task of a micro-batch stages its rows, and the driver makes all of them visible at once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from structable.spark_bridge.base.errors import one_line_errors
from structable.spark_bridge.base.micro_batches import MicroBatch
from structable.spark_bridge.base.options import WriteOptions
from structable.spark_bridge.coordinator.client import CoordinatorClient
from structable.spark_bridge.coordinator.write_jobs import begin_requested
from structable.spark_bridge.write.staging import stage_task, typed_batches
from structable.spi import StagedWrite, StructableError, TableSpecification, WriteJob
from structable.spi.authors import requested_job

_log = logging.getLogger("structable.spark")


@dataclass(frozen=True)
class BatchMessage(WriterCommitMessage):
    """A task's report to the driver: the micro-batch it ran for, its job, and its staged rows, None if committed."""

    micro_batch: MicroBatch
    job: WriteJob
    staged: StagedWrite | None


class StructableStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of one query. Spark makes one before the tasks of each, and another to commit it.

    Only tasks know their query and micro-batch, so each of them begins the job, or finds it begun.
    """

    def __init__(
        self, coordinator: CoordinatorClient, options: WriteOptions, spec: TableSpecification, zone: str | None
    ) -> None:
        self._coordinator = coordinator
        self._options = options
        self._spec = spec
        self._zone = zone

    @one_line_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchMessage:  # type: ignore[override]
        options, micro_batch = self._options, MicroBatch.of_task()
        wanted = requested_job(options.table, options.mode, stream=micro_batch.stream(""), batch=micro_batch.number)
        with options.store.connect() as storage:
            job = begin_requested(storage, wanted)
            if job.committed:
                for _ in iterator:
                    pass  # Spark requires that the rows are consumed
                return BatchMessage(micro_batch, job, None)
            rows = typed_batches(self._spec, iterator, self._zone)
            return BatchMessage(micro_batch, job, stage_task(storage, job, rows))

    @one_line_errors()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        reports = _reports(messages)
        found = {report.micro_batch for report in reports}
        if len(found) != 1 or {one.number for one in found} != {batchId}:
            shown = ", ".join(f"{one.number} of query {one.query}" for one in found) or "none"
            raise StructableError(
                f"table {self._options.table!r}: the tasks of micro-batch {batchId} ran for {shown}: not committed"
            )
        staged = [report.staged for report in reports if report.staged is not None]
        if len(staged) < len(reports):
            _log.info("table %r: micro-batch %d had been committed before", self._options.table, batchId)
            return
        self._coordinator.commit_batch(self._options.store, reports[0].job, staged)

    @one_line_errors()
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        # Spark also calls this after a commit whose success did not reach it; the store leaves a committed batch alone.
        for report in _reports(messages)[:1]:
            self._coordinator.abort_batch(self._options.store, report.job)


def _reports(messages: list[WriterCommitMessage | None]) -> list[BatchMessage]:
    return [message for message in messages if isinstance(message, BatchMessage)]
