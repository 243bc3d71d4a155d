"""`commit_write` and `abort_write` calls as values, and the check that their job still admits them."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Self

from structable.backends.base.admin_rules import require_unretired
from structable.backends.base.job_rules import require_undecided
from structable.backends.ordered.engine import EngineSnapshot
from structable.backends.ordered.schema.catalog import named_schema
from structable.backends.ordered.schema.job_records import JobRecord, job_name, read_job
from structable.backends.ordered.schema.stream_records import read_stream
from structable.backends.ordered.schema.stuck_jobs import require_whole, stuck_key
from structable.backends.ordered.table_schema import TableSchema
from structable.spi import CommitResult, StagedWrite, TableNotFoundError, TransactionClosedError, WriteJob, WriteMode
from structable.spi.authors import last_attempts, table_dropped


class JobEndedError(Exception):
    """The job is already committed: there is nothing left to do; `whole` says whether all of its rows are in place."""

    def __init__(self, decider: str, missing: int, *, whole: bool) -> None:
        super().__init__(decider)
        self.decider = decider
        self.missing = missing
        self.whole = whole


@dataclass(frozen=True, slots=True)
class JobOrder:
    """One call, in the form sent to the process that executes it; `call` is its random name.

    `job_id` is the result of `job_name`.
    """

    job_id: str
    table: str
    identity: bytes
    mode: WriteMode
    call: str
    staged: tuple[str, ...] = ()
    stream: str | None = None
    batch: int = 0
    skips_missing: bool = False

    @classmethod
    def of(cls, job: WriteJob, staged: Iterable[StagedWrite] = ()) -> Self:
        return cls(
            job_name(job),
            job.table,
            TableSchema.decode(job.state).identity,
            job.mode,
            secrets.token_hex(8),
            tuple(one.state.decode() for one in last_attempts(job, staged)),
            job.stream,
            job.batch or 0,
            job.on_missing == "skip",
        )

    def opened(self) -> JobRecord:
        """Return the record of the job as written by `begin_write`."""
        return JobRecord(
            "open", self.table, self.identity, self.mode, time.time(), stream=self.stream, batch=self.batch
        )

    def encode(self) -> bytes:
        return json.dumps({**asdict(self), "identity": self.identity.hex()}).encode()

    @classmethod
    def decode(cls, raw: bytes) -> Self:
        facts = json.loads(raw)
        changed = {
            "identity": bytes.fromhex(facts["identity"]),
            "mode": WriteMode(facts["mode"]),
            "staged": tuple(facts["staged"]),
        }
        return cls(**{**facts, **changed})

    def result(self, ended: JobEndedError) -> CommitResult:
        """Return the result of a call for a committed job: true if this very call committed it."""
        return CommitResult(True, ended.missing) if ended.decider == self.call else CommitResult(False)


def required_schema(snapshot: EngineSnapshot, table: str) -> TableSchema:
    """Return the table of exactly this name; rejects one with a write job that cannot be completed."""
    schema = named_schema(snapshot, table)
    if schema is None:
        raise TableNotFoundError(table)
    require_whole(snapshot.get(stuck_key(table)), schema)
    require_unretired(schema.spec)
    return schema


def living_schema(snapshot: EngineSnapshot, order: JobOrder) -> TableSchema:
    """Return the table of a job; `TableNotFoundError` even if another table has the name by now."""
    schema = named_schema(snapshot, order.table)
    if schema is None or schema.identity != order.identity:
        raise table_dropped(order.table, order.job_id)
    require_unretired(schema.spec)
    return schema


def open_job(snapshot: EngineSnapshot, order: JobOrder) -> tuple[JobRecord, TableSchema]:
    """Return the record of a job that can be committed, and its table.

    Raises `JobEndedError` if it is committed, `TableNotFoundError` as `living_schema` does, and
    `TransactionClosedError` if the job was aborted, is unknown (possibly because its record has expired), or is a batch
    that was begun again in another mode.
    """
    schema = living_schema(snapshot, order)
    record = read_job(snapshot, order.job_id)
    if record is not None and not record.belongs_to(schema):
        record = None
    _require_following(snapshot, schema, order, record)
    require_undecided(order.job_id, order.table, None if record is None else record.state)
    assert record is not None
    if record.committed:
        raise JobEndedError(record.decider, record.missing, whole=record.state == "committed")
    if record.mode is not order.mode:
        raise TransactionClosedError(
            f"the write job {order.job_id!r} was begun again in mode {record.mode}; it cannot be committed in mode "
            f"{order.mode} any more"
        )
    require_whole(snapshot.get(stuck_key(order.table)), schema)
    return record, schema


def _require_following(
    snapshot: EngineSnapshot, schema: TableSchema, order: JobOrder, record: JobRecord | None
) -> None:
    """Raise `JobEndedError` for a batch that is not above the last one committed of its stream."""
    last = None if order.stream is None else read_stream(snapshot, schema, order.stream)
    if last is not None and order.batch <= last.batch:
        decider = last.decider if order.batch == last.batch else ""
        raise JobEndedError(decider, last.missing, whole=record is None or record.state != "applying")
