"""Records of write jobs in the catalog, by job id, with the job's table."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, Self, TypeAlias

from structable.backends.ordered.engine import EngineSnapshot, successor
from structable.backends.ordered.table_schema import TableSchema
from structable.spi import DataCorruptionError, WriteMode

from .catalog import CATALOG_SPACE

__all__ = ["JobRecord", "JobState", "job_key", "list_jobs", "progress_key", "read_job", "runs_owner"]

JobState: TypeAlias = Literal["open", "applying", "committed", "aborted"]
"""A job is `applying` from its decision until all of its rows are in place."""
_STATES = ("open", "applying", "committed", "aborted")
_JOBS = CATALOG_SPACE + b"\x13"
_PROGRESS = CATALOG_SPACE + b"\x15"


@dataclass(frozen=True, slots=True)
class JobRecord:
    """The catalog's record of a job."""

    state: JobState
    table: str
    identity: bytes  # `TableSchema.identity`; empty in records and tables that are older than identities
    mode: WriteMode
    time: float  # of this record, in seconds since the epoch
    decider: str = ""  # the random name of the `commit_write` call that decided the job
    staged: tuple[str, ...] = ()  # while it is applied: the staged rows to commit
    schema: bytes = b""  # while it is applied: the table as of the decision, encoded
    loading: bytes = b""  # while it overwrites: the space that it loads

    @property
    def committed(self) -> bool:
        """Whether the job is decided, so that its rows are visible to every later snapshot."""
        return self.state in ("applying", "committed")

    def belongs_to(self, schema: TableSchema | None) -> bool:
        """Tell whether this is a job of this very table, not of a dropped one with the same name."""
        return schema is not None and (self.table, self.identity) == (schema.spec.name, schema.identity)

    def becoming(self, state: JobState, decider: str = "") -> JobRecord:
        """Return the record of the job's next state, without the fields specific to the last one."""
        return replace(
            self, state=state, time=time.time(), decider=decider or self.decider, staged=(), schema=b"", loading=b""
        )

    def encode(self) -> bytes:
        document: dict[str, object] = {
            "state": self.state,
            "table": self.table,
            "identity": self.identity.hex(),
            "mode": str(self.mode),
            "time": self.time,
        }
        if self.decider:
            document["decider"] = self.decider
        if self.state == "applying":
            document |= {"staged": self.staged, "schema": self.schema.hex()}
        if self.loading:
            document["loading"] = self.loading.hex()
        return json.dumps(document).encode()

    @classmethod
    def decode(cls, job_id: str, raw: bytes) -> Self:
        try:
            document = json.loads(raw)
            if document["state"] not in _STATES:
                raise ValueError(f"the state {document['state']!r} is none of {', '.join(_STATES)}")
            return cls(
                document["state"],
                document["table"],
                bytes.fromhex(document.get("identity", "")),
                WriteMode(document["mode"]),
                float(document["time"]),
                document.get("decider", ""),
                tuple(document.get("staged", ())),
                bytes.fromhex(document.get("schema", "")),
                bytes.fromhex(document.get("loading", "")),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataCorruptionError(f"the record of the write job {job_id!r} cannot be decoded: {error!r}") from error


def job_key(job_id: str) -> bytes:
    """Return the key of a write job's record."""
    return _JOBS + job_id.encode()


def progress_key(job_id: str) -> bytes:
    """Return the key under which a job that is being applied writes where its last applied chunk ended."""
    return _PROGRESS + job_id.encode()


def runs_owner(job_id: str, identity: bytes) -> str:
    """Return the owner under which an engine keeps the runs of a job.

    A job of the same id on a dropped and recreated table has another owner, so that a late end of the first job leaves
    the runs of the second.
    """
    return f"{identity.hex()} {job_id}"


def read_job(snapshot: EngineSnapshot, job_id: str) -> JobRecord | None:
    """Return the record of a job."""
    raw = snapshot.get(job_key(job_id))
    return None if raw is None else JobRecord.decode(job_id, raw)


def list_jobs(snapshot: EngineSnapshot) -> Iterator[tuple[str, JobRecord]]:
    """Yield ids and records of all write jobs."""
    for key, raw in snapshot.scan(_JOBS, successor(_JOBS)):
        job_id = key[len(_JOBS) :].decode(errors="replace")
        yield job_id, JobRecord.decode(job_id, raw)
