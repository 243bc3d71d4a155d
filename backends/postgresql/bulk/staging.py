"""Staging tables: one for each attempt of a partition, `_stage_` with the job's digest, its time and a random part.

The staging tables of a batch have the digest of the stream, and the number of the batch.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from structable.backends.base.job_rules import require_same_rules, staged_for_dropped
from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.errors import (
    INSUFFICIENT_PRIVILEGE,
    LOCK_NOT_AVAILABLE,
    UNDEFINED_TABLE,
    StatementRefusedError,
)
from structable.backends.postgresql.driver.statement import LOCK_LIMIT, TEXT, TEXT_ARRAY, Call, Statement, command
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.names import JOBS, STREAMS, literal, qualified, quoted
from structable.backends.postgresql.sql.types import array, stored_type
from structable.spi import DataCorruptionError, Field, PatchArm, WriteJob
from structable.spi.authors import JOB_RETENTION_SECONDS, rules_digest

_log = logging.getLogger("structable.postgresql")

KIND_FIELD = Field.short("_kind")
"""The column of row kinds, as numbers in the order of `RowKind`."""
ARMS = tuple(PatchArm)
"""The arms of a patch, by their numbers in staged rows."""

_PREFIX = "_stage_"
_NAME = re.compile(r"_stage_(?P<job>[0-9a-f]{16})_(?P<time>[0-9a-f]{8,12})_[0-9a-f]{20}\Z")
# The sweep of an older structable must not take this for the name of a job without a record.
_BATCH_NAME = re.compile(
    r"_stage_s(?P<stream>[0-9a-f]{16})_(?P<batch>[0-9a-f]{1,16})_(?P<time>[0-9a-f]{8,9})_[0-9a-f]{10}\Z"
)
_LEFT_OUT: list[Any] = [(), "", False, (), "", 0]
"""The defaults of the last fields of a `StagedTable`, which an older structable did not write."""
_GRACE_SECONDS = 60
_NOW = command("select extract(epoch from clock_timestamp())::bigint")
_TABLES = Statement(
    "select relname::text from pg_class where relnamespace = $1::regnamespace and relkind = 'r' "
    "and starts_with(relname::text, $2)",
    (TEXT, TEXT),
)
_DIGEST = "encode(substring(sha256(convert_to(job_id, 'UTF8')) from 1 for 8), 'hex')"
_STREAM_DIGEST = "encode(substring(sha256(convert_to(table_id || ' ' || stream, 'UTF8')) from 1 for 8), 'hex')"
# In use, owned by another role, or already dropped: left to the next sweep.
_LEFT_FOR_LATER = frozenset({LOCK_NOT_AVAILABLE, INSUFFICIENT_PRIVILEGE, UNDEFINED_TABLE})


@dataclass(frozen=True, slots=True)
class StagedTable:
    """The staged rows of one attempt."""

    name: str  # of the staging table
    table_id: int  # of the table that the rows were staged for
    columns: tuple[str, ...]  # fields, which the staging table calls `c0`, `c1` and so on
    indexes: tuple[str, ...]  # the fields whose sizes were checked against the limits of indexed values
    rows: int  # at least 1
    largest: int  # bytes of the largest row
    kinds: tuple[str, ...] = ()  # of the rows, in mode changes; their arms, in mode patch
    mode: str = ""  # of the job when the rows were staged; empty if an older structable staged them
    partial: bool = False  # in mode patch: whether changes of rows do not all name the same columns
    changed: tuple[str, ...] = ()  # in mode patch: the columns that they name; empty if an older structable staged
    rules: str = ""  # the digest of the table's field rules when the rows were staged
    version: int = 0  # of the table when the rows were staged; 0 if an older structable staged them

    def require_taken_by(self, binding: TableBinding) -> None:
        """Raise SchemaIncompatibleError if a table cannot take the rows: it is another table, or has other rules."""
        spec = binding.spec
        if self.table_id != binding.version.id:
            raise staged_for_dropped(spec.name)
        require_same_rules(spec.name, self.rules, rules_digest(spec.rules))
        dropped = binding.version.dropped
        if not all(name in spec and dropped.get(name, 0) <= self.version for name in self.columns):
            raise staged_for_dropped(spec.name)

    @property
    def given(self) -> dict[str, str]:
        """The columns of the staging table, by their fields."""
        return dict(zip(self.columns, staged_columns(len(self.columns)), strict=True))

    def encode(self) -> bytes:
        return json.dumps(
            [
                self.name,
                self.table_id,
                self.columns,
                self.indexes,
                self.rows,
                self.largest,
                self.kinds,
                self.mode,
                self.partial,
                self.changed,
                self.rules,
                self.version,
            ]
        ).encode()

    @classmethod
    def decode(cls, data: bytes, job: WriteJob) -> StagedTable:
        """Decode the result of `encode`; rejects a staged table of another job or of another mode."""
        try:
            name, table_id, columns, indexes, rows, largest, *more = json.loads(data)
            if not _is_staging(name) or not name.startswith(staging_prefix(job, int(table_id))):
                raise ValueError(f"{name!r} is not a staging table of the job")
            kinds, mode, partial, changed, rules, version = more + _LEFT_OUT[len(more) :]
            staged = cls(
                name,
                int(table_id),
                tuple(columns),
                tuple(indexes),
                int(rows),
                int(largest),
                tuple(kinds),
                str(mode),
                bool(partial),
                tuple(changed),
                str(rules),
                int(version),
            )
        except (ValueError, TypeError, RecursionError) as error:
            raise DataCorruptionError(
                f"the staged rows of the job {job.job_id!r} cannot be decoded: {error}"
            ) from error
        if staged.mode not in ("", str(job.mode)):
            raise ValueError(
                f"rows of the write job {job.job_id!r} were staged in mode {staged.mode}, and it is committed in mode "
                f"{job.mode}; stage them again"
            )
        return staged


def staging_prefix(job: WriteJob, table_id: int) -> str:
    """Return the prefix of the names of a job's staging tables, which is unique to the job."""
    if job.stream is None:
        return f"{_PREFIX}{_digest(job.job_id)}_"
    return f"{_PREFIX}s{_digest(f'{table_id} {job.stream}')}_{job.batch:x}_"


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def _is_staging(name: str) -> bool:
    return (_NAME.match(name) or _BATCH_NAME.match(name)) is not None


