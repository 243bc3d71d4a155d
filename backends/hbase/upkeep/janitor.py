"""`Janitor`: finishes what dead processes left, and removes versions that nobody can read any more.

Its work list is the records of transactions; no table of rows is ever searched, but for what write jobs wrote. Every
step may be repeated, and done by two processes at once.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain

from structable.backends.hbase.failpoints import failpoints, reach
from structable.backends.hbase.layout import (
    GC,
    JANITOR,
    RECENT,
    SESSION_BYTES,
    STATE,
    VALUE,
    Layout,
    intent_column,
    lister_of,
)
from structable.backends.hbase.settings import Settings
from structable.backends.hbase.thrift.errors import TableDisabledError, TableMissingError
from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.hbase.thrift.requests import (
    ROWS_AT_ONCE,
    Call,
    compare_and_put,
    delete_row,
    get_row,
    get_rows,
    put_then_delete,
)
from structable.backends.hbase.txn.bulk_search import bulk_intents, bulk_versions
from structable.backends.hbase.txn.finaliser import Placing
from structable.backends.hbase.txn.intents import LOCK, TOMBSTONE, intent_of
from structable.backends.hbase.txn.recent_writes import read_lists
from structable.backends.hbase.txn.session import CLOSED, DEAD, Session, read_clock
from structable.backends.hbase.txn.status import ABORTED, COMMITTED, PENDING, Outline, Status
from structable.backends.hbase.txn.status_table import Records
from structable.backends.hbase.txn.unheld import publish_removed
from structable.spi.errors import DataCorruptionError, InvalidFieldError

from .last_seen import Sightings

__all__ = ["Janitor", "Report"]

_RECORDS_AT_ONCE = 50
_CALLS_AT_ONCE = 50


@dataclass(slots=True)
class Report:
    """What a round found and did.

    Parameters
    ----------
    pending, aborted, unfinalised, finalised : int
        Records by state, as they were found.
    sessions, dead_sessions, plans : int
        Processes alive, processes silent for too long, pinned snapshots.
    clock, safe : int
        The newest timestamp, and the oldest that can still be read.
    repaired, removed : int
        Transactions aborted or finalised in a dead process's stead; records removed with the versions they replaced.
    """

    pending: int = 0
    aborted: int = 0
    unfinalised: int = 0
    finalised: int = 0
    sessions: int = 0
    dead_sessions: int = 0
    plans: int = 0
    clock: int = 0
    safe: int = 0
    repaired: int = 0
    removed: int = 0


@dataclass(slots=True)
class _Work:
    """What a round has found to be done; of the many records that only wait for their time, nothing.

    Parameters
    ----------
    least : int
        The least timestamp that somebody may still read at or commit above.
    pending, unfinalised : list
        Transactions that have been silent for longer than their lease; the latter with their statuses.
    replacing : list of int and bytes
        Commit timestamp and transaction, where what was replaced may go.
    first : int
        The least commit timestamp of those that have to wait: what was committed later has to wait for it.
    aborted : list of bytes
        Transactions of which no write can come late any more.
    """

    least: int
    pending: list[bytes] = field(default_factory=list)
    unfinalised: list[tuple[bytes, Status]] = field(default_factory=list)
    replacing: list[tuple[int, bytes]] = field(default_factory=list)
    first: int = 2**64
    aborted: list[bytes] = field(default_factory=list)


class Janitor:
    """Cleans up a prefix.

    Parameters
    ----------
    gateway : Gateway
        Where HBase is.
    layout : Layout
        The names.
    records : Records
        The statuses.
    placing : Placing
        Finalises.
    settings : Settings
        After what times.
    """

    def __init__(
        self, gateway: Gateway, layout: Layout, records: Records, placing: Placing, settings: Settings
    ) -> None:
        self._gateway = gateway
        self._layout = layout
        self._records = records
        self._placing = placing
        self._settings = settings
        self._sessions_seen = Sightings()
        self._records_seen = Sightings()
        self._lease_seen = Sightings()
        self._lock = threading.Lock()

    def run(self, session: Session, *, alone: bool = False) -> Report | None:
        """Do one round; None if another process has the lease of this work, unless `alone` says to do it anyway.

        Threads do it one after another.

        Raises
        ------
        StorageUnavailableError
            If HBase cannot be reached; what was done stays done.
        """
        with self._lock:
            return self._run(session, alone=alone)

    def _run(self, session: Session, *, alone: bool) -> Report | None:
        if not alone and not self._take_lease(session):
            return None
        report = Report()
        # In this order: what begins later than the counter is read begins at it or above; and whoever's list is there
        # has, or had, a sign of life and records that are looked for after it.
        report.clock = read_clock(self._gateway, self._layout)
        lists = self._gateway.call(read_lists(self._layout))
        left = {lister_of(column): (column, at) for column, (_, at) in lists.items()}
        floors = self._floors(report, left)
        work = self._look(min([report.clock, *floors]), report, left)
        self._remove_lists(left.values())
        self._repair(work, report)
        previous = self._published()
        safe = max(previous, work.least)
        if safe > previous:
            self._publish(previous, safe)
        report.safe = safe
        reach("before_gc")
        self._remove_versions(work, safe, report)
        self._remove_aborted(work.aborted, report)
        return report

    def _remove_lists(self, left: Iterable[tuple[bytes, int]]) -> None:
        """Remove the lists of processes that have ended and have no record left, so that no snapshot is that old.

        A process that is not as dead as it seems puts a later list, which stays.
        """
        table = self._layout.transactions
        calls = [put_then_delete(table, {}, {RECENT: [column]}, at) for column, at in left]
        for begin in range(0, len(calls), _CALLS_AT_ONCE):
            self._gateway.flight(calls[begin : begin + _CALLS_AT_ONCE], retry=True)

    def _look(self, least: int, report: Report, left: dict[bytes, tuple[bytes, int]]) -> _Work:
        """Look at all records, of which there may be a hundred thousand, and remember what is to be done.

        Whose records are there is taken out of `left`.
        """
        work = _Work(least)
        removable = max(self._settings.lease, self._settings.late_writes)
        with self._records_seen.round():
            for txid, outline in self._records.all():
                _count(report, outline)
                left.pop(txid[:SESSION_BYTES], None)
                silent = self._records_seen.unchanged_for(txid, outline.life)
                if outline.state == PENDING:
                    if silent >= self._settings.lease:
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

    def inspect(self) -> Report:
        """Look, and change nothing."""
        report = Report()
        report.clock = read_clock(self._gateway, self._layout)
        with self._lock:
            self._floors(report, {}, change=False)
        for _, outline in self._records.all():
            _count(report, outline)
        report.safe = self._published()
        return report

    def _take_lease(self, session: Session) -> bool:
        """Become the one who cleans up, or stay it; who does not come back within the lease loses it."""
        table, mine = self._layout.transactions, session.id.hex().encode() + b"|%d" % time.monotonic_ns()
        cells = self._gateway.call(get_row(table, JANITOR, [STATE]))
        held = cells[STATE][0] if STATE in cells else None
        if held is not None and not held.startswith(session.id.hex().encode() + b"|"):
            between = self._lease_seen.unchanged_for(JANITOR, held)
            if between < 2 * self._settings.housekeeping:
                return False
        return self._gateway.call(compare_and_put(table, JANITOR, STATE, held, mine), retry=False)

    def _floors(self, report: Report, left: dict[bytes, tuple[bytes, int]], *, change: bool = True) -> list[int]:
        """Return the floors of living sessions; end those that have been silent for too long, and their plans.

        All that are found, living or not, are taken out of `left`.
        """
        table = self._layout.transactions
        floors: list[int] = []
        alive: set[str] = set()
        ended: list[bytes] = []
        pages = self._gateway.pages(table, b"g", b"gc", [STATE], before=None, page_rows=500)
        with self._sessions_seen.round():
            for row, cells in chain.from_iterable(pages):
                raw = cells[STATE][0]
                left.pop(row[1:], None)
                silent = self._sessions_seen.unchanged_for(row, raw)
                if raw in (DEAD, CLOSED):
                    if silent > self._settings.session_timeout:
                        ended.append(row)
                    continue
                if silent > self._settings.session_timeout and change:
                    self._gateway.call(compare_and_put(table, row, STATE, raw, DEAD), retry=False)
                    report.dead_sessions += 1
                    # Whether it came back just now is seen in the next round.
                report.sessions += 1
                alive.add(row[1:].hex())
                floors.append(int(raw.partition(b"|")[0]))
        if change and ended:
            self._gateway.flight([delete_row(table, row) for row in ended], retry=True)
        self._plans(alive, report, change=change)
        return floors

    def _plans(self, alive: set[str], report: Report, *, change: bool) -> None:
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

    def _repair(self, work: _Work, report: Report) -> None:
        """Decide what dead processes left pending, and finish what they have committed."""
        for txid in work.pending:
            ended = self._records.abort(txid)
            report.repaired += 1
            if ended.state == COMMITTED:
                work.first = min(work.first, ended.commit)  # its owner was faster
        for txid, status in work.unfinalised:
            # Looked at once more: what is placed long after it was finalised could bring back what is gone.
            current = self._records.status(txid)
            if current is None or current.finalised:
                continue
            try:
                self._finish(txid, status)
            except (TableDisabledError, DataCorruptionError, InvalidFieldError):
                # It stays as it is, and all that came after it; what can be read is read from the intents.
                reach("repair_failed")
                continue
            self._records.change(txid, status, status.with_finalised())
            report.repaired += 1

    def _finish(self, txid: bytes, status: Status) -> None:
        """Finalise a committed transaction of somebody else, from its intents; rows that have none are in place."""
        if status.unlisted:
            for space, intents in bulk_intents(self._gateway, self._layout, txid, status):
                self._placing.place(txid, status, {space: intents})
            return
        writes = self._records.writes_of(txid, status)
        for space, rows in (writes or {}).items():
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
                    self._placing.place(txid, status, {space: intents})

    def _published(self) -> int:
        cells = self._gateway.call(get_row(self._layout.transactions, GC, [STATE]))
        return int(cells[STATE][0]) if STATE in cells else 0

    def _publish(self, previous: int, safe: int) -> None:
        expected = b"%d" % previous if previous else None
        self._gateway.call(compare_and_put(self._layout.transactions, GC, STATE, expected, b"%d" % safe), retry=False)

    def _remove_versions(self, work: _Work, safe: int, report: Report) -> None:
        """Walk the committed records in the order of their commits, up to the first that has to wait.

        Out of order, a write that comes late could bring back what a later transaction has deleted.
        """
        upto = [(commit, txid) for commit, txid in sorted(work.replacing) if commit <= safe and commit < work.first]
        ready = [txid for _, txid in upto]
        if upto:
            publish_removed(self._gateway, self._layout, upto[-1][0])
        for begin in range(0, len(ready), _RECORDS_AT_ONCE):
            part = ready[begin : begin + _RECORDS_AT_ONCE]
            statuses = self._records.statuses(part)
            calls: list[Call[None]] = []
            for txid in part:
                if txid in statuses:  # else another process was here
                    for call in self._removals(txid, statuses[txid]):
                        calls.append(call)
                        if failpoints or len(calls) == _CALLS_AT_ONCE:
                            self._remove(calls)
                            calls = []
                reach("mid_gc")
            self._remove(calls)
            reach("after_gc")
            self._gateway.flight(self._records.drop(part), retry=True)
            report.removed += len(part)

    def _removals(self, txid: bytes, status: Status) -> Iterator[Call[None]]:
        """Yield what removes that which a commit has replaced in its rows; of a row that it deleted, all."""
        if status.unlisted:
            for space, found in bulk_versions(self._gateway, self._layout, status):
                yield from self._removals_in(space, found, status.commit)
            return
        for space, kinds in (self._records.writes_of(txid, status) or {}).items():
            yield from self._removals_in(space, kinds, status.commit)

    def _removals_in(self, space: bytes, kinds: Mapping[bytes, int], commit: int) -> Iterator[Call[None]]:
        table = self._layout.table(space)
        deleted = [row for row, kind in kinds.items() if kind == TOMBSTONE]
        replaced = [row for row, kind in kinds.items() if kind not in (TOMBSTONE, LOCK)]
        for rows, at in ((deleted, commit), (replaced, commit - 1)):
            for begin in range(0, len(rows), ROWS_AT_ONCE):
                yield put_then_delete(table, {}, {row: [VALUE] for row in rows[begin : begin + ROWS_AT_ONCE]}, at)

    def _remove(self, calls: Sequence[Call[None]]) -> None:
        """Make the calls in their order, leaving out those of tables that are there no longer."""
        try:
            self._gateway.flight(calls, retry=True)
        except TableMissingError:
            for call in calls:
                with suppress(TableMissingError):
                    self._gateway.call(call)

    def _remove_aborted(self, ready: list[bytes], report: Report) -> None:
        """Remove the intents of aborted transactions, and their records: no write of theirs can come late."""
        for begin in range(0, len(ready), _RECORDS_AT_ONCE):
            part = ready[begin : begin + _RECORDS_AT_ONCE]
            for txid, status in self._records.statuses(part).items():
                if status.unlisted:
                    for space, intents in bulk_intents(self._gateway, self._layout, txid, status):
                        self._placing.place(txid, status, {space: intents})
                else:
                    writes = self._records.writes_of(txid, status) or {}
                    removed = {space: dict.fromkeys(rows, b"L") for space, rows in writes.items()}
                    self._placing.place(txid, status, removed)
            self._gateway.flight(self._records.drop(part), retry=True)
            report.removed += len(part)


def _count(report: Report, status: Outline) -> None:
    if status.state == PENDING:
        report.pending += 1
    elif status.state == ABORTED:
        report.aborted += 1
    elif status.finalised:
        report.finalised += 1
    else:
        report.unfinalised += 1


def _planner(raw: bytes) -> str | None:
    """Return the session of a plan's record; None if the record is unreadable: such a plan has no session."""
    try:
        return str(json.loads(raw)["session"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
