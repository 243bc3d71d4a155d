"""Staging tables: one for each attempt of a partition, `_stage_` with the job's digest, its time and a random part."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.errors import StatementRefusedError
from structable.backends.postgresql.driver.statement import Call, Statement, command
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.names import JOBS, qualified, quoted
from structable.backends.postgresql.sql.types import array, stored_type
from structable.spi import DataCorruptionError, Field
from structable.spi.rules.jobs import JOB_RETENTION_SECONDS

__all__ = [
    "KIND_FIELD",
    "StagedTable",
    "create_staging",
    "drop_job_staging",
    "staged_columns",
    "staging_tables",
    "sweep_staging",
]

_log = logging.getLogger("structable.postgresql")

KIND_FIELD = Field.short("_kind")
"""The column of row kinds, as numbers in the order of `RowKind`."""

_PREFIX = "_stage_"
_NAME = re.compile(r"_stage_(?P<job>[0-9a-f]{16})_(?P<time>[0-9a-f]{8,12})_[0-9a-f]{20}\Z")
_TEXT = 25
_GRACE_SECONDS = 60
_NOW = command("select extract(epoch from clock_timestamp())::bigint")
_TABLES = Statement(
    "select relname::text from pg_class where relnamespace = $1::regnamespace and relkind = 'r' "
    "and starts_with(relname::text, $2)",
    (_TEXT, _TEXT),
)
_DIGEST = "encode(substring(sha256(convert_to(job_id, 'UTF8')) from 1 for 8), 'hex')"
# In use, owned by another role, or already dropped: left to the next sweep.
_LEFT_FOR_LATER = frozenset({"55P03", "42501", "42P01"})


@dataclass(frozen=True, slots=True)
class StagedTable:
    """The staged rows of one attempt."""

    name: str  # of the staging table
    table_id: int  # of the table that the rows were staged for
    columns: tuple[str, ...]  # fields, which the staging table calls `c0`, `c1` and so on
    indexes: tuple[str, ...]  # the fields whose sizes were checked against the limits of indexed values
    rows: int  # at least 1
    largest: int  # bytes of the largest row
    kinds: tuple[str, ...] = ()  # of the rows, in mode changes

    def encode(self) -> bytes:
        return json.dumps(
            [self.name, self.table_id, self.columns, self.indexes, self.rows, self.largest, self.kinds]
        ).encode()

    @classmethod
    def decode(cls, data: bytes, job_id: str) -> StagedTable:
        """Decode the result of `encode`; rejects that of another job."""
        try:
            # An older structable staged without kinds.
            name, table_id, columns, indexes, rows, largest, *kinds = json.loads(data)
            found = _NAME.match(name)
            if found is None or found["job"] != _digest(job_id):
                raise ValueError(f"{name!r} is not a staging table of the job")
            return cls(name, int(table_id), tuple(columns), tuple(indexes), int(rows), int(largest), *map(tuple, kinds))
        except (ValueError, TypeError, RecursionError) as error:
            raise DataCorruptionError(f"the staged rows of the job {job_id!r} cannot be decoded: {error}") from error


def _digest(job_id: str) -> str:
    return hashlib.sha256(job_id.encode()).hexdigest()[:16]


def staged_columns(count: int) -> list[str]:
    """Return the names of a staging table's columns."""
    return [f"c{place}" for place in range(count)]


def create_staging(
    connection: ServerConnection,
    binding: TableBinding,
    job_id: str,
    columns: tuple[str, ...],
    marks: Sequence[Field] = (),
) -> str:
    """Create a staging table, in the transaction that is open, and return its name; the marks are its last columns."""
    now = int(str(connection.ask(_NOW)[0][0]))
    name = f"{_PREFIX}{_digest(job_id)}_{now:08x}_{secrets.token_hex(10)}"
    kinds = [stored_type(field).name for field in (*map(binding.spec.field, columns), *marks)]
    # Types as COPY accepts them: text needs no order here, and the precision of decimals was checked.
    definitions = ", ".join(f"{one} {kind}" for one, kind in zip(staged_columns(len(kinds)), kinds, strict=True))
    connection.pipeline(
        (
            command(
                f"create unlogged table {qualified(binding.schema, name)} ({definitions}) "
                "with (autovacuum_enabled = false)"
            ),
        )
    )
    return name


def staging_tables(connection: ServerConnection, schema: str, job_id: str | None = None) -> list[str]:
    """Return the staging tables of a job, or of all."""
    prefix = _PREFIX if job_id is None else f"{_PREFIX}{_digest(job_id)}_"
    found = connection.ask(Call(_TABLES, (quoted(schema).encode(), prefix.encode())))
    return [str(row[0]) for row in found if _NAME.match(str(row[0]))]


def drop_job_staging(connection: ServerConnection, schema: str, job_id: str) -> None:
    """Drop the staging tables of a job; tables in use are left to a sweep."""
    _drop(connection, schema, staging_tables(connection, schema, job_id))


def _drop(connection: ServerConnection, schema: str, names: Iterable[str]) -> int:
    dropped = 0
    for name in names:
        try:
            connection.pipeline(
                (
                    command("begin"),
                    command("set local lock_timeout = 1000"),
                    command(f"drop table if exists {qualified(schema, name)}"),
                    command("commit"),
                )
            )
            dropped += 1
        except StatementRefusedError as error:
            connection.roll_back()
            if error.state not in _LEFT_FOR_LATER:
                raise
            _log.info("staging table %s is left to the next sweep: %s", name, error.message)
    return dropped


def sweep_staging(connection: ServerConnection, schema: str) -> None:
    """Drop records that are too old, and the staging tables of jobs that have ended or died."""
    # The tables first: a table without a record a moment later has no job.
    tables = {name: _NAME.match(name) for name in staging_tables(connection, schema)}
    now = int(str(connection.ask(_NOW)[0][0]))
    ages = {name: now - int(found["time"], 16) for name, found in tables.items() if found is not None}
    jobs = {name: found["job"] for name, found in tables.items() if found is not None}
    recent = {jobs[name] for name, age in ages.items() if age <= JOB_RETENTION_SECONDS}
    records = qualified(schema, JOBS)
    delete = Statement(
        f"delete from {records} where changed < now() - interval '{JOB_RETENTION_SECONDS} seconds' "
        f"and (state <> 'open' or {_DIGEST} <> all($1))",
        (1009,),
        prepare=False,
    )
    ended = connection.run(Call(delete, (_texts(recent),))).command_tuples
    if ended:
        _log.info("swept the records of %d write jobs of schema %r", ended, schema)
    if not tables:
        return
    opened = Statement(
        f"select distinct {_DIGEST} from {records} where state = 'open' and {_DIGEST} = any($1)", (1009,), prepare=False
    )
    alive = {str(row[0]) for row in connection.ask(Call(opened, (_texts(jobs.values()),)))}
    dead = [name for name, job in jobs.items() if job not in alive and ages[name] > _GRACE_SECONDS]
    if dropped := _drop(connection, schema, dead):
        _log.info("swept %d staging tables of ended write jobs of schema %r", dropped, schema)


def _texts(values: Iterable[str]) -> bytes:
    return array(_TEXT, [value.encode() for value in sorted(set(values))])
