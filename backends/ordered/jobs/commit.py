"""The commit of a write job: the outcome of its rows, with the job's record during and after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from structable.backends.ordered.engine import BulkApplication, BulkChunk, BulkCommit, EngineSnapshot, RunStore
from structable.backends.ordered.schema.binding import TableBinding
from structable.backends.ordered.schema.job_records import JobProgress, JobRecord, job_key, progress_key
from structable.backends.ordered.table_schema import TableSchema
from structable.spi import WriteMode
from structable.spi.authors import feed_channel

from .merging import BagRows, MergedRows, ReplacedRows
from .patching import PatchedRows
from .rows import Fold, LastRows, LogRows
from .staged import StagedRows, StagedRuns


def job_rows(
    engine: RunStore, binding: TableBinding, mode: WriteMode, staged: tuple[str, ...], *, skips_missing: bool = False
) -> Fold[Any]:
    """Return the rows that a job staged, in the order of its partitions."""
    runs = StagedRuns(engine, binding, mode, [StagedRows.decode(state) for state in staged])
    options = binding.spec.table_options
    if binding.log:
        return LogRows(binding, runs, mode)
    if mode is WriteMode.PATCH:
        return PatchedRows(binding, runs, skips_missing=skips_missing)
    if mode is WriteMode.CHANGES:
        return (BagRows if binding.keyless else MergedRows)(binding, runs, mode)
    # A feed with the producer input holds all rows of a key.
    if mode is WriteMode.UPSERT and (options.merges or runs.mixed or binding.feeds_input):
        return MergedRows(binding, runs, mode)
    if mode is WriteMode.REPLACE and binding.feeds_input:
        return ReplacedRows(binding, runs, mode)
    return LastRows(binding, runs, mode)


class JobCommit(BulkCommit):
    """A job's commit in place, applied by an engine; `decision` and `completion` are its record during and after it.

    The record of a batch's stream is in the commit that makes the rows visible: in the decision, if there is one. Row
    counts are in the decision if the rows were checked before it, else in the completion, after all chunks.

    If a chunk must not be applied twice, each chunk writes the progress of the job, and completion deletes that.

    Parameters
    ----------
    recheck : callable or None
        Raises if the job ended or the table changed before the engine blocked writers; None in the repair of a crash,
        when the engine has `decided` the job already.
    progress : JobProgress
        The progress of the chunks that were applied before a crash.
    """

    def __init__(
        self,
        job_id: str,
        decided: JobRecord,
        rows: Fold[Any],
        schema: TableSchema,
        application: BulkApplication,
        recheck: Callable[[EngineSnapshot], None] | None,
        progress: JobProgress,
    ) -> None:
        self.space = schema.space
        if schema.feed is not None:
            self.signals = frozenset((feed_channel(schema.spec.name),))
        self.feed = None if schema.feed is None else schema.feed.space
        self._schema = schema
        self._rows = rows
        self._decided = decided
        self._recheck = recheck
        self._done = progress
        self._decides_first = application is not BulkApplication.AT_ONCE
        self._key = job_key(job_id)
        self._progress_key = progress_key(job_id) if self._decides_first and not rows.repeatable else None
        if recheck is None:
            rows.decide()
        self._conclude()

    @property
    def missing(self) -> int:
        """The number of keys that required a row and had none, once the commit is over."""
        return self._decided.missing

    def _conclude(self) -> None:
        """Set the changes to write before the first chunk, and after the last."""
        outcome = self._decided.outcome()
        self.decision: dict[bytes, bytes | None] = {}
        self.completion: dict[bytes, bytes | None] = {self._key: self._decided.once_whole()}
        if not self._decides_first:
            self.completion |= outcome
        elif self._recheck is not None:
            self.decision = {self._key: self._decided.encode(), **outcome}
        if self._progress_key is not None:
            self.completion[self._progress_key] = None

    def _count_missing(self) -> None:
        if self._rows.missing:
            self._decided = replace(self._decided, missing=self._rows.missing)
            self._conclude()

    def check(self, latest: EngineSnapshot) -> None:
        if self._recheck is not None:
            self._recheck(latest)
            self._rows.check(latest, decides_first=self._decides_first)
            self._count_missing()
        else:
            for _ in self._rows.chunks(latest, self._done):  # finds an unreadable row before the next chunk is written
                continue

    def chunks(self, latest: EngineSnapshot) -> Iterator[BulkChunk]:
        entries = self._done.entries
        for changes, end, appends, number in self._rows.chunks(latest, self._done):
            first, entries = entries, entries + len(appends)
            if self._progress_key is not None:
                changes[self._progress_key] = JobProgress(end, entries, number).encode(self._schema)
            yield BulkChunk(changes, appends, first)
        if not self._decides_first:
            self._count_missing()
