"""The commit of a write job: the outcome of its rows, with the job's record during and after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from structable.backends.ordered.engine import BulkApplication, BulkCommit, EngineSnapshot, RunStore
from structable.backends.ordered.schema.binding import TableBinding
from structable.backends.ordered.schema.job_records import JobRecord, job_key, progress_key
from structable.spi import WriteMode

from .bags import BagRows
from .merging import MergedRows
from .rows import JobRows, PlainRows
from .staged import StagedRows, StagedRuns

__all__ = ["JobCommit", "job_rows"]


def job_rows(engine: RunStore, binding: TableBinding, mode: WriteMode, staged: tuple[str, ...]) -> JobRows:
    """Return the rows that a job staged, in the order of its partitions."""
    runs = StagedRuns(engine, binding, mode, [StagedRows.decode(state) for state in staged])
    if mode is WriteMode.CHANGES and binding.spec.keyless:
        return BagRows(binding, runs)
    merges = mode is WriteMode.UPSERT and (binding.spec.table_options.merges or runs.mixed)
    if merges or mode is WriteMode.CHANGES:
        return MergedRows(binding, runs, mode)
    return PlainRows(binding, runs, mode)


class JobCommit(BulkCommit):
    """A job's commit in place, applied by an engine; `decision` and `completion` are its record during and after it.

    Where a chunk must not be applied twice, each chunk writes where it ended, and completion deletes that.

    Parameters
    ----------
    recheck : callable or None
        Raises if the job ended or the table changed before the engine blocked writers; None when a crash is repaired,
        after which the job is `decided` in the engine already.
    after : bytes
        Where the last chunk ended that was applied before a crash.
    """

    def __init__(
        self,
        job_id: str,
        decided: JobRecord,
        rows: JobRows,
        space: bytes,
        application: BulkApplication,
        recheck: Callable[[EngineSnapshot], None] | None,
        after: bytes,
    ) -> None:
        self.space = space
        self._rows = rows
        self._recheck = recheck
        self._after = after
        self._decides_first = application is not BulkApplication.AT_ONCE
        self._progress: bytes | None = None
        key = job_key(job_id)
        self.decision: dict[bytes, bytes | None] = {} if recheck is None else {key: decided.encode()}
        self.completion: dict[bytes, bytes | None] = {key: decided.becoming("committed").encode()}
        if self._decides_first and not rows.repeatable:
            self._progress = progress_key(job_id)
            self.completion[self._progress] = None

    def check(self, latest: EngineSnapshot) -> None:
        if self._recheck is not None:
            self._recheck(latest)
            self._rows.check(latest, decides_first=self._decides_first)
        else:
            for _ in self._rows.chunks(latest, self._after):  # an unreadable row is found before the next is written
                continue

    def chunks(self, latest: EngineSnapshot) -> Iterator[dict[bytes, bytes | None]]:
        for changes, last in self._rows.chunks(latest, self._after):
            if self._progress is not None:
                changes[self._progress] = last
            yield changes
