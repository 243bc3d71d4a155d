"""`Gate`: the entries of commits on their way into a change feed.

A transaction puts its entries into the gate before it draws its commit timestamp. Once it is committed, they are put in
the rows of the feed at its timestamp, and only when that has succeeded is the gate emptied; after that the transaction
is marked as finalised. A transaction that is not in the gate therefore commits later than now, has its entries in the
rows of the feed, or never commits.

A single entry goes into a cell of the session's row, the cell of the transaction's lane. Such a cell is emptied by a
mark of one byte and never deleted: tombstones would slow down every reader until HBase compacts the table, while
overwritten cells in a family of one version leave little behind. Several entries, and each entry of a transaction
without a lane, have rows of their own, which are deleted.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

from structable.backends.hbase.failpoints import failpoints, reach, stepwise
from structable.backends.hbase.layout import (
    GATE_ENTRY,
    GATE_LANES,
    GATE_MARK,
    GATE_ROWS,
    OWN_COLUMN,
    SESSION_BYTES,
    VALUE,
    gate_lane,
    gate_lanes,
    gate_number,
    gate_row,
)
from structable.backends.hbase.thrift.errors import TableMissingError
from structable.backends.hbase.thrift.requests import ThriftCall, delete_columns, get_row, put_rows, split_rows
from structable.backends.ordered.engine import SPACE_BYTES, entry_key, successor

from .context import PrefixContext
from .intents import write_intent
from .status import COMMITTED, Status
from .written_rows import GateKinds

Appends: TypeAlias = Mapping[bytes, Mapping[int, bytes]]
"""Space of a feed to the values of the entries that a transaction appends, by their numbers in it."""

_ROWS_AT_ONCE = 4
"""The number of a gate's rows read at once: an entry has up to a mebibyte, or one larger row."""


def gate_kinds(txid: bytes, appends: Appends) -> GateKinds:
    """Return the kinds of gate rows in which a transaction's entries are, by feed."""
    laned = not txid.endswith(OWN_COLUMN)
    return {feed: GATE_LANES if laned and len(values) == 1 else GATE_ROWS for feed, values in appends.items()}


class Gate:
    """Puts entries into the gates of feeds, and moves them to the rows of the feeds.

    Any process may do every step but the first, any number of times, once the transaction has ended.
    """

    def __init__(self, context: PrefixContext) -> None:
        self._gateway = context.gateway
        self._layout = context.layout

    def entering(self, txid: bytes, start: int, appends: Appends) -> list[ThriftCall[object]]:
        """Return the calls that put the entries of a transaction into the gates, below all later timestamps."""
        calls: list[ThriftCall[object]] = []
        for feed, kind in gate_kinds(txid, appends).items():
            if kind == GATE_LANES:
                (value,) = appends[feed].values()
                cell = {gate_lane(txid): txid[SESSION_BYTES:] + value}
                calls.append(put_rows(self._layout.table(feed), {gate_lanes(txid): cell}, start))
            else:
                calls += self.entering_rows(txid, start, feed, appends[feed])
        return calls

    def entering_rows(
        self, txid: bytes, start: int, feed: bytes, values: Mapping[int, bytes]
    ) -> Iterator[ThriftCall[object]]:
        """Yield the calls that put entries into the transaction's own rows of a gate."""
        rows = {gate_row(txid, number): {GATE_ENTRY: value} for number, value in values.items()}
        for part in split_rows(rows):
            yield put_rows(self._layout.table(feed), part, start)

    def publishing(self, status: Status, appends: Appends) -> list[ThriftCall[object]]:
        """Return the calls that put the entries of a committed transaction in the rows of the feeds."""
        if status.state != COMMITTED:
            return []
        calls: list[ThriftCall[object]] = []
        for feed, values in appends.items():
            rows = {
                entry_key(feed, status.commit, number)[SPACE_BYTES:]: {VALUE: write_intent(value)}
                for number, value in values.items()
            }
            calls += [put_rows(self._layout.table(feed), part, status.commit) for part in split_rows(rows)]
        return calls

    def emptying(self, txid: bytes, status: Status, appends: Appends) -> list[ThriftCall[object]]:
        """Return the calls that empty the gates, to be made once the calls of `publishing` have succeeded."""
        at = status.commit if status.state == COMMITTED else status.start + 1
        calls: list[ThriftCall[object]] = []
        for feed, kind in gate_kinds(txid, appends).items():
            table = self._layout.table(feed)
            if kind == GATE_LANES:
                calls.append(put_rows(table, {gate_lanes(txid): {gate_lane(txid): GATE_MARK}}, at))
            else:
                rows = [gate_row(txid, number) for number in appends[feed]]
                calls += delete_columns(table, rows, [GATE_ENTRY], at)
        return calls

    def finish(self, txid: bytes, status: Status, gates: GateKinds) -> None:
        """Move the remaining entries of an ended transaction, found in the gates, leaving out dropped feeds."""
        for feed, kind in gates.items():
            with suppress(TableMissingError):
                for values in self._remaining(txid, feed, kind):
                    self.move(txid, status, {feed: values})

    def resolve(self, txid: bytes, status: Status, appends: Appends) -> None:
        """Move the entries of an ended transaction, leaving out dropped feeds."""
        for feed, values in appends.items():
            with suppress(TableMissingError):
                self.move(txid, status, {feed: values})

    def _remaining(self, txid: bytes, feed: bytes, kind: bytes) -> Iterator[Mapping[int, bytes]]:
        if kind == GATE_ROWS:
            yield from self.rows(txid, feed)
            return
        cells = self._gateway.call(get_row(self._layout.table(feed), gate_lanes(txid), [gate_lane(txid)]))
        for raw, _ in cells.values():
            if raw.startswith(txid[SESSION_BYTES:]):
                yield {0: raw[len(txid) - SESSION_BYTES :]}

    def move(self, txid: bytes, status: Status, appends: Appends) -> None:
        """Put some entries of an ended transaction in the rows of the feeds, and then empty the gates of them."""
        if status.state == COMMITTED:
            self._flight(self.publishing(status, appends))
            reach("entries_put")
        self._flight(self.emptying(txid, status, appends))

    def _flight(self, calls: Sequence[ThriftCall[object]]) -> None:
        if failpoints:
            stepwise(self._gateway.flight, calls, dict.fromkeys(range(len(calls)), "mid_feed_finalise"))
        else:
            self._gateway.flight(calls, retry=True)

    def rows(self, txid: bytes, feed: bytes, first: int = 0) -> Generator[dict[int, bytes]]:
        """Yield the entries in the transaction's own rows, from a number on, a few at a time."""
        begin, end = gate_row(txid, first), successor(GATE_ROWS + txid)
        for page in self._gateway.pages(
            self._layout.table(feed), begin, end, [GATE_ENTRY], before=None, page_rows=_ROWS_AT_ONCE
        ):
            yield {gate_number(row): cells[GATE_ENTRY][0] for row, cells in page}
