"""`commit_write` and `abort_write` calls as values, and the check that their job still admits them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from structable.backends.base.job_rules import require_undecided
from structable.backends.ordered.engine import EngineSnapshot
from structable.backends.ordered.schema.catalog import named_schema
from structable.backends.ordered.schema.job_records import JobRecord, read_job
from structable.backends.ordered.schema.stuck_jobs import require_whole, stuck_key
from structable.backends.ordered.table_schema import TableSchema
from structable.spi import StagedWrite, TableNotFoundError, WriteJob, WriteMode
from structable.spi.rules.jobs import last_attempts, table_dropped

__all__ = ["JobEndedError", "JobOrder", "open_job", "required_schema"]


class JobEndedError(Exception):
    """The job is already committed: there is nothing left to do."""

    def __init__(self, record: JobRecord) -> None:
        super().__init__(record)
        self.record = record


@dataclass(frozen=True, slots=True)
class JobOrder:
    """One call, in the form sent to the process that executes it; `call` is its random name."""

    job_id: str
    table: str
    identity: bytes
    mode: WriteMode
    call: str
    staged: tuple[str, ...] = ()

    @classmethod
    def of(cls, job: WriteJob, staged: Iterable[StagedWrite] = ()) -> Self:
        identity = TableSchema.decode(job.state).identity
        return cls(
            job.job_id,
            job.table,
            identity,
            job.mode,
            secrets.token_hex(8),
            tuple(one.state.decode() for one in last_attempts(job, staged)),
        )

    def encode(self) -> bytes:
        return json.dumps([self.job_id, self.table, self.identity.hex(), self.mode, self.call, self.staged]).encode()

    @classmethod
    def decode(cls, raw: bytes) -> Self:
        job_id, table, identity, mode, call, staged = json.loads(raw)
        return cls(job_id, table, bytes.fromhex(identity), WriteMode(mode), call, tuple(staged))


def required_schema(snapshot: EngineSnapshot, table: str) -> TableSchema:
    """Return the table of exactly this name; rejects one with a write job that cannot be completed."""
    schema = named_schema(snapshot, table)
    if schema is None:
        raise TableNotFoundError(table)
    require_whole(snapshot.get(stuck_key(table)), schema)
    return schema


def open_job(snapshot: EngineSnapshot, order: JobOrder) -> tuple[JobRecord, TableSchema]:
    """Return the record of a job that can be committed, and its table.

    Raises `TableNotFoundError` even if another table has the name by now, and `TransactionClosedError` if the job was
    aborted, or is unknown (possibly because its record has expired).
    """
    schema = named_schema(snapshot, order.table)
    if schema is None or schema.identity != order.identity:
        raise table_dropped(order.table, order.job_id)
    record = read_job(snapshot, order.job_id)
    if record is not None and not record.belongs_to(schema):
        record = None
    require_undecided(order.job_id, order.table, None if record is None else record.state)
    assert record is not None
    if record.committed:
        raise JobEndedError(record)
    require_whole(snapshot.get(stuck_key(order.table)), schema)
    return record, schema
