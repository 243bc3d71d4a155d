"""Write jobs: staged anywhere as sorted runs, committed once, all or nothing."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from structable.backends.base.job_rules import conformed_batches, job_of_another
from structable.backends.ordered.engine import (
    BulkApplication,
    Engine,
    EngineSnapshot,
    Pair,
    RunLostError,
    SchemaChangedError,
    WriteSet,
)
from structable.backends.ordered.schema.catalog import Catalog, garbage_key, named_schema, read_schema, schema_key
from structable.backends.ordered.schema.garbage import GarbageCollector
from structable.backends.ordered.schema.job_records import (
    JobRecord,
    job_key,
    list_jobs,
    progress_key,
    read_job,
    runs_owner,
)
from structable.backends.ordered.schema.spaces import allocate_space
from structable.backends.ordered.table_schema import TableSchema
from structable.spi import (
    CommitOutcomeUnknownError,
    CommitResult,
    DataCorruptionError,
    StagedWrite,
    StorageUnavailableError,
    StructableError,
    TableSpecification,
    TransactionConflictError,
    UnsupportedOperationError,
    WriteJob,
    WriteMode,
)
from structable.spi.rules.jobs import JOB_RETENTION_SECONDS, check_job
from structable.spi.rules.keyless import check_mode

from .commit import JobCommit, job_rows
from .orders import JobEndedError, JobOrder, open_job, required_schema
from .recovery import JobRecovery
from .rows import PlainRows, is_repeatable
from .staged import StagedRows, StagedRuns, of_kinds, run_order

if TYPE_CHECKING:
    from pyarrow import RecordBatch

__all__ = ["WriteJobs"]

Result = TypeVar("Result")

_log = logging.getLogger("structable.ordered")
_RUN_ROWS = 65_536
_RUN_BYTES = 64 << 20
_ATTEMPTS = 20


class WriteJobs:
    """The write jobs of one storage."""

    def __init__(self, engine: Engine, catalog: Catalog, garbage: GarbageCollector) -> None:
        self._engine = engine
        self._catalog = catalog
        self._garbage = garbage
        self._next_sweep = 0.0
        self.recovery = JobRecovery(
            engine,
            lambda job_id, record, after: self._job_commit(job_id, record, None, after),
            self._change,
            self._drop_runs,
        )

    def procedures(self) -> dict[str, Callable[[bytes], bytes]]:
        """Return the procedures that engines run in the best process; see `Engine.delegate` and `Engine.start`."""
        return {"commit_job": self._commit_job, "abort_job": self._abort_job, "recover": self._recover}

    def begin(self, table: str, mode: WriteMode | str, job_id: str) -> WriteJob:
        mode = check_job(mode, job_id)

        def body(snapshot: EngineSnapshot, changes: WriteSet) -> WriteJob:
            schema = required_schema(snapshot, table)
            self._check_mode(schema.spec, mode)
            record = read_job(snapshot, job_id)
            if record is not None and not record.belongs_to(named_schema(snapshot, record.table)):
                _discard_loading(record, changes)
                if record.state == "applying":
                    changes.writes[progress_key(job_id)] = None
                record = None
            if record is None:
                opened = JobRecord("open", table, schema.identity, mode, time.time())
                changes.writes[job_key(job_id)] = opened.encode()
            elif (record.table, record.mode) != (table, mode):
                raise job_of_another(job_id, record.table, record.mode)
            return WriteJob(table, mode, job_id, schema.encode(), record is not None and record.committed)

        job = self._change(body)
        now = time.monotonic()
        if now >= self._next_sweep:
            # Not with each job: a week of small jobs leaves many records.
            self._next_sweep = now + _GRACE_SECONDS
            try:
                self._sweep()
            except (StructableError, OSError) as error:
                # The job has begun; the next sweep removes the rest.
                _log.warning("removing what ended write jobs left failed and will be repeated: %s", error)
        return job

    def _check_mode(self, spec: TableSpecification, mode: WriteMode) -> None:
        check_mode(spec, mode)
        if self._engine.bulk_application is BulkApplication.UNORDERED and not is_repeatable(spec, mode):
            raise UnsupportedOperationError(
                f"table {spec.name!r} takes no write job of mode {mode} in this store: after a crash a part of its "
                "rows could be merged twice"
            )

    def stage(self, job: WriteJob, partition: int, attempt: int, batches: Iterable[RecordBatch]) -> StagedWrite:
        from structable.backends.ordered.arrow.encoder import ArrowEncoder

        binding = self._catalog.bind(job.state)
        owner = runs_owner(job.job_id, binding.schema.identity)
        order = run_order(binding, job.mode)
        encoder: ArrowEncoder | None = None
        columns: tuple[str, ...] = ()
        runs: list[bytes] = []
        buffered: list[Pair] = []
        size = rows = 0
        for conformed, kinds in conformed_batches(job, binding.spec, batches):
            if encoder is None:
                columns = tuple(conformed.schema.names)
                encoder = ArrowEncoder(binding.schema, columns)
            pairs = encoder.encode(conformed)
            if kinds is not None:
                pairs = of_kinds(pairs, kinds)
            rows += len(pairs)
            size += conformed.nbytes
            buffered.extend(pairs)
            if len(buffered) >= _RUN_ROWS or size >= _RUN_BYTES:
                runs.append(self._write_run(owner, buffered, order))
                buffered, size = [], 0
        if buffered:
            runs.append(self._write_run(owner, buffered, order))
        staged = StagedRows(binding.schema, columns, tuple(runs))
        return StagedWrite(job.job_id, partition, attempt, rows, staged.encode())

    def _write_run(self, owner: str, pairs: list[Pair], order: Callable[[Pair], bytes]) -> bytes:
        pairs.sort(key=order)  # stable: of two rows with one key the later one stays last
        return self._engine.write_run(owner, iter(pairs))

    def commit(self, job: WriteJob, staged: Iterable[StagedWrite]) -> CommitResult:
        applied: bool = json.loads(self._engine.delegate("commit_job", JobOrder.of(job, staged).encode()))
        return CommitResult(applied)

    def abort(self, job: WriteJob) -> None:
        self._engine.delegate("abort_job", JobOrder.of(job).encode())

    def _abort_job(self, argument: bytes) -> bytes:
        order = JobOrder.decode(argument)

        def body(snapshot: EngineSnapshot, changes: WriteSet) -> bool:
            record = read_job(snapshot, order.job_id)
            if record is None:
                record = JobRecord("open", order.table, order.identity, order.mode, time.time())
            if record.committed or (record.table, record.identity) != (order.table, order.identity):
                return False
            _discard_loading(record, changes)
            changes.writes[job_key(order.job_id)] = record.becoming("aborted").encode()
            return True

        if self._change(body):
            self._drop_runs(runs_owner(order.job_id, order.identity))
            self._garbage.notify()
        return b""

    def _commit_job(self, argument: bytes) -> bytes:
        order = JobOrder.decode(argument)
        try:
            with closing(self._engine.begin(True)) as snapshot:
                record, schema = open_job(snapshot, order)
            if record.mode is WriteMode.OVERWRITE:
                self._overwrite(order)
            else:
                self._apply(order, record, schema)
        except JobEndedError as ended:
            return json.dumps(ended.record.decider == order.call).encode()
        except (TransactionConflictError, StorageUnavailableError):
            # Another caller may have ended the job meanwhile, and dropped the runs that this call was reading.
            found = self._ended(order)
            if found is None:
                raise
            applied = found.decider == order.call
        else:
            applied = True
        self._drop_runs(runs_owner(order.job_id, order.identity))
        return json.dumps(applied).encode()

    def _drop_runs(self, owner: str) -> None:
        # The job has ended as requested, and no failure may hide that: a sweep drops the rest.
        with suppress(StructableError, OSError):
            self._engine.drop_runs(owner)

    def _ended(self, order: JobOrder) -> JobRecord | None:
        """Return the record of a job if it is committed by now; raise as `open_job` does if it ended otherwise."""
        with closing(self._engine.begin(True)) as snapshot:
            try:
                open_job(snapshot, order)
            except JobEndedError as ended:
                return ended.record if ended.record.state == "committed" else None
        return None

    def _apply(self, order: JobOrder, record: JobRecord, schema: TableSchema) -> None:
        raw_schema = schema.encode()

        def recheck(latest: EngineSnapshot) -> None:
            _, current = open_job(latest, order)
            if current.encode() != raw_schema:
                raise _changed(order)

        decided = replace(record.becoming("applying", order.call), staged=order.staged, schema=raw_schema)
        try:
            self._engine.commit_bulk(self._job_commit(order.job_id, decided, recheck, b""))
        except (RunLostError, DataCorruptionError) as error:
            raise type(error)(f"the write job {order.job_id!r} of table {order.table!r}: {error}") from error

    def _job_commit(
        self, job_id: str, decided: JobRecord, recheck: Callable[[EngineSnapshot], None] | None, after: bytes
    ) -> JobCommit:
        binding = self._catalog.bind(decided.schema)
        rows = job_rows(self._engine, binding, decided.mode, decided.staged)
        application = self._engine.bulk_application
        return JobCommit(job_id, decided, rows, binding.schema.space, application, recheck, after)

    def _recover(self, _: bytes) -> bytes:
        return json.dumps(self.recovery.recover()).encode()

    def _overwrite(self, order: JobOrder) -> None:
        """Load the rows into a space of their own, then let the table point to it."""
        table, key = order.table, job_key(order.job_id)

        def prepare(snapshot: EngineSnapshot, changes: WriteSet) -> TableSchema:
            record, schema = open_job(snapshot, order)
            _discard_loading(record, changes)
            space = allocate_space(self._engine, snapshot, changes.writes)
            changes.writes[key] = replace(record.becoming("open"), loading=space).encode()
            return replace(schema, space=space)

        loaded = self._change(prepare)
        binding = self._catalog.bind(loaded.encode())
        runs = StagedRuns(
            self._engine, binding, WriteMode.OVERWRITE, [StagedRows.decode(state) for state in order.staged]
        )
        rows = PlainRows(binding, runs, WriteMode.OVERWRITE)

        def publish(snapshot: EngineSnapshot, changes: WriteSet) -> None:
            record, current = open_job(snapshot, order)
            if record.loading != loaded.space:
                raise TransactionConflictError(
                    f"the job {order.job_id!r} was committed by two callers at once; the other goes on"
                )
            if replace(current, space=loaded.space) != loaded:
                raise _changed(order)
            changes.writes[schema_key(table)] = loaded.encode()
            changes.writes[garbage_key(current.space)] = b"\x01"
            changes.writes[key] = record.becoming("committed", order.call).encode()
            changes.changed_spaces.update((current.space, loaded.space))

        try:
            rows.check_sizes()
            for changed, _ in rows.chunks(None):
                self._engine.commit(None, WriteSet(derived=changed))
            self._change(publish, attempts=1)
        except CommitOutcomeUnknownError:
            raise  # the table may be there
        except (StructableError, JobEndedError):
            with suppress(StructableError, SchemaChangedError):  # the next attempt, or the sweep, finds the record
                self._discard_space(table, loaded.space)
            raise
        self._garbage.notify()

    def _discard_space(self, table: str, space: bytes) -> None:
        """Schedule the collection of a space loaded for nothing, even if discarded meanwhile."""

        def body(snapshot: EngineSnapshot, changes: WriteSet) -> None:
            schema = read_schema(snapshot, table)
            if schema is None or schema.space != space:
                changes.writes[garbage_key(space)] = b"\x01"

        self._change(body)
        self._garbage.notify()

    def _sweep(self) -> None:
        """Drop records that are too old, and the runs of jobs that have ended or died."""
        now = time.time()

        def body(snapshot: EngineSnapshot, changes: WriteSet) -> set[str]:
            alive: set[str] = set()
            for job_id, record in list_jobs(snapshot):
                # The owner of runs from an earlier version is the job id alone.
                owners = {runs_owner(job_id, record.identity), job_id}
                if record.state == "applying":
                    alive |= owners
                elif now - record.time <= JOB_RETENTION_SECONDS:
                    if record.state == "open":
                        alive |= owners
                elif record.state != "open" or all(now - runs.get(one, 0.0) > JOB_RETENTION_SECONDS for one in owners):
                    changes.writes[job_key(job_id)] = None
                    _discard_loading(record, changes)
                else:
                    alive |= owners
            return alive

        runs = self._engine.jobs_with_runs()
        alive = self._change(body)
        for owner in runs.keys() - alive:
            # A job may have begun and staged rows since the records were read.
            if now - runs[owner] > _GRACE_SECONDS:
                self._engine.drop_runs(owner)
                _log.info("removed staged rows of the write job %r, which has ended or was given up", owner)

    def _change(self, body: Callable[[EngineSnapshot, WriteSet], Result], *, attempts: int = _ATTEMPTS) -> Result:
        for attempt in range(1, attempts + 1):
            snapshot = self._engine.begin(False)
            try:
                changes = WriteSet()
                result = body(snapshot, changes)
                if changes.writes:
                    self._engine.commit(snapshot, changes)
                return result
            except (TransactionConflictError, SchemaChangedError):
                if attempt == attempts:
                    raise
            finally:
                snapshot.close()
            time.sleep(_PAUSE * attempt)
        raise AssertionError("unreachable: the last attempt returns or raises")


_GRACE_SECONDS = 60.0
_PAUSE = 0.002


def _changed(order: JobOrder) -> TransactionConflictError:
    return TransactionConflictError(f"table {order.table!r} was changed as the job {order.job_id!r} was committed")


def _discard_loading(record: JobRecord, changes: WriteSet) -> None:
    """Schedule the collection of the space that an earlier attempt to commit loaded."""
    if record.loading:
        changes.writes[garbage_key(record.loading)] = b"\x01"
