"""`PendingCommit`: one transaction between its first write and its decision."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from structable.backends.hbase.layout import CLOCK, TICK, Layout
from structable.backends.hbase.thrift.requests import Call, increment
from structable.spi.errors import TransactionConflictError

from .context import Context
from .intent_set import IntentSet
from .session import Session
from .status import ABORTED, PENDING, Status

__all__ = ["PendingCommit", "draw_timestamp"]


def draw_timestamp(layout: Layout) -> Call[int]:
    """Return the call that draws a commit timestamp."""
    return increment(layout.transactions, CLOCK, TICK, 1)


@dataclass(slots=True)
class PendingCommit:
    """A transaction that is being committed."""

    txid: bytes
    start: int  # the timestamp of its snapshot
    intents: IntentSet | None  # None for a write job, whose rows are not kept in memory
    status: Status  # as last seen in the status table
    timestamp: int = 0  # the commit timestamp drawn for it; 0 before
    renewed_at: float = field(default_factory=time.monotonic)

    def renew_lease(self, context: Context) -> None:
        """Renew the lease if a third of it has passed; a conflict if another process has aborted the transaction."""
        if time.monotonic() < self.renewed_at + context.settings.lease / 3:
            return
        self.renewed_at = time.monotonic()
        found = context.status_table.change(self.txid, self.status, self.status.with_heartbeat())
        if found is None or found.state != PENDING:
            raise TransactionConflictError("another process aborted this transaction because its lease had expired")
        self.status = found

    def note_end(self, session: Session) -> None:
        """Record in the session's list the commit timestamp, or its upper bound if the outcome is unknown."""
        status = self.status
        possible = 0 if status.state == ABORTED else status.commit or self.timestamp
        session.recent.end(self.txid, possible or None)
