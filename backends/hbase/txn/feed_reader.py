"""`FeedReader`: the entries of change feeds up to a snapshot that no later commit can fall below."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain
from typing import NamedTuple

from structable.backends.hbase.layout import (
    FAMILY,
    GATE_FAMILY,
    GATE_LANES,
    GATE_MARK,
    GATE_ROWS,
    SESSION_BYTES,
    TXID_BYTES,
    gate_session,
)
from structable.backends.hbase.thrift.errors import TableMissingError
from structable.backends.hbase.thrift.requests import ROWS_AT_ONCE, FoundRow, delete_columns
from structable.backends.hbase.thrift.scanner import CellScan
from structable.backends.ordered.engine import FeedEntry, Pair, entries_begin, entry_key, entry_of, successor

from .context import PrefixContext
from .gate import Gate
from .reader import CommittedReader, space_missing
from .session import read_clock
from .status import COMMITTED, PENDING, Status
from .visibility import Pushes

_LANE_ROWS, _KEYS = 100, 1_000
_FIRST_ROWS = 16
"""Rows of the first page: entries are larger than most rows."""


class Gated(NamedTuple):
    """A committed transaction whose entries may still be in the gate."""

    version: int
    txid: bytes
    value: bytes | None
    """The transaction's only entry; None if it has its own rows in the gate."""


