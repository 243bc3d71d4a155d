"""`Prewrite`: everything that a transaction writes and reads before its decision, in one round trip.

From its first write to its decision a transaction is a `PendingCommit`.

The order is the protocol. Every transaction is listed, has its record and has written its intents before it draws its
commit timestamp, and looks for others after that: of two overlapping transactions, at least one sees the other,
whatever the timing.

A commit never checks whether its record was created: the put is below every timestamp of HBase's own clock, so it
changes nothing if another process has already put an aborted record, which the decision then finds. The put is sent
only once: a repeated put could arrive after the record was aborted and removed with the intents, and would create it
again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from structable.backends.hbase.failpoints import failpoints, stepwise
from structable.backends.hbase.layout import (
    CLOCK,
    GATE_LANES,
    GATES,
    MARKER,
    TICK,
    VALUE,
    Layout,
    gate_column,
    intent_column,
)
from structable.backends.hbase.thrift.errors import ConnectionLostError, ServerError, is_refusal
from structable.backends.hbase.thrift.requests import Cells, ThriftCall, get_row, increment, put_column
from structable.backends.hbase.thrift.retry import pause
from structable.spi import StorageUnavailableError, TransactionConflictError

from .context import PrefixContext
from .gate import Gate, gate_kinds
from .intent_set import IntentSet
from .intents import RowId, intent_cells, read_rows, row_calls
from .recent_writes import Digest, Rows, read_lists
from .schema_lease import wait_out_leases
from .session import ProcessSession
from .status import ABORTED, PENDING, Status

_CALLS_AT_ONCE = 40
_ROWS_PER_RENEWAL = 10_000


def draw_timestamp(layout: Layout) -> ThriftCall[int]:
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

    def renew_lease(self, context: PrefixContext) -> None:
        """Renew the lease if a third of it has passed; a conflict if another process has aborted the transaction."""
        if time.monotonic() < self.renewed_at + context.settings.lease / 3:
            return
        self.renewed_at = time.monotonic()
        found = context.status_table.change(self.txid, self.status, self.status.with_heartbeat())
        if found is None or found.state != PENDING:
            raise TransactionConflictError("another process aborted this transaction because its lease had expired")
        self.status = found

    def note_end(self, session: ProcessSession) -> None:
        """Record in the session's list the commit timestamp, or its upper bound if the outcome is unknown."""
        status = self.status
        possible = 0 if status.state == ABORTED else status.commit or self.timestamp
        session.recent.end(self.txid, possible or None)


