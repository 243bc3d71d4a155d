"""Write jobs: staged anywhere by COPY, published in one transaction."""

from __future__ import annotations

import itertools
import json
import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from structable.backends.base.job_rules import conformed_batches, overwritten_feed
from structable.backends.base.patches import patched_batches
from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.errors import PostgreSQLError, translating
from structable.backends.postgresql.driver.pool import ServerPool
from structable.backends.postgresql.driver.statement import BEGIN_WRITING, command
from structable.backends.postgresql.schema.catalog import Catalog, decode_version, encode_specification
from structable.backends.postgresql.sql.binding import TableBinding, TableVersion
from structable.backends.postgresql.sql.names import qualified
from structable.spi import (
    CommitResult,
    DataCorruptionError,
    PatchArm,
    StagedWrite,
    StorageUnavailableError,
    StructableError,
    TableNotFoundError,
    TableSpecification,
    WriteJob,
    WriteMode,
)
from structable.spi.authors import StagedData, check_mode, last_attempts, rules_digest

from .job_commit import JobCommit
from .job_records import JobRecords
from .staging import (
    StagedTable,
    create_staging,
    drop_staging,
    staged_columns,
    staging_prefix,
    staging_tables,
    sweep_staging,
)
from .stream_records import StreamRecords

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_log = logging.getLogger("structable.postgresql")

_SWEEP_SECONDS = 60.0


