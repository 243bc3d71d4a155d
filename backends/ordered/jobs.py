"""Write jobs: staged anywhere as sorted runs, committed once, all or nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict, TypeVar, cast

from structable.spi import (
    CommitOutcomeUnknownError,
    DataCorruptionError,
    InvalidFieldError,
    StagedWrite,
    StorageUnavailableError,
    StructableError,
    TableNotFoundError,
    TransactionClosedError,
    TransactionConflictError,
    WriteJob,
    WriteMode,
)
from structable.spi.job_checks import JOB_RETENTION_SECONDS, check_job, check_staged_columns, last_attempts

from .catalog import Catalog, allocate_space, garbage_key, job_key, list_jobs, read_schema, schema_key
from .engine import Engine, EngineSnapshot, Pair, SchemaChangedError, WriteSet
from .garbage import GarbageCollector
from .job_commit import JobCommit, JobRows, StagedRows, job_record
from .schema import TableSchema

if TYPE_CHECKING:
    from pyarrow import RecordBatch

__all__ = ["WriteJobs"]

Result = TypeVar("Result")

_RUN_ROWS = 65_536
_RUN_BYTES = 64 << 20
_ATTEMPTS = 20


class _JobEndedError(Exception):
    """The job was found committed: there is nothing left to do."""


class WriteJobs:
    """The write jobs of one storage.

    Parameters
    ----------
    engine : Engine
        The store.
    catalog : Catalog
        Its tables.
    garbage : GarbageCollector
        Told what a job has replaced.
    """

    def __init__(self, engine: Engine, catalog: Catalog, garbage: GarbageCollector) -> None:
        self._engine = engine
        self._catalog = catalog
        self._garbage = garbage
        self._next_sweep = 0.0

    def procedures(self) -> dict[str, Callable[[bytes], bytes]]:
        """Return what engines run where they can do it best; see `Engine.delegate` and `Engine.start`."""
        return {"commit_job": self._commit_job, "abort_job": self._abort_job, "recover": self._recover}

    def begin(self, table: str, mode: WriteMode | str, job_id: str) -> WriteJob:
        """Record a job; see `Storage.begin_write`."""
        mode = check_job(mode, job_id)

        def body(snapshot: EngineSnapshot, changes: WriteSet) -> WriteJob:
            schema = _schema(snapshot, table)
            record = _record(snapshot, job_id)
            if record is None:
                changes.writes[job_key(job_id)] = job_record("open", table, mode)
            elif (record["table"], record["mode"]) != (table, str(mode)):
                owner = f"a job of mode {record['mode']} on table {record['table']!r}"
                raise ValueError(f"the job id {job_id!r} belongs to {owner}; take another")
            return WriteJob(table, mode, job_id, schema.encode())

        job = self._change(body)
        now = time.monotonic()
        if now >= self._next_sweep:
            # Not with each job: the records of a week of small ones are many.
            self._next_sweep = now + _GRACE_SECONDS
            self._sweep()
        return job

    def stage(self, job: WriteJob, partition: int, attempt: int, batches: Iterable[RecordBatch]) -> StagedWrite:
        """Store one attempt's rows as sorted runs; see `Storage.stage`."""
        from structable.spi.arrow import conform_batch

        from .arrow_codec import ArrowEncoder

        binding = self._catalog.bind(job.state)
        spec = binding.spec
        columns: tuple[str, ...] | None = None
        encoder: ArrowEncoder | None = None
        runs: list[bytes] = []
        buffered: list[Pair] = []
        size = rows = 0
        for batch in batches:
            conformed = conform_batch(spec, batch)
            names = tuple(conformed.schema.names)
            if encoder is None:
                check_staged_columns(job, spec.primary_key, names)
                columns = names
                encoder = ArrowEncoder(binding.schema, names)
            elif columns != names:
                raise InvalidFieldError(
                    spec.name, "batches", f"one has the columns {columns}, another {names}; all need the same"
                )
            pairs = encoder.encode(conformed)
            rows += len(pairs)
            size += conformed.nbytes
            buffered.extend(pairs)
            if len(buffered) >= _RUN_ROWS or size >= _RUN_BYTES:
                runs.append(self._write_run(job.job_id, buffered))
                buffered, size = [], 0
        if buffered:
            runs.append(self._write_run(job.job_id, buffered))
        document = {"schema": job.state.decode(), "columns": columns or (), "runs": [run.hex() for run in runs]}
        return StagedWrite(job.job_id, partition, attempt, rows, json.dumps(document).encode())

    def _write_run(self, job_id: str, pairs: list[Pair]) -> bytes:
        pairs.sort(key=lambda pair: pair[0])  # stable: of two rows of a key the later one stays the last
        return self._engine.write_run(job_id, iter(pairs))

    def commit(self, job: WriteJob, staged: Iterable[StagedWrite]) -> None:
        """Commit a job where the engine can do it best; see `Storage.commit_write`."""
        order = {"job_id": job.job_id, "staged": [one.state.decode() for one in last_attempts(job, staged)]}
        self._engine.delegate("commit_job", json.dumps(order).encode())

    def abort(self, job: WriteJob) -> None:
        """Abort a job; see `Storage.abort_write`."""
        order = {"job_id": job.job_id, "table": job.table, "mode": str(job.mode)}
        self._engine.delegate("abort_job", json.dumps(order).encode())

    def _abort_job(self, argument: bytes) -> bytes:
        order = json.loads(argument)
        job_id: str = order["job_id"]

        def body(snapshot: EngineSnapshot, changes: WriteSet) -> bool:
            record = _record(snapshot, job_id)
            if record is not None and record["state"] in ("applying", "committed"):
                return False
            if record is not None:
                _discard_loading(record, changes)
            changes.writes[job_key(job_id)] = job_record("aborted", order["table"], WriteMode(order["mode"]))
            return True

        if self._change(body):
            self._engine.drop_runs(job_id)
            self._garbage.notify()
        return b""

    def _commit_job(self, argument: bytes) -> bytes:
        order = json.loads(argument)
        job_id: str = order["job_id"]
        try:
            snapshot = self._engine.begin(True)
            try:
                record = _open_record(snapshot, job_id)
                schema = _schema(snapshot, record["table"])
            finally:
                snapshot.close()
            if WriteMode(record["mode"]) is WriteMode.OVERWRITE:
                self._overwrite(job_id, record, _staged_rows(order["staged"]))
            else:
                self._apply(job_id, record, schema, order["staged"], again=False)
        except _JobEndedError:
            return b""
        except (TransactionConflictError, StorageUnavailableError):
            # Another caller may have committed it meanwhile, and dropped the runs that this one was reading.
            if not self._is_committed(job_id):
                raise
        self._engine.drop_runs(job_id)
        return b""

    def _is_committed(self, job_id: str) -> bool:
        snapshot = self._engine.begin(True)
        try:
            record = _record(snapshot, job_id)
        finally:
            snapshot.close()
        return record is not None and record["state"] == "committed"

    def _apply(self, job_id: str, record: _Record, schema: TableSchema, staged: list[str], *, again: bool) -> None:
        """Commit a job in place; `again` after a crash, when it is decided and needs no checks."""
        raw_schema = schema.encode()
        mode = WriteMode(record["mode"])

        def recheck(latest: EngineSnapshot) -> None:
            _open_record(latest, job_id)
            if _schema(latest, record["table"]).encode() != raw_schema:
                raise TransactionConflictError(
                    f"table {record['table']!r} was changed as the job {job_id!r} was committed"
                )

        rows = JobRows(self._engine, self._catalog.bind(raw_schema), mode, _staged_rows(staged))
        decided = job_record("applying", record["table"], mode, staged=staged, schema=raw_schema.hex())
        self._engine.commit_bulk(
            JobCommit(
                rows,
                schema.space,
                {job_key(job_id): decided},
                {job_key(job_id): job_record("committed", record["table"], mode)},
                None if again else recheck,
            )
        )

    def _recover(self, _: bytes) -> bytes:
        """Finish the jobs that were decided but not completed when the store was last used."""
        snapshot = self._engine.begin(True)
        try:
            decided = [(job_id, record) for job_id, record in list_jobs(snapshot) if record["state"] == "applying"]
        finally:
            snapshot.close()
        for job_id, found in decided:
            record = cast(_Record, found)
            try:
                schema = TableSchema.decode(bytes.fromhex(record["schema"]))
            except (KeyError, ValueError) as error:
                raise DataCorruptionError(
                    f"the record of the write job {job_id!r} cannot be decoded: {error!r}"
                ) from error
            self._apply(job_id, record, schema, record["staged"], again=True)
            self._engine.drop_runs(job_id)
        return b""

    def _overwrite(self, job_id: str, record: _Record, staged: list[StagedRows]) -> None:
        """Load the rows into a space of their own, then let the table point to it."""
        mode, table = WriteMode.OVERWRITE, record["table"]

        def prepare(snapshot: EngineSnapshot, changes: WriteSet) -> TableSchema:
            current = _open_record(snapshot, job_id)
            _discard_loading(current, changes)
            space = allocate_space(self._engine, snapshot, changes.writes)
            changes.writes[job_key(job_id)] = job_record("open", table, mode, loading=space.hex())
            return replace(_schema(snapshot, table), space=space)

        loaded = self._change(prepare)
        rows = JobRows(self._engine, self._catalog.bind(loaded.encode()), mode, staged)

        def publish(snapshot: EngineSnapshot, changes: WriteSet) -> None:
            if _open_record(snapshot, job_id).get("loading") != loaded.space.hex():
                raise TransactionConflictError(
                    f"the job {job_id!r} was committed by two callers at once; the other goes on"
                )
            current = _schema(snapshot, table)
            if replace(current, space=loaded.space) != loaded:
                raise TransactionConflictError(f"table {table!r} was changed as the job {job_id!r} was committed")
            changes.writes[schema_key(table)] = loaded.encode()
            changes.writes[garbage_key(current.space)] = b"\x01"
            changes.writes[job_key(job_id)] = job_record("committed", table, mode)
            changes.changed_spaces.update((current.space, loaded.space))

        try:
            rows.check_sizes()
            for chunk in rows.chunks(None):
                self._engine.commit(None, WriteSet(derived=chunk))
            self._change(publish, attempts=1)
        except CommitOutcomeUnknownError:
            raise  # the table may be there
        except (StructableError, _JobEndedError):
            self._discard_space(table, loaded.space)
            raise
        self._garbage.notify()

    def _discard_space(self, table: str, space: bytes) -> None:
        """Have a space collected that was loaded for nothing, also where it was discarded while it was being loaded."""

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
            for job_id, found in list_jobs(snapshot):
                record = cast(_Record, found)
                if record["state"] == "applying":
                    alive.add(job_id)
                elif now - record["time"] <= JOB_RETENTION_SECONDS:
                    if record["state"] == "open":
                        alive.add(job_id)
                elif record["state"] != "open" or now - runs.get(job_id, 0.0) > JOB_RETENTION_SECONDS:
                    changes.writes[job_key(job_id)] = None
                    _discard_loading(record, changes)
                else:
                    alive.add(job_id)
            return alive

        runs = self._engine.jobs_with_runs()
        alive = self._change(body)
        for job_id in runs.keys() - alive:
            # A job may have been begun, and have staged, since the records were read.
            if now - runs[job_id] > _GRACE_SECONDS:
                self._engine.drop_runs(job_id)

    def _change(self, body: Callable[[EngineSnapshot, WriteSet], Result], *, attempts: int = _ATTEMPTS) -> Result:
        """Run a transaction on the catalog, again after conflicts."""
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


