"""`JobSweep`: removes the remains of ended and dead write jobs: records, staged rows, loaded spaces."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from structable.backends.ordered.engine import Engine, EngineSnapshot, StagedRun, WriteSet
from structable.backends.ordered.schema.catalog import CatalogChanges, list_schemas
from structable.backends.ordered.schema.job_records import (
    JobRecord,
    discard_loading,
    earlier_runs_owner,
    job_key,
    list_jobs,
    runs_owner,
)
from structable.backends.ordered.schema.stream_records import StreamRecord, list_streams, stream_key
from structable.spi import DataCorruptionError, StructableError
from structable.spi.authors import JOB_RETENTION_SECONDS

_log = logging.getLogger("structable.ordered")
_PAUSE_SECONDS = 60.0


class JobSweep:
    """Sweeps of one storage.

    The record of an ended job is removed after 7 days, and so is the record of an open one if no rows were staged in
    that time. The record of a stream is removed only if its table is gone: older software may have dropped the table.
    """

    def __init__(self, engine: Engine, change: CatalogChanges) -> None:
        self._engine = engine
        self._change = change
        self._next = 0.0

    def run_if_due(self) -> None:
        """Sweep at most once a minute; a failure is logged, and repeated by the next sweep."""
        now = time.monotonic()
        if now < self._next:
            return
        # Not with each job: a week of small jobs leaves many records.
        self._next = now + _PAUSE_SECONDS
        try:
            self._sweep()
        except (StructableError, OSError) as error:
            _log.warning("removing what ended write jobs left failed and will be repeated: %s", error)

    def _sweep(self) -> None:
        # The runs before the records: a job that begins, or begins again, in between has other runs.
        runs = self._engine.find_runs()
        alive = self._change(lambda snapshot, changes: self._sweep_records(snapshot, changes, runs))
        dead = [run for run in runs if run.owner not in alive]
        if dead:
            self._engine.drop_runs(dead)
            _log.info("removed staged rows of write jobs that ended or were given up: %d runs", len(dead))

    def _sweep_records(self, snapshot: EngineSnapshot, changes: WriteSet, runs: Iterable[StagedRun]) -> set[str]:
        """Remove records, and return the owners of runs that are still needed."""
        now, alive = time.time(), set[str]()
        active = {run.owner for run in runs if now - run.time <= JOB_RETENTION_SECONDS}
        streams = _living_streams(snapshot, changes)
        for job_id, record in list_jobs(snapshot):
            owners = {runs_owner(job_id, record.identity), earlier_runs_owner(job_id)}
            if record.state == "applying":
                alive |= owners
            elif _is_overtaken(record, streams):
                changes.writes[job_key(job_id)] = None
                discard_loading(record, changes)
            elif now - record.time <= JOB_RETENTION_SECONDS:
                if record.state == "open":
                    alive |= owners
            elif record.state != "open" or not owners & active:
                changes.writes[job_key(job_id)] = None
                discard_loading(record, changes)
            else:
                alive |= owners
        return alive


def _living_streams(snapshot: EngineSnapshot, changes: WriteSet) -> dict[bytes, StreamRecord]:
    """Return the records of the streams of existing tables, by key, and remove the others."""
    schemas = {schema.spec.name: schema for schema in list_schemas(snapshot)}
    living: dict[bytes, StreamRecord] = {}
    for key, stream, raw in list_streams(snapshot):
        try:
            record = StreamRecord.decode(stream, raw)
        except DataCorruptionError as error:
            _log.warning("%s", error)  # it refuses batches of that stream alone
            continue
        if record.belongs_to(schemas.get(record.table)):
            living[key] = record
        else:
            changes.writes[key] = None
    return living


def _is_overtaken(record: JobRecord, streams: dict[bytes, StreamRecord]) -> bool:
    """Return whether a job is a batch that counts as committed, by this batch or a higher one."""
    last = None if record.stream is None else streams.get(stream_key(record.table, record.stream))
    return last is not None and last.identity == record.identity and record.batch <= last.batch
