"""`Diagnosis`: the doctor's report on a prefix, from its transaction table and HBase's list of tables, and repair."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from structable.backends.hbase.layout import GC, STATE, session_row, status_row
from structable.backends.hbase.tables import FIRST_TIMESTAMP, PrefixTables, drop_table
from structable.backends.hbase.thrift.errors import ServerError, TableDisabledError, TableMissingError
from structable.backends.hbase.thrift.requests import Cell, is_enabled
from structable.backends.hbase.txn.context import PrefixContext
from structable.backends.hbase.txn.session import CLOSED, DEAD, ProcessSession
from structable.backends.hbase.txn.status import COMMITTED, PENDING
from structable.backends.ordered.engine import Spaces
from structable.spi import Finding, FindingLevel

from .janitor import Janitor
from .rounds import RoundReport

_LONG_LAG = 100_000
"""The number of commits by which the safe point may be behind the clock without a finding."""
_SLACK = 5.0


class Diagnosis:
    """Reports on a prefix, and cleans up after ended processes."""

    def __init__(self, context: PrefixContext, tables: PrefixTables) -> None:
        self._gateway = context.gateway
        self._layout = context.layout
        self._status_table = context.status_table
        self._settings = context.settings
        self._tables = tables
        self._janitor = Janitor(context)  # separate: the background thread's has other observations

    def findings(self, session: ProcessSession, spaces: Callable[[], Spaces]) -> Iterator[Finding]:
        """Report without changing anything; see `Engine.diagnose`."""
        report = self._janitor.inspect()
        yield Finding(
            FindingLevel.OK, "format", f"{self._tables.format()}, in the HBase tables {self._layout.prefix}_*"
        )
        yield self._transactions(report)
        yield from self._processes(report, session)
        yield self._collection(report)
        yield from self._spaces(spaces())
        yield from self._strays(spaces)

    def _transactions(self, report: RoundReport) -> Finding:
        text = (
            f"{report.pending:,} pending, {report.aborted:,} aborted, {report.unfinalised:,} committed and not yet "
            f"finalised, {report.finalised:,} finalised"
        )
        if report.pending or report.unfinalised:
            text += (
                f"; those without a heartbeat for {self._settings.lease:g} s (lease) were left by an ended process and "
                "are finished by any other, or by --repair"
            )
        return Finding(FindingLevel.NOTE if report.pending else FindingLevel.OK, "transactions", text)

    def _processes(self, report: RoundReport, session: ProcessSession) -> Iterator[Finding]:
        cells = self._sessions()
        own = cells.pop(session_row(session.id), None)
        newest = max((at for _, at in cells.values()), default=0) if own is None else own[1]
        # By the servers' clocks, on which no decision depends.
        silent = [
            row
            for row, (raw, at) in cells.items()
            if raw not in (DEAD, CLOSED) and newest - at > self._settings.session_timeout * 500
        ]
        others = report.sessions - (own is not None)
        text = f"{others:,} beside this one, {report.plans:,} pinned plans of distributed scans"
        if silent:
            text += (
                f"; {len(silent):,} silent for more than half of session_timeout: stopped, killed or cut off; "
                "--repair ends those that remain silent"
            )
        yield Finding(FindingLevel.NOTE if silent else FindingLevel.OK, "processes", text)

    def _sessions(self) -> dict[bytes, Cell]:
        pages = self._gateway.pages(
            self._layout.transactions, session_row(b""), GC, [STATE], before=None, page_rows=500
        )
        return {row: cells[STATE] for page in pages for row, cells in page if STATE in cells}

    def _collection(self, report: RoundReport) -> Finding:
        given = report.clock - FIRST_TIMESTAMP
        if not report.safe:
            text = f"the clock stands at {given:,} commits; no safe point has been published yet"
            return Finding(FindingLevel.OK if given < _LONG_LAG else FindingLevel.NOTE, "garbage collection", text)
        lag = report.clock - report.safe
        text = (
            f"the clock stands at {given:,} commits, and the safe point, below which there is no snapshot, {lag:,} "
            f"behind it; records are kept for {self._settings.late_writes:g} s (late_writes)"
        )
        if lag < _LONG_LAG:
            return Finding(FindingLevel.OK, "garbage collection", text)
        holders = [
            (int(raw.partition(b"|")[0]), row)
            for row, (raw, _) in self._sessions().items()
            if raw not in (DEAD, CLOSED)
        ]
        if holders:
            oldest, row = min(holders)
            text += (
                f"; the oldest snapshot is of process {int.from_bytes(row[1:])}, {report.clock - oldest:,} commits "
                "old; end its open transactions and scans, or the process"
            )
        return Finding(FindingLevel.NOTE, "garbage collection", text)

    def _spaces(self, spaces: Spaces) -> Iterator[Finding]:
        there = set(self._tables.spaces())
        count = len(spaces.tables & there)
        text = f"{count:,} data table{'s' * (count != 1)}"
        waiting = spaces.leaving & there
        if waiting:
            text += f", {len(waiting):,} dropped, to be deleted once no snapshot needs them"
        yield Finding(FindingLevel.OK, "HBase tables", text)
        for space in sorted(spaces.tables):
            table = self._layout.table(space)
            try:
                if not self._gateway.call(is_enabled(table)):
                    yield Finding(FindingLevel.PROBLEM, f"HBase table {table}", "is disabled; enable it")
            except TableMissingError:
                text = (
                    "is missing; restore a backup of all tables, or create it again, empty, with the family x, and "
                    "drop its table"
                )
                yield Finding(FindingLevel.PROBLEM, f"HBase table {table}", text)
        for space in self._unused(spaces):
            table = self._layout.table(space)
            with suppress(TableMissingError):  # dropped just now
                yield self._unused_table(table)

    def _unused_table(self, table: str) -> Finding:
        try:
            if self._tables.is_empty(table):
                text = "is empty and not in the catalog, left by an interrupted call: --repair drops it"
                return Finding(FindingLevel.NOTE, f"HBase table {table}", text)
            how = "has rows"
        except TableDisabledError:
            how = "is disabled"
        text = f"{how} and is not in the catalog; check whether it is still needed, and drop it by hand"
        return Finding(FindingLevel.PROBLEM, f"HBase table {table}", text)

    def _strays(self, spaces: Callable[[], Spaces]) -> Iterator[Finding]:
        """Report HBase tables whose numbers block new tables."""
        following = spaces().following
        written = [space for space in self._tables.spaces() if space >= following and self._is_written(space)]
        # The catalog is read once more after the rows: it then has a table created in between.
        following = spaces().following if written else following
        for space in written:
            if space >= following:
                text = (
                    "has rows, and a number that no table has had yet, perhaps left from before a backup was restored; "
                    "drop it by hand, or no table can be created under its number"
                )
                yield Finding(FindingLevel.PROBLEM, f"HBase table {self._layout.table(space)}", text)

    def _is_written(self, space: bytes) -> bool:
        try:
            return self._tables.has_rows(self._layout.table(space))
        except ServerError:
            return False  # it is being created or dropped, or not structable's

    def _unused(self, spaces: Spaces) -> list[bytes]:
        """Return the spaces with an HBase table that no table, job or snapshot will ever use."""
        known = spaces.tables | spaces.loading | spaces.leaving
        return [space for space in self._tables.spaces() if space not in known and space < spaces.following]

    def repair(self, session: ProcessSession, spaces: Callable[[], Spaces]) -> Iterator[Finding]:
        """Clean up after ended processes; see `Engine.repair`.

        The call watches pending transactions and silent sessions until they change, or until the janitor may end them.
        """
        total = RoundReport()
        watched = self._unsettled(session)
        end = time.monotonic() + max(self._settings.lease, self._settings.session_timeout) + _SLACK
        while True:
            self._round(session, total)
            current = self._unsettled(session)
            watched = {row: raw for row, raw in watched.items() if current.get(row) == raw}
            if not watched or time.monotonic() > end:
                break
            time.sleep(min(1.0, self._settings.lease / 4))
        self._round(session, total)  # without the sessions that were just found to be dead
        yield Finding(
            FindingLevel.OK,
            "repair",
            f"{total.repaired:,} transactions of ended processes were finished, {total.dead_sessions:,} dead processes "
            f"ended, {total.removed:,} records removed with the versions they replaced",
        )
        if watched:
            text = f"{len(watched):,} transactions or processes were silent and could not be ended; try again"
            yield Finding(FindingLevel.PROBLEM, "repair", text)
        for space in self._unused(spaces()):
            table = self._layout.table(space)
            with suppress(TableMissingError, TableDisabledError):  # as in `findings`
                if self._tables.is_empty(table):
                    drop_table(self._gateway, table)
                    yield Finding(
                        FindingLevel.OK, f"HBase table {table}", "dropped: it was empty and not in the catalog"
                    )

    def _round(self, session: ProcessSession, total: RoundReport) -> None:
        session.heartbeat()
        report = self._janitor.run(session, alone=True)
        assert report is not None
        total.repaired += report.repaired
        total.dead_sessions += report.dead_sessions
        total.removed += report.removed

    def _unsettled(self, session: ProcessSession) -> dict[bytes, bytes]:
        """Return possible remains of other processes: row of the transaction table to its cell."""
        own = session_row(session.id)
        found = {row: raw for row, (raw, _) in self._sessions().items() if row != own and raw not in (DEAD, CLOSED)}
        for txid, outline in self._status_table.all():
            if outline.state == PENDING or (outline.state == COMMITTED and not outline.finalised):
                found[status_row(txid)] = outline.liveness
        return found
