"""`JobCommit`: the transaction that publishes a write job, and the look-up of its outcome if that is in doubt."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from functools import partial
from typing import NoReturn

from structable.backends.base.job_rules import overwritten_feed, require_undecided
from structable.backends.postgresql.driver.commit_outcome import log_outcome, termination
from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.errors import (
    CARDINALITY_VIOLATION,
    DEADLOCK_DETECTED,
    FOREIGN_KEY_VIOLATION,
    LOCK_NOT_AVAILABLE,
    NUMERIC_VALUE_OUT_OF_RANGE,
    OUT_OF_MEMORY,
    SERIALIZATION_FAILURE,
    STALE,
    UNIQUE_VIOLATION,
    BrokenConnectionError,
    PostgreSQLError,
    StatementRefusedError,
    translated,
)
from structable.backends.postgresql.driver.pool import ServerPool
from structable.backends.postgresql.driver.statement import LOCK_LIMIT, TEXT, Call, Statement, command
from structable.backends.postgresql.schema.catalog import Catalog
from structable.backends.postgresql.sql.binding import TableBinding, TableVersion
from structable.backends.postgresql.sql.row_limit import refusal, require_size
from structable.spi import (
    CommitOutcomeUnknownError,
    CommitResult,
    FieldSizeLimitError,
    RecordExistsError,
    RecordNotFoundError,
    StorageUnavailableError,
    TableNotFoundError,
    TransactionClosedError,
    TransactionConflictError,
    WriteJob,
    WriteMode,
)
from structable.spi.authors import MAX_KEY_AND_INDEX_SIZE, MAX_KEY_SIZE, Effect, table_dropped

from .job_records import JobRecord, JobRecords
from .staged_changes import StagedChanges
from .staged_merge import StagedMerge, bag_statements, returned_rows, staged_records
from .staged_patch import StagedPatch
from .staging import StagedTable, staging_prefix, staging_tables
from .stream_records import StreamRecords

_log = logging.getLogger("structable.postgresql")

_ATTEMPTS = 6
_PAUSE = 0.02
_REPEATED = frozenset({SERIALIZATION_FAILURE, DEADLOCK_DETECTED})
_SECONDS = 15.0
_STATUS = Statement("select pg_xact_status($1::text::xid8)", (TEXT,), prepare=False)
_OURS = "committed by this call"
# Larger rows have values out of line: compression makes a row at most 255 times smaller, and at most a page of it lies
# in the table itself.
_LARGE_ROW = 4 << 20

_QUEUE, _QUEUE_ALONE = (
    Statement(f"select pg_advisory_xact_lock{how}(hashtextextended('structable job ' || $1, 0))", (TEXT,))
    for how in ("_shared", "")
)


class JobCommit:
    """One commit of a job.

    It runs READ COMMITTED: the job takes effect as of now, and waits for concurrent changes of its rows.
    """

    def __init__(
        self,
        pool: ServerPool,
        catalog: Catalog,
        records: JobRecords | StreamRecords,
        job: WriteJob,
        table: TableVersion,
        staged: Sequence[StagedTable],
        lock_timeout: float,
    ) -> None:
        self._pool = pool
        self._catalog = catalog
        self._records = records
        self._job = job
        self._table_id = table.id
        # The rows that a bag's retracts remove are chosen first: another job's choice of the same rows is a conflict.
        self._isolation = "repeatable read" if table.spec.keyless else "read committed"
        self._one_by_one = False
        self._staged = staged
        self._lock_timeout = lock_timeout
        self._what = f"committing the write job {job.job_id!r}"
        self._each_key_once = False
        self._alone = False
        self._missing = 0

    def run(self) -> CommitResult:
        applied = self._applied()
        return CommitResult(applied, self._missing if applied else 0)

    def _applied(self) -> bool:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self._pool.connection() as connection:
                    try:
                        return self._records.upgraded(connection, partial(self._attempt, connection))
                    finally:
                        connection.roll_back()
            except BrokenConnectionError as error:
                raise translated(error, self._what) from error
            except StatementRefusedError as error:
                self._consider(error, last=attempt == _ATTEMPTS)
                _log.info("%s again, attempt %d: %s", self._what, attempt + 1, error.message)
            time.sleep(random.uniform(0, _PAUSE * (1 << attempt)))
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _consider(self, error: StatementRefusedError, *, last: bool) -> None:
        """Raise, unless another attempt may succeed."""
        if error.state == UNIQUE_VIOLATION and self._job.mode is WriteMode.INSERT:
            self._refuse_existing()
        elif error.state in (CARDINALITY_VIOLATION, UNIQUE_VIOLATION) and not self._each_key_once:
            self._each_key_once = True
        elif error.state == UNIQUE_VIOLATION:
            pass  # inserted by another writer while rows of its key were merged
        elif error.state in (*STALE, FOREIGN_KEY_VIOLATION):  # the latter: a stream's row whose table is gone
            self._catalog.forget(self._job.table)
        elif error.state == OUT_OF_MEMORY:
            raise StorageUnavailableError(
                f"{self._what}: the server has no room for the locks of {len(self._staged):,} staged attempts; "
                "stage fewer, larger partitions, or raise max_locks_per_transaction of the server"
            ) from error
        elif error.state not in _REPEATED:
            raise translated(error, self._what) from error
        elif error.state == DEADLOCK_DETECTED:
            # Jobs write the same rows in different orders: from now on they run one after the other.
            self._alone = True
        if last:
            conflict = TransactionConflictError(f"{self._what}: {error.message} (SQLSTATE {error.state})")
            raise (translated(error, self._what) if error.state in STALE else conflict) from error

    def _attempt(self, connection: ServerConnection) -> bool:
        ask = connection.ask
        job_id, table = self._job.job_id, self._job.table
        connection.pipeline((command(f"begin isolation level {self._isolation} read write"), connection.plan_freely))
        try:
            binding = self._catalog.lookup(ask, table)
        except TableNotFoundError as error:
            if error.retired is not None:
                raise
            raise table_dropped(table, job_id) from None
        if binding.version.id != self._table_id:
            raise table_dropped(table, job_id)
        if self._job.committed:
            return False  # its record may have been swept
        record = self._locked(ask(self._records.lock(self._job, self._table_id)))
        if record is not None and record.table_id != self._table_id:
            record = None
        require_undecided(job_id, table, None if record is None else record.state)
        assert record is not None
        if record.state == "committed":
            return False
        mode = WriteMode(record.mode)
        merges = self._merges(connection, binding, mode)
        self._write(connection, binding, mode, merges)
        process = connection.process
        try:
            connection.pipeline((self._records.done(self._job, self._table_id), command("commit")))
        except BrokenConnectionError as error:
            self._pool.release(connection)  # it may be the pool's only one
            return self._resolve(record.transaction, process, error)
        return True

    def _locked(self, rows: list[tuple[object, ...]]) -> JobRecord | None:
        return self._records.locked(self._job, self._table_id, rows)

    def _merges(self, connection: ServerConnection, binding: TableBinding, mode: WriteMode) -> list[StagedMerge]:
        """Return the merges to run, after checking that the staged rows exist and belong to this table."""
        prefix = staging_prefix(self._job, self._table_id)
        there = set(staging_tables(connection, self._catalog.schema, prefix)) if self._staged else set()
        made = []
        for one in self._staged:
            one.require_taken_by(binding)
            if one.name not in there:
                self._refuse_lost()
            made.append(StagedMerge(binding, mode, one))
        if made:
            results = connection.pipeline(command(one.there()) for one in made)
            if not all(connection.rows(result)[0][0] for result in results):
                self._refuse_lost()
        return made

    def _write(
        self, connection: ServerConnection, binding: TableBinding, mode: WriteMode, merges: list[StagedMerge]
    ) -> None:
        ask = connection.ask
        for one in merges:
            for name, query in one.outsized():
                for value, key in ask(command(query)):
                    self._refuse_outsized(binding, name, int(str(value)), int(str(key)))
        queue = _QUEUE_ALONE if self._alone else _QUEUE
        connection.pipeline((Call(queue, (f"{self._catalog.schema} {binding.version.id}".encode(),)),))
        self._lock(connection, binding, mode)
        if mode is WriteMode.OVERWRITE and binding.version.feed is not None:
            raise overwritten_feed(binding.spec.name)  # the feed began after the job
        if mode is WriteMode.PATCH:
            self._patch(connection, binding)
            return
        if binding.takes_input:
            connection.pipeline(staged_records(binding, mode, self._staged))
        if binding.spec.table_options.log:
            return  # its rows are in the feed alone
        if mode is WriteMode.OVERWRITE:
            # Not TRUNCATE: older snapshots continue to read these rows.
            connection.pipeline((command(f"delete from {binding.qualified} where {binding.token}"),))
        if mode is WriteMode.CHANGES or binding.spec.keyless or (mode is WriteMode.UPSERT and binding.merges):
            self._publish(connection, binding)
            return
        results = connection.pipeline(command(one.write(each_key_once=self._each_key_once)) for one in merges)
        for one, staged, result in zip(merges, self._staged, results, strict=True):
            written = result.command_tuples or 0
            if written != (one.expected(each_key_once=self._each_key_once) or written):
                self._refuse_lost()
            if mode in (WriteMode.UPDATE, WriteMode.DELETE) and written != staged.rows:
                for key in ask(command(one.missing())) if mode is WriteMode.UPDATE else ():
                    raise RecordNotFoundError(binding.spec.name, key)
                if ask(command(one.left_out(written)))[0][0]:
                    raise returned_rows()
        self._check_rows(connection, binding, merges)

    def _patch(self, connection: ServerConnection, binding: TableBinding) -> None:
        if self._staged:
            patch = StagedPatch(connection, binding, self._staged)
            self._missing = patch.publish(skips=self._job.on_missing == "skip")
            self._check_rows(connection, binding, patch.present)
            patch.drop()

    def _publish(self, connection: ServerConnection, binding: TableBinding) -> None:
        """Write the rows of a job that merges, in the order of its partitions, or of a table without a key."""
        for staged in self._staged:
            if binding.spec.keyless:
                connection.pipeline(map(command, bag_statements(binding, staged)))
                continue
            changes = StagedChanges(binding, staged)
            try:
                changes.publish(connection, repeated=self._each_key_once, one_by_one=self._one_by_one)
            except StatementRefusedError as error:
                misfit = refusal(binding.spec, Effect.MERGE, staged.columns, error)
                if misfit is None:
                    raise
                if not changes.retracts or self._one_by_one or error.state != NUMERIC_VALUE_OUT_OF_RANGE:
                    raise misfit from error
                self._one_by_one = True
                raise StatementRefusedError(SERIALIZATION_FAILURE, "a negated number does not fit") from error

    def _lock(self, connection: ServerConnection, binding: TableBinding, mode: WriteMode) -> None:
        how = "row exclusive"
        if mode is WriteMode.OVERWRITE:
            how = "share row exclusive"  # readers continue
        milliseconds = max(1, round(self._lock_timeout * 1_000))
        try:
            connection.pipeline(
                (
                    command(f"set local lock_timeout = {milliseconds}"),
                    command(f"lock table {binding.qualified} in {how} mode"),
                    command("set local lock_timeout = 0"),
                )
            )
        except StatementRefusedError as error:
            if error.state != LOCK_NOT_AVAILABLE:
                raise
            raise StorageUnavailableError(
                f"table {binding.spec.name!r} is in use by open transactions; waited {self._lock_timeout:g} s "
                "(ddl_timeout), and nothing was written"
            ) from error

    def _check_rows(self, connection: ServerConnection, binding: TableBinding, merges: list[StagedMerge]) -> None:
        if not any(one.may_outgrow() for one in merges):
            return
        ask = connection.ask
        beside = Statement(
            "select coalesce(pg_relation_size(reltoastrelid::regclass), 0) from pg_class where oid = $1::regclass",
            (TEXT,),
            prepare=False,
        )
        large = max(one.largest for one in self._staged) > _LARGE_ROW
        if not large and not ask(Call(beside, (binding.qualified.encode(),)))[0][0]:
            return
        for one in merges:
            if one.may_outgrow():
                for (size,) in ask(command(one.outgrown())):
                    require_size(binding.spec.name, int(str(size)))

    def _refuse_outsized(self, binding: TableBinding, name: str, value: int, key: int) -> NoReturn:
        table = binding.spec.name
        if value > MAX_KEY_SIZE:
            raise FieldSizeLimitError(table, name, value, MAX_KEY_SIZE)
        raise FieldSizeLimitError(table, f"primary key with {name}", key + value, MAX_KEY_AND_INDEX_SIZE)

    def _refuse_lost(self) -> NoReturn:
        raise TransactionClosedError(
            f"staged rows of the write job {self._job.job_id!r} are gone: the server crashed since, or they were "
            "dropped; abort the job and begin another"
        )

    def _refuse_existing(self) -> None:
        """Raise with a key that already exists; return if none exists any more."""
        table = self._job.table
        with self._pool.connection() as connection:
            try:
                connection.pipeline((command("begin read only"), connection.plan_freely))
                ask = connection.ask
                binding = self._catalog.lookup(ask, table)
                merges = [StagedMerge(binding, WriteMode.INSERT, one) for one in self._staged]
                for one in merges:
                    for key in ask(command(one.existing())):
                        raise RecordExistsError(table, key)
                keys = " union all ".join(one.all_keys() for one in merges)
                places = ", ".join(str(place + 1) for place in range(len(binding.key_fields)))
                for key in ask(command(f"select * from ({keys}) k group by {places} having count(*) > 1 limit 1")):
                    raise RecordExistsError(table, key)
            except PostgreSQLError as error:
                if isinstance(error, StatementRefusedError) and error.state in STALE:
                    return  # another caller may have committed the job
                raise translated(error, self._what) from error
            finally:
                connection.roll_back()

    def _resolve(self, number: str, process: int, error: BrokenConnectionError) -> bool:
        """Look up the outcome of a commit whose answer was lost; return whether this call committed the job.

        The server knows once the transaction that holds the job's record has ended, even after a crash.
        """
        _log.warning("the answer to the commit of the write job %r was lost; asking the server", self._job.job_id)
        deadline = time.monotonic() + _SECONDS
        pause = 0.01
        state = None
        while state is None and time.monotonic() < deadline:
            try:
                with self._pool.connection() as connection:
                    try:
                        state = self._found(connection, number, process)
                    finally:
                        connection.roll_back()
            except StatementRefusedError as refusal:
                if refusal.state != LOCK_NOT_AVAILABLE:
                    break
            except (BrokenConnectionError, StorageUnavailableError):
                if self._pool.closed:
                    break
            time.sleep(pause)
            pause = min(pause * 2, 0.5)
        done = None if state is None else state in (_OURS, "committed")
        log_outcome(f"the write job {self._job.job_id!r}", done)
        if done is None:
            raise CommitOutcomeUnknownError(
                f"the connection was lost while {self._what}, and the server could not be asked about it; "
                f"commit_write may be called again: {error}"
            ) from error
        if not done:
            raise StorageUnavailableError(
                f"the connection was lost before the commit while {self._what}; nothing was written: {error}"
            ) from error
        return state == _OURS

    def _found(self, connection: ServerConnection, number: str, process: int) -> str:
        """End the lost transaction, and return the state of the job."""
        begin = (command("begin"), LOCK_LIMIT, termination(process, int(number)))
        found = connection.pipeline((*begin, self._records.lock(self._job, self._table_id)))[-1]
        record = self._locked(connection.rows(found))
        if record is None or record.state != "committed":
            return "gone" if record is None else record.state
        # Another caller may have committed the job. The number alone does not prove it: after a crash that lost the
        # transaction, another one has the number.
        ((status,),) = connection.ask(Call(_STATUS, (number.encode(),)))
        return _OURS if status == "committed" else record.state