class WriteJobs:
    """The write jobs of one storage; an overwrite waits `lock_timeout` seconds for open transactions."""

    def __init__(self, pool: ServerPool, catalog: Catalog, lock_timeout: float) -> None:
        self._pool = pool
        self._catalog = catalog
        self._lock_timeout = lock_timeout
        self._next_sweep = 0.0
        self._records = JobRecords(catalog.schema)
        self._streams = StreamRecords(catalog.schema)

    def _records_of(self, job: WriteJob) -> JobRecords | StreamRecords:
        return self._records if job.stream is None else self._streams

    def begin(self, job: WriteJob) -> WriteJob:
        """Begin a job as `requested_job` returned it."""
        table, mode = job.table, job.mode
        with self._pool.connection() as connection, translating(f"beginning the write job {job.job_id!r}"):
            binding = self._catalog.lookup(connection.ask, table)
            check_mode(binding.spec, mode)
            if mode is WriteMode.OVERWRITE and binding.version.feed is not None:
                raise overwritten_feed(table)
            records, number = self._records_of(job), binding.version.id
            committed = records.upgraded(connection, lambda: records.begin(connection, job, number))
            now = time.monotonic()
            if now >= self._next_sweep:
                # Not with each job: a week of small jobs leaves many records.
                self._next_sweep = now + _SWEEP_SECONDS
                self._sweep(connection)
        return replace(job, state=_encode(binding.version), committed=committed)

    def _sweep(self, connection: ServerConnection) -> None:
        # The job has begun; the next sweep removes the rest.
        try:
            sweep_staging(connection, self._catalog.schema)
        except PostgreSQLError as error:
            _log.warning(
                "sweeping ended write jobs of schema %r failed and will be repeated: %s", self._catalog.schema, error
            )
        finally:
            connection.roll_back()

    def stage(self, job: WriteJob, partition: int, attempt: int, batches: StagedData) -> StagedWrite:
        from .copy_encoder import CopyEncoder, marks_of

        if job.committed:
            return StagedWrite(job.job_id, partition, attempt, 0)
        binding = self._newest(job)
        found: set[str] = set()
        named: set[int] = set()
        conformed = _marked_batches(job, binding.spec, batches, found, named)
        first = next(conformed, None)
        if first is None:
            return StagedWrite(job.job_id, partition, attempt, 0)
        marks = marks_of(binding.spec, job.mode)
        columns = tuple(first.schema.names[: first.num_columns - len(marks)])
        encoder = CopyEncoder(binding.write_spec, columns, marks)

        def chunks() -> Iterator[bytes]:
            for batch in itertools.chain((first,), conformed):
                yield from encoder.encode(batch)

        with self._pool.connection() as connection, translating(f"staging rows of the write job {job.job_id!r}"):
            try:
                connection.pipeline((BEGIN_WRITING,))
                name = create_staging(connection, binding, job, columns, marks)
                # No other transaction sees the table yet, so that its rows can be frozen.
                text = (
                    f"copy {qualified(self._catalog.schema, name)} "
                    f"({', '.join(staged_columns(len(columns) + len(marks)))}) "
                    "from stdin (format binary, freeze)"
                )
                rows = connection.copy_in(text, [chunks()])
                connection.pipeline((command("commit"),))
            finally:
                connection.roll_back()
        staged = StagedTable(
            name,
            binding.version.id,
            columns,
            binding.write_spec.indexes,
            rows,
            encoder.largest,
            tuple(sorted(found)),
            str(job.mode),
            len(named) > 1,
            tuple(name for place, name in enumerate(columns) if any(one >> place & 1 for one in named)),
            rules_digest(binding.spec.rules),
            binding.version.version,
        )
        return StagedWrite(job.job_id, partition, attempt, rows, staged.encode(), staged.rules)

    def _newest(self, job: WriteJob) -> TableBinding:
        """Return a job's present table, or the table at the beginning of the job if it is gone."""
        begun = _bound(self._catalog.schema, job.state)
        with self._pool.connection() as connection, translating(f"staging rows of the write job {job.job_id!r}"):
            try:
                now = self._catalog.lookup(connection.ask, job.table)
            except TableNotFoundError:
                return begun
        return now if now.version.id == begun.version.id else begun

    def commit(self, job: WriteJob, staged: Iterable[StagedWrite]) -> CommitResult:
        tables = [StagedTable.decode(one.state, job) for one in last_attempts(job, staged) if one.rows]
        binding = _bound(self._catalog.schema, job.state)
        records = self._records_of(job)
        commit = JobCommit(self._pool, self._catalog, records, job, binding.version, tables, self._lock_timeout)
        names = self._staged(job, binding.version.id)
        result = commit.run()
        self._drop(job, names)
        return result

    def abort(self, job: WriteJob) -> None:
        records, number = self._records_of(job), _bound(self._catalog.schema, job.state).version.id
        names = self._staged(job, number)
        with self._pool.connection() as connection, translating(f"aborting the write job {job.job_id!r}"):
            aborted = records.upgraded(connection, lambda: records.abort(connection, job, number))
        if aborted:
            self._drop(job, names)

    def _staged(self, job: WriteJob, table_id: int) -> list[str]:
        """Return the staging tables of a job before it ends: later tables may belong to the next job with its id."""
        with self._pool.connection() as connection, translating(f"ending the write job {job.job_id!r}"):
            return staging_tables(connection, self._catalog.schema, staging_prefix(job, table_id))

    def _drop(self, job: WriteJob, names: list[str]) -> None:
        # The job has ended, and no failure may hide that: a sweep drops the rest.
        try:
            with self._pool.connection() as connection:
                try:
                    drop_staging(connection, self._catalog.schema, names)
                finally:
                    connection.roll_back()
        except (PostgreSQLError, StorageUnavailableError) as error:
            _log.warning("the staged rows of the write job %r are left to a sweep: %s", job.job_id, error)


def _marked_batches(
    job: WriteJob, spec: TableSpecification, batches: StagedData, found: set[str], named: set[int]
) -> Iterator[RecordBatch]:
    """Yield the batches with their marks; adds the rows' kinds or arms to `found`, the updated columns to `named`."""
    from .copy_encoder import marked, patch_marked

    if job.mode is WriteMode.PATCH:
        for batch, marks in patched_batches(job, spec, batches):
            found.update(str(one.arm) for one in marks.distinct)
            named.update(one.named for one in marks.distinct if one.arm is PatchArm.PRESENT)
            yield patch_marked(batch, marks)
        return
    for batch, kinds in conformed_batches(job, spec, batches):
        found.update(kinds or ())
        yield marked(spec, batch, kinds)


def _encode(table: TableVersion) -> bytes:
    specification, building = encode_specification(table)
    return json.dumps([table.id, table.version, specification, building, table.changed_by]).encode()


@lru_cache(maxsize=64)
def _bound(schema: str, state: bytes) -> TableBinding:
    try:
        return TableBinding(schema, decode_version(*map(str, json.loads(state))))
    except (ValueError, TypeError, RecursionError, StructableError) as error:
        raise DataCorruptionError(f"the state of a write job cannot be decoded: {error}") from error
