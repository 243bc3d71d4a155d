"""Write jobs: staged anywhere by COPY, published in one transaction."""

from __future__ import annotations

import itertools
import json
import logging
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from structable.backends.base.job_rules import conformed_batches
from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.errors import PostgreSQLError, translated
from structable.backends.postgresql.driver.pool import ServerPool
from structable.backends.postgresql.driver.statement import command
from structable.backends.postgresql.schema.catalog import Catalog, decode_version, encode_specification
from structable.backends.postgresql.sql.binding import TableBinding, TableVersion
from structable.backends.postgresql.sql.names import qualified
from structable.spi import (
    CommitResult,
    DataCorruptionError,
    StagedWrite,
    StorageUnavailableError,
    StructableError,
    WriteJob,
    WriteMode,
)
from structable.spi.rules.jobs import check_job, last_attempts
from structable.spi.rules.keyless import check_mode

from .job_commit import JobCommit
from .job_records import JobRecords
from .staging import StagedTable, create_staging, drop_job_staging, staged_columns, sweep_staging

if TYPE_CHECKING:
    from pyarrow import RecordBatch

__all__ = ["WriteJobs"]

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

    def begin(self, table: str, mode: WriteMode | str, job_id: str) -> WriteJob:
        mode = check_job(mode, job_id)
        with self._pool.connection() as connection:
            try:
                binding = self._catalog.lookup(connection.ask, table)
                check_mode(binding.spec, mode)
                number = binding.version.id
                committed = self._records.upgraded(
                    connection, lambda: self._records.begin(connection, job_id, table, number, mode)
                )
                now = time.monotonic()
                if now >= self._next_sweep:
                    # Not with each job: a week of small ones leaves many records.
                    self._next_sweep = now + _SWEEP_SECONDS
                    self._sweep(connection)
            except PostgreSQLError as error:
                raise translated(error, f"beginning the write job {job_id!r}") from error
        return WriteJob(table, mode, job_id, _encode(binding.version), committed)

    def _sweep(self, connection: ServerConnection) -> None:
        # The job has begun; the next sweep removes the rest.
        try:
            sweep_staging(connection, self._catalog.schema)
        except PostgreSQLError as error:
            _log.warning("the sweep of ended write jobs of schema %r failed: %s", self._catalog.schema, error)
        finally:
            connection.roll_back()

    def stage(self, job: WriteJob, partition: int, attempt: int, batches: Iterable[RecordBatch]) -> StagedWrite:
        from .copy_encoder import CopyEncoder
        from .marks import marked, marks_of

        binding = _bound(self._catalog.schema, job.state)
        conformed = conformed_batches(job, binding.spec, batches)
        first = next(conformed, None)
        if first is None:
            return StagedWrite(job.job_id, partition, attempt, 0)
        columns = tuple(first[0].schema.names)
        marks = marks_of(binding.spec, job.mode)
        encoder = CopyEncoder(binding.write_spec, columns, marks)
        found: set[str] = set()

        def portions() -> Iterator[bytes]:
            for batch, kinds in itertools.chain((first,), conformed):
                found.update(kinds or ())
                yield from encoder.encode(marked(binding.spec, batch, kinds))

        with self._pool.connection() as connection:
            try:
                connection.pipeline((_BEGIN,))
                name = create_staging(connection, binding, job.job_id, columns, marks)
                # No other transaction sees the table yet, so that its rows can be frozen.
                text = (
                    f"copy {qualified(self._catalog.schema, name)} "
                    f"({', '.join(staged_columns(len(columns) + len(marks)))}) "
                    "from stdin (format binary, freeze)"
                )
                rows = connection.copy_in(text, [portions()])
                connection.pipeline((command("commit"),))
            except PostgreSQLError as error:
                raise translated(error, f"staging rows of the write job {job.job_id!r}") from error
            finally:
                connection.roll_back()
        staged = StagedTable(
            name, binding.version.id, columns, binding.write_spec.indexes, rows, encoder.largest, tuple(sorted(found))
        )
        return StagedWrite(job.job_id, partition, attempt, rows, staged.encode())

    def commit(self, job: WriteJob, staged: Iterable[StagedWrite]) -> CommitResult:
        tables = [StagedTable.decode(one.state, job.job_id) for one in last_attempts(job, staged) if one.rows]
        binding = _bound(self._catalog.schema, job.state)
        commit = JobCommit(self._pool, self._catalog, self._records, job, binding.version, tables, self._lock_timeout)
        result = CommitResult(commit.run())
        self._drop(job)
        return result

    def abort(self, job: WriteJob) -> None:
        number = _bound(self._catalog.schema, job.state).version.id
        with self._pool.connection() as connection:
            try:
                aborted = self._records.upgraded(
                    connection, lambda: self._records.abort(connection, job.job_id, job.table, number, job.mode)
                )
            except PostgreSQLError as error:
                raise translated(error, f"aborting the write job {job.job_id!r}") from error
        if aborted:
            self._drop(job)

    def _drop(self, job: WriteJob) -> None:
        # The job has ended, and no failure may hide that: a sweep drops the rest.
        try:
            with self._pool.connection() as connection:
                try:
                    drop_job_staging(connection, self._catalog.schema, job.job_id)
                finally:
                    connection.roll_back()
        except (PostgreSQLError, StorageUnavailableError) as error:
            _log.warning("the staged rows of the write job %r are left to a sweep: %s", job.job_id, error)


_BEGIN = command("begin isolation level read committed read write")


def _encode(table: TableVersion) -> bytes:
    specification, building = encode_specification(table)
    return json.dumps([table.id, table.version, specification, building, table.changed_by]).encode()


@lru_cache(maxsize=64)
def _bound(schema: str, state: bytes) -> TableBinding:
    try:
        return TableBinding(schema, decode_version(*map(str, json.loads(state))))
    except (ValueError, TypeError, RecursionError, StructableError) as error:
        raise DataCorruptionError(f"the state of a write job cannot be decoded: {error}") from error