class _Record(TypedDict, total=False):
    """A job's record, as `job_record` writes it."""

    state: str
    table: str
    mode: str
    time: float
    staged: list[str]
    schema: str
    loading: str


def _schema(snapshot: EngineSnapshot, table: str) -> TableSchema:
    schema = read_schema(snapshot, table) if isinstance(table, str) else None
    if schema is None or schema.spec.name != table:
        raise TableNotFoundError(table)
    return schema


def _record(snapshot: EngineSnapshot, job_id: str) -> _Record | None:
    raw = snapshot.get(job_key(job_id))
    return None if raw is None else cast(_Record, json.loads(raw))


def _discard_loading(record: _Record, changes: WriteSet) -> None:
    """Have the space collected that an earlier attempt to commit has loaded."""
    if "loading" in record:
        changes.writes[garbage_key(bytes.fromhex(record["loading"]))] = b"\x01"


def _open_record(snapshot: EngineSnapshot, job_id: str) -> _Record:
    """Return the record of a job that can be committed.

    Raises
    ------
    TransactionClosedError
        If it was aborted, or is not known (any more).
    """
    record = _record(snapshot, job_id)
    if record is None:
        raise TransactionClosedError(
            f"there is no write job {job_id!r}: it was never begun, or ended more than 7 days ago"
        )
    if record["state"] == "aborted":
        raise TransactionClosedError(f"the write job {job_id!r} was aborted and cannot be committed")
    if record["state"] in ("committed", "applying"):
        raise _JobEndedError(job_id)
    return record


def _staged_rows(states: list[str]) -> list[StagedRows]:
    return [
        StagedRows(
            TableSchema.decode(document["schema"].encode()),
            tuple(document["columns"]),
            tuple(bytes.fromhex(run) for run in document["runs"]),
        )
        for document in map(json.loads, states)
    ]