def staged_columns(count: int) -> list[str]:
    """Return the names of a staging table's columns."""
    return [f"c{place}" for place in range(count)]


def create_staging(
    connection: ServerConnection,
    binding: TableBinding,
    job: WriteJob,
    columns: tuple[str, ...],
    marks: Sequence[Field] = (),
) -> str:
    """Create a staging table, in the transaction that is open, and return its name; the marks are its last columns."""
    now = int(str(connection.ask(_NOW)[0][0]))
    # At most 63 bytes.
    end = secrets.token_hex(10 if job.stream is None else 5)
    name = f"{staging_prefix(job, binding.version.id)}{now:08x}_{end}"
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


def staging_tables(connection: ServerConnection, schema: str, prefix: str = _PREFIX) -> list[str]:
    """Return the staging tables of a job, by their prefix, or of all."""
    found = connection.ask(Call(_TABLES, (quoted(schema).encode(), prefix.encode())))
    return [str(row[0]) for row in found if _is_staging(str(row[0]))]


def drop_staging(connection: ServerConnection, schema: str, names: Iterable[str]) -> int:
    """Drop staging tables, and return their number; tables in use are left to a sweep."""
    dropped = 0
    for name in names:
        try:
            connection.pipeline(
                (
                    command("begin"),
                    LOCK_LIMIT,
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
    # List the tables first: a table without a record in the later read has no job.
    names = staging_tables(connection, schema)
    now = int(str(connection.ask(_NOW)[0][0]))
    tables = {name: _NAME.match(name) for name in names}
    ages = {name: now - int(found["time"], 16) for name, found in tables.items() if found is not None}
    jobs = {name: found["job"] for name, found in tables.items() if found is not None}
    recent = {jobs[name] for name, age in ages.items() if age <= JOB_RETENTION_SECONDS}
    records = qualified(schema, JOBS)
    delete = Statement(
        f"delete from {records} where changed < now() - interval '{JOB_RETENTION_SECONDS} seconds' "
        f"and (state <> 'open' or {_DIGEST} <> all($1))",
        (TEXT_ARRAY,),
        prepare=False,
    )
    ended = connection.run(Call(delete, (_texts(recent),))).command_tuples
    if ended:
        _log.info("swept the records of %d write jobs of schema %r", ended, schema)
    dead = _dead_batches(connection, schema, names, now)
    if jobs:
        opened = Statement(
            f"select distinct {_DIGEST} from {records} where state = 'open' and {_DIGEST} = any($1)",
            (TEXT_ARRAY,),
            prepare=False,
        )
        alive = {str(row[0]) for row in connection.ask(Call(opened, (_texts(jobs.values()),)))}
        dead += [name for name, job in jobs.items() if job not in alive and ages[name] > _GRACE_SECONDS]
    if dropped := drop_staging(connection, schema, dead):
        _log.info("swept %d staging tables of ended write jobs of schema %r", dropped, schema)


def _dead_batches(connection: ServerConnection, schema: str, names: Iterable[str], now: int) -> list[str]:
    """Return the staging tables of batches that are committed, or have waited for too long."""
    found = {name: one for name in names if (one := _BATCH_NAME.match(name))}
    records = qualified(schema, STREAMS)
    if not found or not connection.ask(command(f"select to_regclass({literal(records)}) is not null"))[0][0]:
        return []
    query = Statement(
        f"select {_STREAM_DIGEST}, batch from {records} where {_STREAM_DIGEST} = any($1)", (TEXT_ARRAY,), prepare=False
    )
    rows = connection.ask(Call(query, (_texts(one["stream"] for one in found.values()),)))
    last = {str(stream): int(str(batch)) for stream, batch in rows}
    dead = []
    for name, one in found.items():
        age = now - int(one["time"], 16)
        committed = int(one["batch"], 16) <= last.get(one["stream"], -1)
        if age > JOB_RETENTION_SECONDS or (committed and age > _GRACE_SECONDS):
            dead.append(name)
    return dead


def _texts(values: Iterable[str]) -> bytes:
    return array(TEXT, [value.encode() for value in sorted(set(values))])
