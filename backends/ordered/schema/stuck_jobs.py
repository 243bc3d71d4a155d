"""Tables whose decided write job cannot be completed because its staged rows are lost or damaged.

Some rows of such a job may be in place and others not. The table rejects reads and writes until its job is completed,
for example after its files were restored, or given up; all other tables are unaffected.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from structable.backends.ordered.engine import SPACE_BYTES, EngineSnapshot, successor
from structable.backends.ordered.table_schema import TableSchema, folded_name
from structable.spi import DataCorruptionError

_STUCK = b"\0" * SPACE_BYTES + b"\x14"  # in the catalog's space


@dataclass(frozen=True, slots=True)
class StuckJob:
    """A decided job that cannot be completed."""

    table: str
    job_id: str
    identity: bytes
    problem: str

    @property
    def text(self) -> str:
        return (
            f"its write job {self.job_id!r} was decided and cannot be completed, so that rows of the job may be "
            f"missing: {self.problem}"
        )

    def encode(self) -> bytes:
        return json.dumps([self.table, self.job_id, self.identity.hex(), self.problem]).encode()

    @classmethod
    def decode(cls, raw: bytes) -> StuckJob:
        table, job_id, identity, problem = json.loads(raw)
        return cls(table, job_id, bytes.fromhex(identity), problem)


def stuck_key(table: str) -> bytes:
    """Return the key that records the stuck job of a table."""
    return _STUCK + folded_name(table)


def list_stuck(snapshot: EngineSnapshot) -> Iterator[StuckJob]:
    """Yield the stuck jobs of all tables."""
    for _, raw in snapshot.scan(_STUCK, successor(_STUCK)):
        yield StuckJob.decode(raw)


def require_whole(raw: bytes | None, schema: TableSchema) -> None:
    """Raise `DataCorruptionError` if a table has a stuck job."""
    if raw is None:
        return
    job = StuckJob.decode(raw)
    if job.identity == schema.identity:
        raise DataCorruptionError(
            f"table {schema.spec.name!r} is not whole: {job.text}; restore what is missing and connect again, or give "
            "the job up with `structable doctor --repair`"
        )
