"""The records of streams, in the table `_structable_streams`: the last committed batch of each stream of a table.

Deleting the catalog's row of a table also deletes its streams.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.errors import (
    FOREIGN_KEY_VIOLATION,
    INSUFFICIENT_PRIVILEGE,
    UNDEFINED_COLUMN,
    UNDEFINED_TABLE,
    StatementRefusedError,
)
from structable.backends.postgresql.driver.statement import BIGINT, TEXT, Call, Statement
from structable.backends.postgresql.schema.catalog import make_late
from structable.backends.postgresql.sql.names import CATALOG, STREAMS, qualified
from structable.spi import StorageUnavailableError, WriteJob

from .job_records import JobRecord

Result = TypeVar("Result")

_ABORTED = "aborted bigint[] not null default '{}'"


class StreamRecords:
    """The records of one schema: the same for batches as `JobRecords` for jobs with an id.

    A stream's row also has the batches above the committed one that were aborted and did not begin again. An abort and
    a commit lock the row, so that neither misses the other.
    """

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._name = qualified(schema, STREAMS)
        stream = "table_id = $1 and stream = $2"
        self._last = Statement(
            f"select batch, $3 = any(aborted) from {self._name} where {stream}",
            (BIGINT, TEXT, BIGINT),
            prepare=False,
        )
        self._reopen = Statement(
            f"update {self._name} set aborted = array_remove(aborted, $3), changed = now() where {stream}",
            (BIGINT, TEXT, BIGINT),
            prepare=False,
        )
        self._abort = Statement(
            f"insert into {self._name} as s (table_id, stream, batch, aborted) values ($1, $2, -1, array[$3]) "
            "on conflict (table_id, stream) do update set changed = now(), "
            "aborted = case when s.batch >= $3 then s.aborted else array_remove(s.aborted, $3) || $3 end "
            "returning batch",
            (BIGINT, TEXT, BIGINT),
            prepare=False,
        )
        # The row of a stream without a committed batch is locked by its insertion.
        self._lock = Statement(
            f"insert into {self._name} as s (table_id, stream, batch) values ($1, $2, -1) "
            "on conflict (table_id, stream) do update set batch = s.batch "
            "returning s.batch, $3 = any(s.aborted), pg_current_xact_id()::text",
            (BIGINT, TEXT, BIGINT),
            prepare=False,
        )
        self._done = Statement(
            f"update {self._name} set batch = $3, changed = now(), "
            f"aborted = array(select one from unnest(aborted) one where one > $3) where {stream}",
            (BIGINT, TEXT, BIGINT),
            prepare=False,
        )

    def begin(self, connection: ServerConnection, job: WriteJob, table_id: int) -> bool:
        """Return whether a batch is committed, and let it begin again if not.

        Makes the records with the first stream of the schema.
        """
        batch = _batch(job, table_id)
        rows = self._made(connection, lambda: connection.ask(Call(self._last, batch)))
        if not rows:
            return False
        ((last, aborted),) = rows
        if int(str(last)) >= _number(job):
            return True
        if aborted:
            connection.run(Call(self._reopen, batch))
        return False

    def abort(self, connection: ServerConnection, job: WriteJob, table_id: int) -> bool:
        """Abort a batch unless it is committed; return whether its staged rows may go."""
        try:
            rows = self._made(connection, lambda: connection.ask(Call(self._abort, _batch(job, table_id))))
        except StatementRefusedError as error:
            if error.state != FOREIGN_KEY_VIOLATION:
                raise
            return True  # its table was dropped
        return int(str(rows[0][0])) < _number(job)

    def lock(self, job: WriteJob, table_id: int) -> Call:
        """Return the query that locks a stream; see `locked`."""
        return Call(self._lock, _batch(job, table_id))

    @staticmethod
    def locked(job: WriteJob, table_id: int, rows: list[tuple[object, ...]]) -> JobRecord | None:
        ((last, aborted, transaction),) = rows
        committed = int(str(last)) >= _number(job)
        state = "committed" if committed else "aborted" if aborted else "open"
        return JobRecord(state, job.table, table_id, str(job.mode), str(transaction))

    def done(self, job: WriteJob, table_id: int) -> Call:
        return Call(self._done, _batch(job, table_id))

    def upgraded(self, connection: ServerConnection, work: Callable[[], Result]) -> Result:
        """Return the result of `work`: the records are complete once a batch has begun."""
        return work()

    def _made(self, connection: ServerConnection, work: Callable[[], Result]) -> Result:
        """Return the result of `work`; first makes the table, or its missing column, if necessary."""
        try:
            return work()
        except StatementRefusedError as error:
            if error.state not in (UNDEFINED_TABLE, UNDEFINED_COLUMN):
                raise
            # Without a check before: the server may have cached that the table is missing.
            self._make(
                connection,
                f"alter table {self._name} add column if not exists {_ABORTED}"
                if error.state == UNDEFINED_COLUMN
                else f"create table if not exists {self._name} (table_id bigint not null "
                f"references {qualified(self._schema, CATALOG)} (id) on delete cascade, "
                'stream text collate "C" not null, batch bigint not null, '
                f"changed timestamptz not null default now(), {_ABORTED}, primary key (table_id, stream))",
            )
        return work()

    def _make(self, connection: ServerConnection, statement: str) -> None:
        """Run a statement that makes the table or a column; see `make_late`."""
        try:
            make_late(connection, self._schema, "the records of streams", statement)
        except StatementRefusedError as error:
            if error.state != INSUFFICIENT_PRIVILEGE:
                raise
            denied = StorageUnavailableError(
                f"streams need the table {self._name}, which is not there yet or older than its column aborted, and "
                f"the role may not make it; let the owner of {CATALOG} begin a batch of any stream, and grant SELECT, "
                f"INSERT and UPDATE on it ({error.message})"
            )
            denied.lasting = True
            raise denied from error


def _number(job: WriteJob) -> int:
    assert job.batch is not None
    return job.batch


def _batch(job: WriteJob, table_id: int) -> tuple[bytes, bytes, bytes]:
    assert job.stream is not None
    return table_id.to_bytes(8, "big"), job.stream.encode(), _number(job).to_bytes(8, "big")
