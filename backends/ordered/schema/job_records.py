"""Records of write jobs in the catalog, by `job_name`, with the job's table."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, Self, TypeAlias

from structable.backends.ordered.engine import SPACE_BYTES, EngineSnapshot, WriteSet, successor
from structable.backends.ordered.table_schema import TableSchema
from structable.spi import DataCorruptionError, WriteJob, WriteMode

from .catalog import CATALOG_SPACE, garbage_key
from .stream_records import StreamRecord, stream_key

JobPhase: TypeAlias = Literal["open", "applying", "committed", "aborted"]
"""The states of a job. It is `applying` from its decision until all of its rows are in place."""
_STATES = ("open", "applying", "committed", "aborted")
_JOBS = CATALOG_SPACE + b"\x13"
_PROGRESS = CATALOG_SPACE + b"\x15"
_NUMBER_BYTES, _RECORDS_BYTES = 4, 8
_HAS_NUMBER = 1 << 31
"""The bit of the number of entries in a job's progress that also has the number of records."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """The catalog's record of a job."""

    state: JobPhase
    table: str
    identity: bytes  # `TableSchema.identity`; empty in records and tables that are older than identities
    mode: WriteMode
    time: float  # of this record, in seconds since the epoch
    decider: str = ""  # the random name of the `commit_write` call that decided the job
    staged: tuple[str, ...] = ()  # while it is applied: the staged rows to commit
    schema: bytes = b""  # while it is applied: the table as of the decision, encoded
    loading: tuple[bytes, ...] = ()  # while it overwrites: the spaces that its callers load
    stream: str | None = None  # the stream of a batch
    batch: int = 0
    missing: int = 0  # once it is decided: the number of keys that required a row and had none

    @property
    def committed(self) -> bool:
        """Whether the job is decided, so that its rows are visible to every later snapshot."""
        return self.state in ("applying", "committed")

    def belongs_to(self, schema: TableSchema | None) -> bool:
        """Return whether this is a job of this very table, not of a dropped one with the same name."""
        return schema is not None and (self.table, self.identity) == (schema.spec.name, schema.identity)

    def becoming(self, state: JobPhase, decider: str = "") -> JobRecord:
        """Return the record of the job's next state, without the fields specific to the last one."""
        return replace(
            self, state=state, time=time.time(), decider=decider or self.decider, staged=(), schema=b"", loading=()
        )

    def without(self, space: bytes) -> JobRecord:
        """Return the record without a space that one of the callers loads."""
        return replace(self, loading=tuple(one for one in self.loading if one != space))

    def outcome(self) -> dict[bytes, bytes | None]:
        """Return the record of the job's stream that the commit of a decided job writes; empty without a stream."""
        if self.stream is None:
            return {}
        record = StreamRecord(self.table, self.identity, self.batch, self.decider, self.missing)
        return {stream_key(self.table, self.stream): record.encode()}

    def once_whole(self) -> bytes | None:
        """Return the encoded record of a job whose rows are all applied; None for a batch, which `outcome` records."""
        return None if self.stream is not None else self.becoming("committed").encode()

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
            document["loading"] = b"".join(self.loading).hex()
        if self.stream is not None:
            document |= {"stream": self.stream, "batch": self.batch}
        if self.missing:
            document["missing"] = self.missing
        return json.dumps(document).encode()

    @classmethod
    def decode(cls, job_id: str, raw: bytes) -> Self:
        try:
            document = json.loads(raw)
            if document["state"] not in _STATES:
                raise ValueError(f"the state {document['state']!r} is not one of {', '.join(_STATES)}")
            return cls(
                document["state"],
                document["table"],
                bytes.fromhex(document.get("identity", "")),
                WriteMode(document["mode"]),
                float(document["time"]),
                document.get("decider", ""),
                tuple(document.get("staged", ())),
                bytes.fromhex(document.get("schema", "")),
                _spaces(bytes.fromhex(document.get("loading", ""))),
                document.get("stream"),
                int(document.get("batch", 0)),
                int(document.get("missing", 0)),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataCorruptionError(f"the record of the write job {job_id!r} cannot be decoded: {error!r}") from error


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The effect of a job's applied chunks."""

    end: bytes = b""
    """The end of the last chunk in the order of the rows."""
    entries: int = 0
    """The number of entries that the chunks appended to the change feed of the table."""
    number: int | None = 0
    """The number of records in these entries, for a feed of the producer `input`; None if it is unknown."""

    def encode(self, schema: TableSchema) -> bytes:
        if schema.feed is None:
            return self.end
        if self.number is None:
            return self.entries.to_bytes(_NUMBER_BYTES) + self.end
        return b"%b%b%b" % (
            (self.entries | _HAS_NUMBER).to_bytes(_NUMBER_BYTES),
            self.number.to_bytes(_RECORDS_BYTES),
            self.end,
        )

    @classmethod
    def decode(cls, raw: bytes, schema: TableSchema) -> Self:
        if schema.feed is None or not raw:
            return cls(raw)
        entries, rest = int.from_bytes(raw[:_NUMBER_BYTES]), raw[_NUMBER_BYTES:]
        if not entries & _HAS_NUMBER:  # a feed of images, or an entry of older software
            return cls(rest, entries, None)
        return cls(rest[_RECORDS_BYTES:], entries & ~_HAS_NUMBER, int.from_bytes(rest[:_RECORDS_BYTES]))


def job_name(job: WriteJob) -> str:
    """Return the name under which the catalog knows a job: its id, or for a batch a text that includes the table.

    Streams of several tables may have one name, and no user's id has the form of such a text.
    """
    return job.job_id if job.stream is None else f"batch {job.batch} of stream {job.table}/{job.stream}"


def job_key(job_id: str) -> bytes:
    """Return the key of a write job's record."""
    return _JOBS + job_id.encode()


def progress_key(job_id: str) -> bytes:
    """Return the key under which a job that is being applied writes its `JobProgress`."""
    return _PROGRESS + job_id.encode()


def runs_owner(job_id: str, identity: bytes) -> str:
    """Return the owner under which an engine keeps the runs of a job.

    A job of the same id on a dropped and recreated table has another owner, so that a late end of the first job leaves
    the runs of the second.
    """
    return _digest(f"{identity.hex()} {job_id}")


def earlier_runs_owner(job_id: str) -> str:
    """Return the owner under which software from before identities kept the runs of a job."""
    return _digest(job_id)


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def read_job(snapshot: EngineSnapshot, job_id: str) -> JobRecord | None:
    """Return the record of a job."""
    raw = snapshot.get(job_key(job_id))
    return None if raw is None else JobRecord.decode(job_id, raw)


def list_jobs(snapshot: EngineSnapshot) -> Iterator[tuple[str, JobRecord]]:
    """Yield ids and records of all write jobs."""
    for key, raw in snapshot.scan(_JOBS, successor(_JOBS)):
        job_id = key[len(_JOBS) :].decode(errors="replace")
        yield job_id, JobRecord.decode(job_id, raw)


def discard_loading(record: JobRecord, changes: WriteSet) -> None:
    """Schedule the collection of the spaces that attempts to commit a job loaded."""
    changes.writes |= {garbage_key(space): b"\x01" for space in record.loading}


def _spaces(raw: bytes) -> tuple[bytes, ...]:
    return tuple(raw[at : at + SPACE_BYTES] for at in range(0, len(raw), SPACE_BYTES))