class RecordUnknownError(Exception):
    """It is unknown whether a transaction has a record: abort it, and begin again under another id."""

    def __init__(self, reason: StorageUnavailableError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class ReadBack(NamedTuple):
    """The `cells` of rows that a transaction read after its intents were written.

    Another transaction may have written `rows`, which this one writes too, and the `markers` of schemas that it relies
    on. No other transaction has written the rest.
    """

    cells: dict[RowId, Cells]
    rows: set[RowId]
    markers: set[RowId]


class Prewrite:
    """The first flight of a commit."""

    def __init__(self, context: PrefixContext) -> None:
        self._context = context
        self._gateway = context.gateway
        self._layout = context.layout
        self._status_table = context.status_table
        self._settings = context.settings
        self._gate = Gate(context)

    def run(self, session: ProcessSession, pending: PendingCommit, intents: IntentSet, encoded: bytes) -> ReadBack:
        """List the rows, create the record, write the intents, draw the timestamp, and look for other transactions.

        `encoded` has the written rows, as the record stores them.
        """
        record = self._status_table.record(pending.txid, pending.status, encoded)
        kinds = gate_kinds(pending.txid, intents.appends)
        new = {feed for feed, kind in kinds.items() if kind == GATE_LANES and feed not in session.gates}
        if new:
            record[GATES] = {gate_column(session.id, feed): b"\x01" for feed in new}
        seen = self._run(session, pending, intents, record)
        session.gates |= new
        return seen

    def _run(self, session: ProcessSession, pending: PendingCommit, intents: IntentSet, record: Rows) -> ReadBack:
        txid, recent, layout = pending.txid, session.recent, self._layout
        first = recent.enter(txid, Digest.of(intents), record)
        puts: list[ThriftCall[object]] = []
        for space, one in intents.spaces.items():
            puts += put_column(layout.table(space), intent_column(txid), intent_cells(txid, one.all), pending.start)
        entering = self._gate.entering(txid, pending.start, intents.appends)
        puts += entering
        rows = {(space, row) for space, one in intents.spaces.items() for row in one.checked}
        markers = {(space, layout.row(space + MARKER)) for space in intents.markers}
        if intents.schemas:
            self._announce(pending, intents, first)
        elif len(puts) >= _CALLS_AT_ONCE:
            self._flight([first], once=True)
        else:
            puts.insert(0, first)
        # Bounds of steps need one consistent view, and schema changes are rare: both read every row back.
        if intents.steps or intents.schemas or recent.reads_back(len(rows), self._settings.read_back_rows):
            reads, decode = row_calls(layout, [*rows, *markers])
            return ReadBack(decode(self._send(pending, puts, len(entering), reads)), rows, markers)
        lists = self._send(pending, puts, len(entering), [read_lists(layout)])[0]
        assert isinstance(lists, dict)
        suspects = recent.suspects(txid, pending.start, {*rows, *markers}, lists)
        return ReadBack(self._read_back(pending, list(suspects)), rows & suspects, markers & suspects)

    def _send(
        self,
        pending: PendingCommit,
        puts: Sequence[ThriftCall[object]],
        entering: int,
        reads: Sequence[ThriftCall[object]],
    ) -> Sequence[object]:
        """Make the puts, draw the timestamp, make the reads, and return their results.

        The last `entering` puts are entries into gates.
        """
        drawing = draw_timestamp(self._layout)
        drawn = len(puts)
        if drawn <= _CALLS_AT_ONCE:
            points = {drawn - 1: "after_gate"} if entering else {}
            points |= {0: "after_record", drawn - 1 - entering: "after_intents", drawn: "after_timestamp"}
            found = self._flight([*puts, drawing, *reads], points, once=True)[drawn:]
        else:
            for first in range(0, drawn, _CALLS_AT_ONCE):
                self._flight(puts[first : first + _CALLS_AT_ONCE])
                pending.renew_lease(self._context)
            found = self._flight([drawing])
            for first in range(0, len(reads), _CALLS_AT_ONCE):
                pending.renew_lease(self._context)
                found += self._flight(reads[first : first + _CALLS_AT_ONCE])
        timestamp = found[0]
        assert isinstance(timestamp, int)
        pending.timestamp = timestamp
        return found[1:]

    def _read_back(self, pending: PendingCommit, rows: Sequence[RowId]) -> dict[RowId, Cells]:
        cells: dict[RowId, Cells] = {}
        for first in range(0, len(rows), _ROWS_PER_RENEWAL):
            pending.renew_lease(self._context)
            cells.update(read_rows(self._gateway, self._layout, rows[first : first + _ROWS_PER_RENEWAL]))
        return cells

    def _announce(self, pending: PendingCommit, intents: IntentSet, first: ThriftCall[object]) -> None:
        """Create the record, write intents to the markers of changed schemas, and wait out all schema leases."""
        column = intent_column(pending.txid)
        announced, looked = [first], list[ThriftCall[object]]()
        for space in intents.schemas:
            table, marker = self._layout.table(space), self._layout.row(space + MARKER)
            cells = intent_cells(pending.txid, {marker: intents.spaces[space].checked[marker]})
            announced += put_column(table, column, cells, pending.start)
            looked.append(get_row(table, marker, [VALUE]))
        found = self._flight([*announced, *looked], {0: "after_record"}, once=True)
        if any(found[len(announced) :]):
            # A new table needs no wait: no process has a lease on its schema yet.
            wait_out_leases()
            pending.renew_lease(self._context)

    def _flight(
        self,
        calls: Sequence[ThriftCall[object]],
        points: Mapping[int, str] = MappingProxyType({}),
        *,
        once: bool = False,
    ) -> list[object]:
        """Make calls; without the record, they are repeated after errors, which may leave a timestamp unused.

        Raises `RecordUnknownError` if calls that must not be repeated fail.
        """
        deadline = time.monotonic() + self._settings.timeout
        while True:
            try:
                if failpoints:
                    return stepwise(self._gateway.flight, calls, points)
                return self._gateway.flight(calls)
            except (ConnectionLostError, ServerError) as error:
                if time.monotonic() > deadline or is_refusal(error):
                    raise
                if once:
                    raise RecordUnknownError(error) from error
                pause()
