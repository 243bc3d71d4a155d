"""`JobRecovery`: completes jobs that were decided before a crash, and sets aside the ones that it cannot complete."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

from structable.backends.ordered.engine import EngineSnapshot, OrderedMap, RunLostError, WriteSet
from structable.backends.ordered.schema.catalog import CatalogChanges, named_schema
from structable.backends.ordered.schema.job_records import (
    JobRecord,
    job_key,
    list_jobs,
    progress_key,
    read_job,
    runs_owner,
)
from structable.backends.ordered.schema.stream_records import StreamRecord, list_streams
from structable.backends.ordered.schema.stuck_jobs import StuckJob, list_stuck, stuck_key
from structable.spi import DataCorruptionError, Finding, FindingLevel, StorageUnavailableError

from .commit import JobCommit

_log = logging.getLogger("structable.ordered")


class JobRecovery:
    """Recovery of decided jobs after a crash.

    `commit_of` returns the commit of a decided job, given its encoded progress; `change` runs a transaction on the
    catalog, and `drop_runs` drops the runs of an ended job without ever raising.
    """

    def __init__(
        self,
        engine: OrderedMap,
        commit_of: Callable[[str, JobRecord, bytes], JobCommit],
        change: CatalogChanges,
        drop_runs: Callable[[str], None],
    ) -> None:
        self._engine = engine
        self._commit_of = commit_of
        self._change = change
        self._drop_runs = drop_runs

    def recover(self) -> list[str]:
        """Complete decided jobs; return descriptions of jobs set aside because their rows are lost or damaged.

        Such a job makes its own table unreadable, and no other. Raises `StorageUnavailableError` if a job cannot be
        completed now, but perhaps later.
        """
        with closing(self._engine.begin(True)) as snapshot:
            decided = [(job_id, record) for job_id, record in list_jobs(snapshot) if record.state == "applying"]
            stuck = {job.job_id for job in list_stuck(snapshot)}
            progress = {job_id: snapshot.get(progress_key(job_id)) or b"" for job_id, _ in decided}
            gone = {one for one, record in decided if not record.belongs_to(named_schema(snapshot, record.table))}
        found: list[str] = []
        for job_id, record in decided:
            if job_id in gone:
                self._give_up(job_id, record)
                continue
            try:
                self._engine.commit_bulk(self._commit_of(job_id, record, progress[job_id]))
            except (RunLostError, DataCorruptionError) as error:
                job = StuckJob(record.table, job_id, record.identity, str(error))
                self._set_apart(job)
                if job_id not in stuck:
                    found.append(f"table {job.table!r} is not whole: {job.text}")
                    _log.error("%s", found[-1])
                continue
            except StorageUnavailableError as error:
                raise StorageUnavailableError(
                    f"the write job {job_id!r} of table {record.table!r}, which was decided, cannot be completed yet: "
                    f"{error}"
                ) from error
            _log.warning("completed the write job %r of table %r, which a crash interrupted", job_id, record.table)
            if job_id in stuck:
                self._change(partial(_make_whole, record=record))
            self._drop_runs(runs_owner(job_id, record.identity))
        return found

    def diagnose(self) -> Iterator[Finding]:
        with closing(self._engine.begin(True)) as snapshot:
            stuck = list(_list_present(snapshot))
            streams = list(_examined_streams(snapshot))
        for job in stuck:
            yield Finding(FindingLevel.PROBLEM, f"table {job.table}", f"{job.text}; --repair gives the job up")
        yield from streams

    def repair(self) -> Iterator[Finding]:
        """Give up the jobs that cannot be completed: their tables keep the rows that are in place."""
        with closing(self._engine.begin(True)) as snapshot:
            stuck = [(job, read_job(snapshot, job.job_id)) for job in _list_present(snapshot)]
        for job, record in stuck:
            if record is None:
                continue
            self._give_up(job.job_id, record)
            text = (
                f"the write job {job.job_id!r} was given up: it may have written some of its rows and not others; "
                "write them again"
            )
            if record.stream:
                text += ", in a job with an id: the batch counts as committed"
            yield Finding(FindingLevel.NOTE, f"table {job.table}", text)

    def _set_apart(self, job: StuckJob) -> None:
        def body(snapshot: EngineSnapshot, changes: WriteSet) -> None:
            schema = named_schema(snapshot, job.table)
            if schema is not None and snapshot.get(stuck_key(job.table)) != job.encode():
                changes.writes[stuck_key(job.table)] = job.encode()
                changes.changed_spaces.add(schema.space)

        self._change(body)

    def _give_up(self, job_id: str, record: JobRecord) -> None:
        def body(snapshot: EngineSnapshot, changes: WriteSet) -> None:
            _make_whole(snapshot, changes, record)
            changes.writes[job_key(job_id)] = None if record.stream else record.becoming("aborted").encode()
            changes.writes[progress_key(job_id)] = None

        self._change(body)
        self._drop_runs(runs_owner(job_id, record.identity))


def _list_present(snapshot: EngineSnapshot) -> Iterator[StuckJob]:
    """Yield the stuck jobs of existing tables; a job of a dropped table does not count for a new one of its name."""
    for job in list_stuck(snapshot):
        schema = named_schema(snapshot, job.table)
        if schema is not None and schema.identity == job.identity:
            yield job


def _make_whole(snapshot: EngineSnapshot, changes: WriteSet, record: JobRecord) -> None:
    changes.writes[stuck_key(record.table)] = None
    schema = named_schema(snapshot, record.table)
    if schema is not None:
        changes.changed_spaces.add(schema.space)


def _examined_streams(snapshot: EngineSnapshot) -> Iterator[Finding]:
    """Yield the findings about the streams that write to existing tables."""
    counts: Counter[str] = Counter()
    for _, stream, raw in list_streams(snapshot):
        try:
            record = StreamRecord.decode(stream, raw)
        except DataCorruptionError as error:
            text = f"{error}; its table takes no batch of it; write under the name of another stream"
            yield Finding(FindingLevel.PROBLEM, "streams", text)
            continue
        counts[record.table] += record.belongs_to(named_schema(snapshot, record.table))
    for table, count in sorted(counts.items()):
        if count:
            text = f"{count:,} stream{'s' * (count != 1)} of write jobs, each with the number of its last batch"
            yield Finding(FindingLevel.OK, f"table {table}", text)
