"""Write jobs: staged anywhere as sorted runs, committed once, all or nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import replace

from structable.backends.base.job_rules import job_of_another, overwritten_feed
from structable.backends.ordered.engine import (
    BulkApplication,
    Engine,
    EngineSnapshot,
    Pair,
    RunLostError,
    SchemaChangedError,
    StagedRun,
    WriteSet,
)
from structable.backends.ordered.schema.catalog import (
    Catalog,
    CatalogChanges,
    garbage_key,
    named_schema,
    read_schema,
    schema_key,
)
from structable.backends.ordered.schema.garbage import GarbageCollector
from structable.backends.ordered.schema.job_records import (
    JobProgress,
    JobRecord,
    discard_loading,
    job_key,
    job_name,
    progress_key,
    read_job,
    runs_owner,
)
from structable.backends.ordered.schema.spaces import allocate_space
from structable.backends.ordered.schema.stream_records import is_committed
from structable.backends.ordered.table_schema import TableSchema
from structable.spi import (
    CommitOutcomeUnknownError,
    CommitResult,
    DataCorruptionError,
    StagedWrite,
    StorageUnavailableError,
    StructableError,
    TransactionClosedError,
    TransactionConflictError,
    UnsupportedOperationError,
    WriteJob,
    WriteMode,
)
from structable.spi.authors import StagedData, check_mode, rules_digest

from .commit import JobCommit, job_rows
from .encoding import encoded_batches
from .orders import JobEndedError, JobOrder, living_schema, open_job, required_schema
from .recovery import JobRecovery
from .rows import is_repeatable
from .staged import StagedRows, run_order
from .sweeping import JobSweep

_RUN_ROWS = 65_536
_RUN_BYTES = 64 << 20
_FRESH_SECONDS = 24 * 3600


class WriteJobs:
    """The write jobs of one storage."""

    def __init__(self, engine: Engine, catalog: Catalog, garbage: GarbageCollector) -> None:
        self._engine = engine
        self._catalog = catalog
        self._garbage = garbage
        self._change = CatalogChanges(engine)
        self._sweep = JobSweep(engine, self._change)
        self.recovery = JobRecovery(
            engine,
            lambda job_id, record, progress: self._job_commit(job_id, record, None, progress),
            self._change,
            self._drop_runs,
        )

    def procedures(self) -> dict[str, Callable[[bytes], bytes]]:
        """Return the procedures that engines run in the best process; see `Engine.delegate` and `Engine.start`."""
        return {"commit_job": self._commit_job, "abort_job": self._abort_job, "recover": self._recover}

    def begin(self, job: WriteJob) -> WriteJob:
        """Begin a job as `requested_job` returned it."""
        name = job_name(job)

        def body(snapshot: EngineSnapshot, changes: WriteSet) -> WriteJob:
            schema = required_schema(snapshot, job.table)
            check_mode(schema.spec, job.mode)
            found = replace(job, state=schema.encode())
            if is_committed(snapshot, schema, job.stream, job.batch):
                return replace(found, committed=True)
            record = read_job(snapshot, name)
            if record is not None and not record.belongs_to(named_schema(snapshot, record.table)):
                discard_loading(record, changes)
                if record.state == "applying":
                    changes.writes[progress_key(name)] = None
                record = None
            if record is not None and job.stream is not None and (record.state, record.mode) != ("open", job.mode):
                discard_loading(record, changes)
                record = None
            if record is None or not record.committed:
                self._require_possible(schema, job.mode)
            if record is None:
                changes.writes[job_key(name)] = JobOrder.of(found).opened().encode()
            elif (record.table, record.mode) != (job.table, job.mode):
                raise job_of_another(job.job_id, record.table, record.mode)
            elif record.state == "open" and time.time() - record.time > _FRESH_SECONDS:
                changes.writes[job_key(name)] = replace(record, time=time.time()).encode()  # or it may be swept
            return replace(found, committed=record is not None and record.committed)

        begun = self._change(body)
        self._sweep.run_if_due()
        return begun

    def _require_possible(self, schema: TableSchema, mode: WriteMode) -> None:
        """Raise UnsupportedOperationError for a job that the present table does not accept."""
        if mode is WriteMode.OVERWRITE and schema.feed is not None:
            raise overwritten_feed(schema.spec.name)
        if self._engine.traits.bulk_application is BulkApplication.UNORDERED and not is_repeatable(schema, mode):
            raise UnsupportedOperationError(
                f"table {schema.spec.name!r} takes no write job of mode {mode} in this store: after a crash a part of "
                "its rows could be merged, or added to its change feed, twice"
            )

    def stage(self, job: WriteJob, partition: int, attempt: int, batches: StagedData) -> StagedWrite:
        if job.committed:
            return StagedWrite(job.job_id, partition, attempt, 0)
        binding = self._catalog.bind(self._newest(job))
        owner = runs_owner(job_name(job), binding.schema.identity)
        order = run_order(binding, job.mode)
        columns: tuple[str, ...] = ()
        runs: list[bytes] = []
        buffered: list[Pair] = []
        size = rows = 0
        for batch in encoded_batches(job, binding, batches):
            columns = batch.columns
            rows += len(batch.pairs)
            size += batch.size
            buffered.extend(batch.pairs)
            if len(buffered) >= _RUN_ROWS or size >= _RUN_BYTES:
                runs.append(self._write_run(owner, buffered, order))
                buffered, size = [], 0
        if buffered:
            runs.append(self._write_run(owner, buffered, order))
        staged = StagedRows(binding.schema, columns, tuple(runs), job.mode)
        digest = rules_digest(binding.spec.rules)
        return StagedWrite(job.job_id, partition, attempt, rows, staged.encode(), digest)

    def _newest(self, job: WriteJob) -> bytes:
        """Return the present schema of a job's table; if the table is gone, the schema at the job's beginning."""
        raw = self._engine.look(lambda snapshot: snapshot.get(schema_key(job.table)))
        begun = TableSchema.decode(job.state)
        if raw is None or (now := TableSchema.decode(raw)).identity != begun.identity or now.spec.name != job.table:
            return job.state
        return raw

    def _write_run(self, owner: str, pairs: list[Pair], order: Callable[[Pair], bytes]) -> bytes:
        pairs.sort(key=order)  # stable: the later of two rows with one key stays last
        return self._engine.write_run(owner, iter(pairs))

    def commit(self, job: WriteJob, staged: Iterable[StagedWrite]) -> CommitResult:
        order = JobOrder.of(job, staged)
        if job.committed:  # its record may have been swept since
            self._engine.look(lambda snapshot: living_schema(snapshot, order))
            return CommitResult(False)
        applied, missing = json.loads(self._engine.delegate("commit_job", order.encode()))
        return CommitResult(applied, missing)

    def abort(self, job: WriteJob) -> None:
        self._engine.delegate("abort_job", JobOrder.of(job).encode())

    def _abort_job(self, argument: bytes) -> bytes:
        order = JobOrder.decode(argument)
        # Found before the abort: runs staged after a batch has begun again are not the aborted job's.
        runs = self._engine.find_runs(runs_owner(order.job_id, order.identity))

        def body(snapshot: EngineSnapshot, changes: WriteSet) -> bool:
            record = read_job(snapshot, order.job_id)
            if record is None:
                record = order.opened()
            if record.committed or (record.table, record.identity) != (order.table, order.identity):
                return False
            if is_committed(snapshot, named_schema(snapshot, order.table), order.stream, order.batch):
                return False
            discard_loading(record, changes)
            changes.writes[job_key(order.job_id)] = record.becoming("aborted").encode()
            return True

        if self._change(body):
            self._drop(runs)
            self._garbage.notify()
        return b""

    def _commit_job(self, argument: bytes) -> bytes:
        order = JobOrder.decode(argument)
        try:
            with closing(self._engine.begin(True)) as snapshot:
                record, schema = open_job(snapshot, order)
            self._require_possible(schema, record.mode)
            if record.mode is WriteMode.OVERWRITE:
                self._overwrite(order)
                result = CommitResult(True)
            else:
                result = CommitResult(True, self._apply(order, record, schema))
        except JobEndedError as ended:
            result = order.result(ended)
            if not ended.whole:
                return _encoded(result)
        except (TransactionConflictError, StorageUnavailableError) as error:
            # Another caller may have ended the job and dropped the runs that this call was reading.
            found = self._ended(order)
            if found is None:
                if isinstance(error, RunLostError):
                    raise _rows_lost(order, error) from error
                raise
            result = order.result(found)
        self._drop_runs(runs_owner(order.job_id, order.identity))
        return _encoded(result)

    def _drop_runs(self, owner: str) -> None:
        """Drop all runs of a job that never begins again."""
        with suppress(StructableError, OSError):
            self._drop(self._engine.find_runs(owner))

    def _drop(self, runs: list[StagedRun]) -> None:
        # The job has ended as requested, and no failure may hide that: a sweep drops the rest.
        with suppress(StructableError, OSError):
            self._engine.drop_runs(runs)

    def _ended(self, order: JobOrder) -> JobEndedError | None:
        """Return the end of a job that is committed with all its rows, else None; raise as `open_job` otherwise."""
        with closing(self._engine.begin(True)) as snapshot:
            try:
                open_job(snapshot, order)
            except JobEndedError as ended:
                return ended if ended.whole else None
        return None

    def _apply(self, order: JobOrder, record: JobRecord, schema: TableSchema) -> int:
        """Commit a job in place, and return the number of missing keys."""
        raw_schema = schema.encode()

        def recheck(latest: EngineSnapshot) -> None:
            _, current = open_job(latest, order)
            if current.encode() != raw_schema:
                raise _changed(order)

        decided = replace(record.becoming("applying", order.call), staged=order.staged, schema=raw_schema)
        commit = self._job_commit(order.job_id, decided, recheck, b"", skips_missing=order.skips_missing)
        try:
            self._engine.commit_bulk(commit)
        except DataCorruptionError as error:
            raise DataCorruptionError(f"the write job {order.job_id!r} of table {order.table!r}: {error}") from error
        return commit.missing

    def _job_commit(
        self,
        job_id: str,
        decided: JobRecord,
        recheck: Callable[[EngineSnapshot], None] | None,
        progress: bytes,
        *,
        skips_missing: bool = True,
    ) -> JobCommit:
        binding = self._catalog.bind(decided.schema)
        rows = job_rows(self._engine, binding, decided.mode, decided.staged, skips_missing=skips_missing)
        application, done = self._engine.traits.bulk_application, JobProgress.decode(progress, binding.schema)
        return JobCommit(job_id, decided, rows, binding.schema, application, recheck, done)

    def _recover(self, _: bytes) -> bytes:
        return json.dumps(self.recovery.recover()).encode()

    def _overwrite(self, order: JobOrder) -> None:
        """Load the rows into a new space, then let the table point to it.

        Each of several callers loads a space: none can know whether the others are alive.
        """
        table, key = order.table, job_key(order.job_id)

        def prepare(snapshot: EngineSnapshot, changes: WriteSet) -> TableSchema:
            record, schema = open_job(snapshot, order)
            self._require_possible(schema, record.mode)
            space = allocate_space(self._engine, snapshot, changes.writes)
            changes.writes[key] = replace(record.becoming("open"), loading=(*record.loading, space)).encode()
            return replace(schema, space=space)

        loaded = self._change(prepare)
        binding = self._catalog.bind(loaded.encode())
        rows = job_rows(self._engine, binding, WriteMode.OVERWRITE, order.staged)

        def publish(snapshot: EngineSnapshot, changes: WriteSet) -> None:
            record, current = open_job(snapshot, order)
            if loaded.space not in record.loading:
                raise TransactionConflictError(f"the job {order.job_id!r} was aborted and began again in another call")
            if replace(current, space=loaded.space) != loaded:
                raise _changed(order)
            discard_loading(record.without(loaded.space), changes)
            changes.writes[schema_key(table)] = loaded.encode()
            changes.writes[garbage_key(current.space)] = b"\x01"
            decided = record.becoming("applying", order.call)
            changes.writes |= {key: decided.once_whole(), **decided.outcome()}
            changes.changed_spaces.update((current.space, loaded.space))

        try:
            for chunk in rows.chunks(None):
                self._engine.commit(None, WriteSet(derived=chunk.changes))
            self._change(publish)
        except CommitOutcomeUnknownError:
            raise  # the table may exist
        except (StructableError, JobEndedError):
            with suppress(StructableError, SchemaChangedError):  # the next attempt, or the sweep, finds the record
                self._discard_space(order, loaded.space)
            raise
        self._garbage.notify()

    def _discard_space(self, order: JobOrder, space: bytes) -> None:
        """Schedule the collection of an unused loaded space, even if it was already discarded."""

        def body(snapshot: EngineSnapshot, changes: WriteSet) -> None:
            schema, record = read_schema(snapshot, order.table), read_job(snapshot, order.job_id)
            if record is not None and space in record.loading:
                changes.writes[job_key(order.job_id)] = record.without(space).encode()
            if schema is None or schema.space != space:
                changes.writes[garbage_key(space)] = b"\x01"

        self._change(body)
        self._garbage.notify()


def _rows_lost(order: JobOrder, error: RunLostError) -> TransactionClosedError:
    return TransactionClosedError(
        f"the write job {order.job_id!r} of table {order.table!r} was aborted and began again, or its staged rows were "
        f"lost; begin it and stage them again ({error})"
    )


def _changed(order: JobOrder) -> TransactionConflictError:
    return TransactionConflictError(f"table {order.table!r} was changed as the job {order.job_id!r} was committed")


def _encoded(result: CommitResult) -> bytes:
    return json.dumps([result.applied, result.missing]).encode()
