"""`Janitor`: finishes the transactions of dead processes, and removes versions that no snapshot can read.

Its work list is the records of transactions; tables of rows are searched only after write jobs. Every step may be
repeated, and two processes may take it at once.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain

from structable.backends.hbase.failpoints import failpoints, reach
from structable.backends.hbase.layout import (
    GATE_FAMILY,
    GATES,
    GC,
    JANITOR,
    RECENT,
    SESSION_BYTES,
    STATE,
    VALUE,
    gate_lanes,
    gate_of_column,
    intent_column,
    session_of_list,
)
from structable.backends.hbase.thrift.errors import TableDisabledError, TableMissingError
from structable.backends.hbase.thrift.requests import (
    ROWS_AT_ONCE,
    ThriftCall,
    compare_and_put,
    delete_columns,
    delete_row,
    get_row,
    get_rows,
    put_then_delete,
)
from structable.backends.hbase.txn.bulk import bulk_intents, bulk_versions
from structable.backends.hbase.txn.context import PrefixContext
from structable.backends.hbase.txn.gate import Gate
from structable.backends.hbase.txn.intent_resolution import IntentResolution
from structable.backends.hbase.txn.intents import LOCK, TOMBSTONE, intent_of
from structable.backends.hbase.txn.recent_writes import read_lists
from structable.backends.hbase.txn.session import CLOSED, DEAD, ProcessSession, read_clock
from structable.backends.hbase.txn.sessionless import publish_removed
from structable.backends.hbase.txn.status import ABORTED, COMMITTED, PENDING, Status, StatusHead
from structable.backends.hbase.txn.unchecked_writes import safe_point
from structable.spi import DataCorruptionError, InvalidFieldError

from .rounds import LastSeen, RoundReport, RoundWork

_RECORDS_AT_ONCE = 50
_CALLS_AT_ONCE = 50

_log = logging.getLogger("structable.hbase")


class Janitor:
    """Cleans up the store of one prefix; rounds run one at a time."""

    def __init__(self, context: PrefixContext) -> None:
        self._gateway = context.gateway
        self._layout = context.layout
        self._status_table = context.status_table
        self._settings = context.settings
        self._resolution = IntentResolution(context)
        self._gate = Gate(context)
        self._sessions_seen = LastSeen()
        self._statuses_seen = LastSeen()
        self._lease_seen = LastSeen()
        self._lock = threading.Lock()

    def run(self, session: ProcessSession, *, alone: bool = False) -> RoundReport | None:
        """Do one round and return its report; None if another process has the lease, unless `alone` ignores it.

        After an error the next round continues the work.
        """
        with self._lock:
            return self._run(session, alone=alone)

    def _run(self, session: ProcessSession, *, alone: bool) -> RoundReport | None:
        if not alone and not self._take_lease(session):
            return None
        report = RoundReport()
        # The clock first: a snapshot that begins later is at or above it. The lists before the sessions: a process
        # sends its first heartbeat before it writes its list and records, so every list found here has a session.
        report.clock = read_clock(self._gateway, self._layout)
        lists = self._gateway.call(read_lists(self._layout))
        gates = self._gateway.call(get_row(self._layout.transactions, GATES, [GATE_FAMILY]))
        left = {session_of_list(column): (column, at) for column, (_, at) in lists.items()}
        gone = {gate_of_column(column)[0] for column in gates} | left.keys()
        watermarks = self._low_watermarks(report, gone)
        work = self._look(session, min([report.clock, *watermarks]), report, gone)
        self.remove_lists(one for session, one in left.items() if session in gone)
        for column, (_, at) in gates.items():
            if gate_of_column(column)[0] in gone:
                self._remove_gate(column, at, report.clock)
        self._repair(work, report)
        previous = safe_point(self._gateway, self._layout)
        safe = max(previous, work.least)
        if safe > previous:
            self._publish(previous, safe)
        report.safe = safe
        reach("before_gc")
        self._remove_versions(work, safe, report)
        self._remove_aborted(work.aborted, report)
        if report.repaired or report.dead_sessions or report.removed:
            _log.info(
                "janitor of %s: %d transactions of dead processes finished, %d sessions ended, %d records removed",
                self._layout.prefix,
                report.repaired,
                report.dead_sessions,
                report.removed,
            )
        return report

    def remove_lists(self, left: Iterable[tuple[bytes, int]]) -> None:
        """Remove the lists of ended processes without records: every snapshot is newer than their commits.

        If such a process is alive after all, its next list is newer and remains.
        """
        table = self._layout.transactions
        calls = [put_then_delete(table, {}, {RECENT: [column]}, at) for column, at in left]
        for begin in range(0, len(calls), _CALLS_AT_ONCE):
            self._gateway.flight(calls[begin : begin + _CALLS_AT_ONCE], retry=True)

    def _remove_gate(self, column: bytes, at: int, clock: int) -> None:
        """Remove an ended process's gate entries without records; `column` of row `GATES` names session and feed."""
        session, feed = gate_of_column(column)
        with suppress(TableMissingError):  # the feed is gone
            lanes = delete_columns(self._layout.table(feed), [gate_lanes(session)], [GATE_FAMILY], clock)
            self._gateway.flight(lanes, retry=True)
        self._gateway.call(put_then_delete(self._layout.transactions, {}, {GATES: [column]}, at))

    def _look(self, session: ProcessSession, least: int, report: RoundReport, gone: set[bytes]) -> RoundWork:
        """Read all records, perhaps a hundred thousand, and collect the work.

        Transactions in progress in this process count as alive, however long they take. Sessions that have records are
        removed from `gone`.
        """
        work = RoundWork(least)
        removable = max(self._settings.lease, self._settings.late_writes)
        with self._statuses_seen.round():
            for txid, outline in self._status_table.all():
                _count(report, outline)
                gone.discard(txid[:SESSION_BYTES])
                silent = self._statuses_seen.unchanged_for(txid, outline.liveness)
                if outline.state == PENDING:
                    if silent >= self._settings.lease and not session.holds(txid):
                        work.pending.append(txid)
                    else:
                        work.least = min(work.least, outline.status.start)
                elif outline.state == ABORTED:
                    if silent >= removable:
                        work.aborted.append(txid)
                elif outline.finalised and outline.commit <= least and silent >= self._settings.late_writes:
                    work.replacing.append((outline.commit, txid))
                else:
                    work.first = min(work.first, outline.commit)
                    if not outline.finalised and silent >= self._settings.lease:
                        work.unfinalised.append((txid, outline.status))
        return work

    def inspect(self) -> RoundReport:
        """Report without changing anything."""
        report = RoundReport()
        report.clock = read_clock(self._gateway, self._layout)
        with self._lock:
            self._low_watermarks(report, set(), change=False)
        for _, outline in self._status_table.all():
            _count(report, outline)
        report.safe = safe_point(self._gateway, self._layout)
        return report

    def _take_lease(self, session: ProcessSession) -> bool:
        """Get or renew the janitor's lease, which another process may take once it has expired."""
        table, mine = self._layout.transactions, session.id.hex().encode() + b"|%d" % time.monotonic_ns()
        cells = self._gateway.call(get_row(table, JANITOR, [STATE]))
        held = cells[STATE][0] if STATE in cells else None
        if held is not None and not held.startswith(session.id.hex().encode() + b"|"):
            between = self._lease_seen.unchanged_for(JANITOR, held)
            if between < 2 * self._settings.housekeeping:
                return False
        return self._gateway.call(compare_and_put(table, JANITOR, STATE, held, mine), retry=False)

    def _low_watermarks(self, report: RoundReport, gone: set[bytes], *, change: bool = True) -> list[int]:
        """Return the low watermarks of live sessions; declare silent ones dead, and remove their plans.

        All sessions found are removed from `gone`.
        """
        table = self._layout.transactions
        watermarks: list[int] = []
        alive: set[str] = set()
        ended: list[bytes] = []
        pages = self._gateway.pages(table, b"g", b"gc", [STATE], before=None, page_rows=500)
        with self._sessions_seen.round():
            for row, cells in chain.from_iterable(pages):
                raw = cells[STATE][0]
                gone.discard(row[1:])
                silent = self._sessions_seen.unchanged_for(row, raw)
                if raw in (DEAD, CLOSED):
                    if silent > self._settings.session_timeout:
                        ended.append(row)
                    continue
                if silent > self._settings.session_timeout and change:
                    self._gateway.call(compare_and_put(table, row, STATE, raw, DEAD), retry=False)
                    report.dead_sessions += 1
                    _log.warning("declared session %d dead: no heartbeat for %.0f s", int.from_bytes(row[1:]), silent)
                    # If it has just come back, the next round sees its heartbeat.
                report.sessions += 1
                alive.add(row[1:].hex())
                watermarks.append(int(raw.partition(b"|")[0]))
        if change and ended:
            self._gateway.flight([delete_row(table, row) for row in ended], retry=True)
        self._plans(alive, report, change=change)
        return watermarks

    def _plans(self, alive: set[str], report: RoundReport, *, change: bool) -> None:
        table = self._layout.transactions
        lost = []
        for page in self._gateway.pages(table, b"p", b"q", [STATE], before=None, page_rows=500):
            for row, cells in page:
                if _planner(cells[STATE][0]) in alive:
                    report.plans += 1
                else:
                    lost.append(row)
        if change and lost:
            self._gateway.flight([delete_row(table, row) for row in lost], retry=True)

    def _repair(self, work: RoundWork, report: RoundReport) -> None:
        """Abort the pending transactions of dead processes, and finalise the committed ones."""
        for txid in work.pending:
            ended = self._status_table.abort(txid)
            report.repaired += 1
            if ended.state == COMMITTED:
                work.first = min(work.first, ended.commit)  # its owner was faster
            else:
                _log.warning("aborted transaction %s of another process: its lease expired", txid.hex())
        for txid, status in work.unfinalised:
            # Read the status again: resolving intents long after the finalisation could bring back removed rows.
            current = self._status_table.status(txid)
            if current is None or current.finalised:
                continue
            try:
                self._finish(txid, status)
            except (TableDisabledError, DataCorruptionError, InvalidFieldError) as error:
                # It keeps its record, as do all later commits; readers take their values from the intents.
                _log.warning("finalising transaction %s of another process failed: %s", txid.hex(), error)
                reach("repair_failed")
                continue
            self._status_table.change(txid, status, status.with_finalised())
            report.repaired += 1

    def _finish(self, txid: bytes, status: Status) -> None:
        """Finalise a committed transaction of another process from its intents; rows without an intent are done."""
        for space, rows in self._finish_unlisted(txid, status).items():
            names = list(rows)
            table = self._layout.table(space)
            for begin in range(0, len(names), ROWS_AT_ONCE):
                call = get_rows(table, names[begin : begin + ROWS_AT_ONCE], [intent_column(txid)])
                try:
                    found = self._gateway.call(call)
                except TableMissingError:
                    break
                intents = {row: intent for row, cells in found if (intent := intent_of(txid, cells)) is not None}
                if intents:
                    self._resolution.resolve(txid, status, {space: intents})

    def _finish_unlisted(self, txid: bytes, status: Status) -> Mapping[bytes, Mapping[bytes, int]]:
        """Finish an ended transaction's entries, and its rows unless its record lists them; return the listed rows."""
        writes = self._status_table.writes_of(txid, status)
        self._gate.finish(txid, status, writes.gates)
        if not status.unlisted:
            return writes.rows
        for space, intents in bulk_intents(self._gateway, self._layout, txid, status):
            self._resolution.resolve(txid, status, {space: intents})
        return {}

    def _publish(self, previous: int, safe: int) -> None:
        expected = b"%d" % previous if previous else None
        self._gateway.call(compare_and_put(self._layout.transactions, GC, STATE, expected, b"%d" % safe), retry=False)

    def _remove_versions(self, work: RoundWork, safe: int, report: RoundReport) -> None:
        """Remove the versions that commits replaced, in commit order, up to the first commit that must wait.

        Out of order, a late write could restore a row that a later transaction has deleted.
        """
        upto = [(commit, txid) for commit, txid in sorted(work.replacing) if commit <= safe and commit < work.first]
        ready = [txid for _, txid in upto]
        if upto:
            publish_removed(self._gateway, self._layout, upto[-1][0])
        for begin in range(0, len(ready), _RECORDS_AT_ONCE):
            part = ready[begin : begin + _RECORDS_AT_ONCE]
            statuses = self._status_table.statuses(part)
            calls: list[ThriftCall[None]] = []
            for txid in part:
                if txid in statuses:  # else another process removed it
                    for call in self._removals(txid, statuses[txid]):
                        calls.append(call)
                        if failpoints or len(calls) == _CALLS_AT_ONCE:
                            self._remove(calls)
                            calls = []
                reach("mid_gc")
            self._remove(calls)
            reach("after_gc")
            self._gateway.flight(self._status_table.drop(part), retry=True)
            report.removed += len(part)

    def _removals(self, txid: bytes, status: Status) -> Iterator[ThriftCall[None]]:
        """Yield the calls that remove the versions that a commit replaced, and all versions of rows that it deleted."""
        if status.unlisted:
            for space, found in bulk_versions(self._gateway, self._layout, status):
                yield from self._removals_in(space, found, status.commit)
            return
        for space, kinds in self._status_table.writes_of(txid, status).rows.items():
            yield from self._removals_in(space, kinds, status.commit)

    def _removals_in(self, space: bytes, kinds: Mapping[bytes, int], commit: int) -> Iterator[ThriftCall[None]]:
        table = self._layout.table(space)
        deleted = [row for row, kind in kinds.items() if kind == TOMBSTONE]
        replaced = [row for row, kind in kinds.items() if kind not in (TOMBSTONE, LOCK)]
        yield from delete_columns(table, deleted, [VALUE], commit)
        yield from delete_columns(table, replaced, [VALUE], commit - 1)

    def _remove(self, calls: Sequence[ThriftCall[None]]) -> None:
        """Make the calls in order, skipping dropped tables."""
        try:
            self._gateway.flight(calls, retry=True)
        except TableMissingError:
            for call in calls:
                with suppress(TableMissingError):
                    self._gateway.call(call)

    def _remove_aborted(self, ready: list[bytes], report: RoundReport) -> None:
        """Remove the intents and records of aborted transactions whose writes can no longer arrive."""
        for begin in range(0, len(ready), _RECORDS_AT_ONCE):
            part = ready[begin : begin + _RECORDS_AT_ONCE]
            for txid, status in self._status_table.statuses(part).items():
                left = self._finish_unlisted(txid, status)
                removed = {space: dict.fromkeys(rows, b"L") for space, rows in left.items()}
                self._resolution.resolve(txid, status, removed)
            self._gateway.flight(self._status_table.drop(part), retry=True)
            report.removed += len(part)


def _count(report: RoundReport, status: StatusHead) -> None:
    if status.state == PENDING:
        report.pending += 1
    elif status.state == ABORTED:
        report.aborted += 1
    elif status.finalised:
        report.finalised += 1
    else:
        report.unfinalised += 1


def _planner(raw: bytes) -> str | None:
    """Return the session of a plan's record; None, as for a plan without a session, if the record is unreadable."""
    try:
        return str(json.loads(raw)["session"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