class FeedReader:
    """Reads feeds, never waiting for a transaction to end."""

    def __init__(self, context: PrefixContext, reader: CommittedReader) -> None:
        self._context = context
        self._gateway = context.gateway
        self._layout = context.layout
        self._status_table = context.status_table
        self._gate = Gate(context)
        self._reader = reader

    def settle(self, feed: bytes, at: int) -> list[Gated]:
        """From now on, keep transactions that append to a feed from committing at or below a timestamp of the clock.

        Returns the transactions in the gate that committed up to it, in their order; pending ones are pushed beyond it.
        Raises `TransactionConflictError` if the feed was dropped.
        """
        try:
            return self._settle(self._layout.table(feed), at)
        except TableMissingError as error:
            raise space_missing(self._layout, feed) from error

    def _settle(self, table: str, at: int) -> list[Gated]:
        found = self._entered(table)
        statuses: Mapping[bytes, Status] = {}
        pushes = Pushes(self._context)
        while found:
            statuses = self._status_table.statuses(found)
            pending = {
                txid: status for txid, status in statuses.items() if status.state == PENDING and status.least <= at
            }
            if pending:
                pushes.push(pending, at)
            elif absent := found.keys() - statuses.keys():
                self._end_unrecorded(table, found, absent)
            else:
                break
        # A finalised transaction has its entries in the rows of the feed, which are read after this.
        return sorted(
            Gated(status.commit, txid, found[txid])
            for txid, status in statuses.items()
            if status.state == COMMITTED and status.commit <= at and not status.finalised
        )

    def _end_unrecorded(self, table: str, found: dict[bytes, bytes | None], absent: Collection[bytes]) -> None:
        """Abort transactions without a record that are still in the gate; forget the others."""
        still = self._entered(table)
        for txid in absent:
            if txid in still:
                self._status_table.abort_if_absent(txid)
            else:
                del found[txid]

    def _entered(self, table: str) -> dict[bytes, bytes | None]:
        """Return the transactions in a gate, and their entry if it is in the cell of a lane."""
        scans = [
            CellScan(table, GATE_LANES, GATE_ROWS, (GATE_FAMILY,), None, False, _LANE_ROWS, None),
            CellScan(table, GATE_ROWS, successor(GATE_ROWS), (GATE_FAMILY,), None, False, _KEYS, "KeyOnlyFilter()"),
        ]
        firsts = self._gateway.first_pages(scans, _LANE_ROWS)
        lanes, rows = (
            chain(first.rows, () if first.ended else self._rest(scan, first.rows[-1][0]))
            for scan, first in zip(scans, firsts, strict=True)
        )
        found: dict[bytes, bytes | None] = {}
        for row, cells in lanes:
            for raw, _ in cells.values():
                if raw != GATE_MARK:
                    number = TXID_BYTES - SESSION_BYTES
                    found[gate_session(row) + raw[:number]] = raw[number:]
        for row, _ in rows:
            found[row[len(GATE_ROWS) : len(GATE_ROWS) + TXID_BYTES]] = None
        return found

    def _rest(self, scan: CellScan, last: bytes) -> Iterator[FoundRow]:
        pages = self._gateway.pages(
            scan.table,
            last + b"\0",
            scan.end,
            scan.columns,
            before=None,
            page_rows=scan.page_rows,
            server_filter=scan.server_filter,
        )
        return chain.from_iterable(pages)

    def drop(self, feed: bytes, since: int, until: int, stopped: Callable[[], bool]) -> bool:
        """Delete the entries of (since, until]; see `Upkeep.drop_entries`. `until` was settled."""
        table, first, last = self._layout.interval(entries_begin(feed, since), entries_begin(feed, until))
        try:
            # Read the gate first: an entry in it may move to the feed's rows later, and must then be deleted.
            empty = not self._settle(table, until)
            clock = read_clock(self._gateway, self._layout)
            pages = self._gateway.pages(
                table, first, last, [FAMILY], before=None, page_rows=ROWS_AT_ONCE, server_filter="KeyOnlyFilter()"
            )
            for page in pages:
                if stopped():
                    return False
                self._gateway.flight(delete_columns(table, (row for row, _ in page), [FAMILY], clock), retry=True)
        except TableMissingError:
            return True
        return empty

    def entries(
        self, feed: bytes, since: int, until: int, first: int, at: int, gated: Sequence[Gated]
    ) -> Iterator[FeedEntry]:
        """Yield the entries of (since, until]; see `EngineSnapshot.entries`. `gated` is the result of `settle` at `at`.

        An entry may be in the gate, in the rows of the feed, or in both. It is moved from the first to the second,
        which is therefore read second.
        """
        begin = entry_key(feed, since + 1, first) if first else entries_begin(feed, since)
        among = [one for one in gated if since < one.version <= until]
        inline = [(entry_key(feed, one.version, 0), one.value) for one in among if one.value is not None]
        pairs = [(key, value) for key, value in inline if key >= begin]
        try:
            for one in among:
                if one.value is None:
                    yield from self._merged(begin, entries_begin(feed, one.version - 1), at, pairs)
                    number = first if one.version == since + 1 else 0
                    yield from self._of_commit(feed, one, number, at)
                    begin = entries_begin(feed, one.version)
            yield from self._merged(begin, entries_begin(feed, until), at, pairs)
        except TableMissingError as error:
            raise space_missing(self._layout, feed) from error

    def _of_commit(self, feed: bytes, one: Gated, number: int, at: int) -> Iterator[FeedEntry]:
        """Yield the entries of one commit that has rows of its own in the gate, from a number on."""
        with closing(self._gate.rows(one.txid, feed, number)) as pages:
            for page in pages:
                pairs = [(entry_key(feed, one.version, chunk), value) for chunk, value in page.items()]
                following = max(page) + 1
                yield from self._merged(
                    entry_key(feed, one.version, number), entry_key(feed, one.version, following), at, pairs
                )
                number = following
        yield from self._merged(entry_key(feed, one.version, number), entries_begin(feed, one.version), at, ())

    def _merged(self, begin: bytes, end: bytes, at: int, gated: Iterable[Pair]) -> Iterator[FeedEntry]:
        """Yield the entries with keys in an interval: from the rows of the feed, and from `gated`."""
        if begin >= end:
            return
        with closing(self._reader.pages(begin, end, at, first_rows=_FIRST_ROWS)) as pages:
            last = b""
            for pair in heapq.merge(chain.from_iterable(pages), (one for one in gated if begin <= one[0] < end)):
                if pair[0] != last:
                    last = pair[0]
                    yield entry_of(pair)
