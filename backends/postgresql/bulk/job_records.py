"""`JobRecords`: the table of write jobs, by job id, with each job's table."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from structable.backends.base.job_rules import job_of_another
from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.errors import UNDEFINED_COLUMN, StatementRefusedError
from structable.backends.postgresql.driver.statement import BIGINT, TEXT, Call, Statement
from structable.backends.postgresql.schema.catalog import make_late
from structable.backends.postgresql.sql.names import CATALOG, JOBS, qualified
from structable.spi import TransactionConflictError, WriteJob

Result = TypeVar("Result")

_ATTEMPTS = 6


class JobRecord(NamedTuple):
    """A job's record."""

    state: str  # open, committed or aborted
    table: str
    table_id: int | None  # None if the table is gone, for a job that an older structable began
    mode: str
    transaction: str  # the transaction that has locked the record, if the read locked it


class JobRecords:
    """The records of one schema.

    A record without a table id was written by an older structable, and belongs to the table that now has the name. The
    first job of a newer structable adds the column, with the ids of all existing tables.
    """

    def __init__(self, schema: str) -> None:
        self._schema = schema
        records, tables = qualified(schema, JOBS), qualified(schema, CATALOG)
        self._name = records
        living = f"select t.id from {tables} t where t.name = job.table_name"
        self._insert = Statement(
            f"insert into {records} (job_id, table_name, mode, table_id, state) values ($1, $2, $3, $4, 'open') "
            "on conflict (job_id) do nothing",
            (TEXT, TEXT, TEXT, BIGINT),
        )
        self._owner = Statement(
            f"select state, mode, table_name, coalesce(table_id, ({living})) = ({living}), "
            f"state = 'open' and changed < now() - interval '1 day' from {records} job where job_id = $1",
            (TEXT,),
        )
        self._renew = Statement(
            f"update {records} set changed = now() where job_id = $1 returning true", (TEXT,), prepare=False
        )
        self._take_over = Statement(
            f"update {records} job set table_name = $2, mode = $3, table_id = $4, state = 'open', changed = now() "
            f"where job_id = $1 and coalesce(table_id, ({living})) is distinct from ({living}) returning true",
            (TEXT, TEXT, TEXT, BIGINT),
            prepare=False,
        )
        self._abort = Statement(
            f"insert into {records} as job (job_id, table_name, mode, table_id, state) "
            "values ($1, $2, $3, $4, 'aborted') on conflict (job_id) do update set state = 'aborted', changed = now() "
            "where job.state <> 'committed' and job.table_name = $2 and coalesce(job.table_id, $4) = $4 returning true",
            (TEXT, TEXT, TEXT, BIGINT),
        )
        self._lock = Statement(
            f"select state, table_name, coalesce(table_id, ({living})), mode, pg_current_xact_id()::text "
            f"from {records} job where job_id = $1 for update of job",
            (TEXT,),
            prepare=False,
        )
        self._done = Statement(
            f"update {records} set state = 'committed', changed = now() where job_id = $1", (TEXT,), prepare=False
        )

    def begin(self, connection: ServerConnection, job: WriteJob, table_id: int) -> bool:
        """Record a job, unless it is recorded already, and return whether it is committed.

        Renews the record of an open job that is older than a day.

        Raises ValueError if the id belongs to another job of an existing table.
        """
        job_id, parameters = job.job_id, _parameters(job, table_id)
        for _ in range(_ATTEMPTS):
            # Two round trips: the second sees the record of a concurrent process that the first has waited for.
            connection.run(Call(self._insert, parameters))
            rows = connection.ask(Call(self._owner, parameters[:1]))
            if rows:
                ((state, owner_mode, owner, living, fading),) = rows
                if living and (owner, owner_mode) == (job.table, str(job.mode)):
                    if fading and not connection.run(Call(self._renew, parameters[:1])).ntuples:
                        continue  # swept in between
                    return bool(state == "committed")
                if living:
                    raise job_of_another(job_id, owner, owner_mode)
                if connection.run(Call(self._take_over, parameters)).ntuples:
                    return False
        raise TransactionConflictError(f"the write job {job_id!r} was begun by other processes at the same time")

    def abort(self, connection: ServerConnection, job: WriteJob, table_id: int) -> bool:
        """Abort a job unless it is committed; return whether the job was aborted."""
        return bool(connection.run(Call(self._abort, _parameters(job, table_id))).ntuples)

    def lock(self, job: WriteJob, table_id: int) -> Call:
        """Return the query that locks a job's record; see `locked`."""
        return Call(self._lock, (job.job_id.encode(),))

    @staticmethod
    def locked(job: WriteJob, table_id: int, rows: list[tuple[object, ...]]) -> JobRecord | None:
        if not rows:
            return None
        state, table, owner, mode, transaction = rows[0]
        number = None if owner is None else int(str(owner))
        return JobRecord(str(state), str(table), number, str(mode), str(transaction))

    def done(self, job: WriteJob, table_id: int) -> Call:
        return Call(self._done, (job.job_id.encode(),))

    def upgraded(self, connection: ServerConnection, work: Callable[[], Result]) -> Result:
        """Return the result of `work`; adds the column first if an older structable made the records."""
        try:
            return work()
        except StatementRefusedError as error:
            if error.state != UNDEFINED_COLUMN:
                raise
            connection.roll_back()
        living = f"select t.id from {qualified(self._schema, CATALOG)} t where t.name = table_name"
        make_late(
            connection,
            self._schema,
            "the ids of tables in the job records of an older structable",
            f"alter table {self._name} add column if not exists table_id bigint",
            # For tables that are gone: an id that no table has.
            f"update {self._name} set table_id = coalesce(({living}), 0) where table_id is null",
        )
        return work()


def _parameters(job: WriteJob, table_id: int) -> tuple[bytes, ...]:
    return job.job_id.encode(), job.table.encode(), job.mode.encode(), table_id.to_bytes(8, "big")
