"""The common base of the rules of write jobs: a table with two rows, and jobs that write to it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from structable.spi import (
    CommitResult,
    StagedWrite,
    Storage,
    StructuredTable,
    TableSpecification,
    TransactionConflictError,
    WriteJob,
    WriteMode,
)
from structable.spi.arrow import rows_to_batches

from .case import ConformanceCase
from .samples import ITEMS, Record, item

PLAIN_MODES = [mode for mode in WriteMode if mode not in (WriteMode.CHANGES, WriteMode.PATCH)]
"""The modes that every store has, whose batches have fields of the table only."""
ALL_MODES = pytest.mark.parametrize("mode", PLAIN_MODES)
BEFORE = [item(1, n=1, tag="a", note="x"), item(2, n=2, tag="a")]


def batch(
    rows: Sequence[Record], columns: Sequence[str] | None = None, spec: TableSpecification = ITEMS
) -> pa.RecordBatch:
    """Return rows as one batch of the columns of the first row."""
    names = list(rows[0]) if columns is None else list(columns)
    (made,) = rows_to_batches(spec, rows, names, batch_size=100_000)
    return made


class JobCase(ConformanceCase):
    """A table that jobs write to."""

    @pytest.fixture
    def target(self, storage: Storage) -> StructuredTable:
        """Return the auto-commit view of ITEMS with rows 1 and 2."""
        storage.admin.create(ITEMS)
        storage.table("items").upsert_many(BEFORE)
        return storage.table("items")

    @pytest.fixture
    def streamed(self, target: StructuredTable) -> StructuredTable:
        """Return the table of `target`, if the store has streams."""
        self.require("streams")
        return target

    def job(self, storage: Storage, mode: WriteMode | str) -> WriteJob:
        return storage.begin_write("items", mode=mode, job_id=self.fresh_id())

    def run_job(self, storage: Storage, mode: WriteMode | str, rows: Sequence[Record]) -> None:
        """Write rows by one job of one partition."""
        job = self.job(storage, mode)
        storage.commit_write(job, [storage.stage(job, 0, 0, [batch(rows)])])

    def commit_in_the_end(self, storage: Storage, job: WriteJob, staged: list[StagedWrite]) -> CommitResult:
        """Commit a job; after a conflict `commit_write` may be called again."""
        while True:
            try:
                return storage.commit_write(job, staged)
            except TransactionConflictError:
                continue
