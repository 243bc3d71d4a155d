"""Writing by the format: each task stages its rows, and the driver makes all rows of a job visible at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from structable.spark_bridge.base.errors import one_line_errors
from structable.spark_bridge.base.options import WriteOptions
from structable.spark_bridge.coordinator.client import CoordinatorClient
from structable.spi import StagedWrite, WriteJob

from .staging import stage_task


@dataclass(frozen=True)
class StagedMessage(WriterCommitMessage):
    """A task's report to the driver: its staged rows, None if the job had been committed before."""

    staged: StagedWrite | None


class StructableWriter(DataSourceArrowWriter):
    """Writes one DataFrame as one atomic job; `staged_form` turns a task's batches into the batches to stage."""

    def __init__(
        self,
        coordinator: CoordinatorClient,
        options: WriteOptions,
        job: WriteJob,
        staged_form: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    ) -> None:
        self._coordinator = coordinator
        self._options = options
        self._job = job
        self._staged_form = staged_form

    @one_line_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:  # type: ignore[override]
        if self._job.committed:
            for _ in iterator:
                pass  # Spark requires that the rows are consumed
            return StagedMessage(None)
        with self._options.store.connect() as storage:
            return StagedMessage(stage_task(storage, self._job, self._staged_form(iterator)))

    @one_line_errors()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        staged = [message.staged for message in messages if isinstance(message, StagedMessage)]
        self._coordinator.commit_write(self._options.store, self._job, [rows for rows in staged if rows is not None])

    @one_line_errors()
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._options.job_id is None:
            self._coordinator.abort_write(self._options.store, self._job)
        else:
            # An aborted id can never be committed, and the caller chose this one to submit the job again. Staged rows
            # are not visible, and the store removes them later.
            self._coordinator.leave_write(self._options.store, self._job)
