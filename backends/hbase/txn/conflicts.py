"""`Conflicts`: what stands in the way of a transaction, found by what it reads back."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NoReturn

from structable.backends.hbase.layout import FAMILY, MARKER, VALUE, Layout
from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.hbase.thrift.requests import ROWS_AT_ONCE, Call, Cells, get_rows
from structable.backends.ordered.engine import SPACE_BYTES, ReadSet
from structable.spi.errors import InvalidFieldError, TransactionConflictError

from .intents import (
    INCREMENT,
    LOCK,
    Merge,
    RowState,
    base_of,
    changed_since,
    fold,
    increments_of,
    intent_of,
    intents_of,
)
from .status import COMMITTED, PENDING, Status
from .status_table import Records
from .write_set import Changes

__all__ = ["Conflicts", "Place"]

Place = tuple[bytes, bytes]
"""Space and row."""

_PATIENCE = 0.05
"""Seconds that a younger transaction waits for an older one."""
_PAUSE = (0.001, 0.005)
_COURTESIES = 3
"""Pauses before a pending transaction that writes what this one read is made to commit later."""


class Conflicts:
    """Checks transactions against one another.

    Parameters
    ----------
    gateway : Gateway
        Where HBase is.
    layout : Layout
        The names.
    records : Records
        The statuses.
    merge : callable
        Applies increments, and refuses those that overflow.
    lease : float
        Seconds without a sign of life after which a pending transaction may be aborted by any other.
    """

    def __init__(self, gateway: Gateway, layout: Layout, records: Records, merge: Merge, lease: float) -> None:
        self._gateway = gateway
        self._layout = layout
        self._records = records
        self._merge = merge
        self._lease = lease

    def check(
        self,
        txid: bytes,
        start: int,
        timestamp: int,
        changes: Changes,
        unsure: Iterable[Place],
        seen: Mapping[Place, Cells],
    ) -> None:
        """Raise unless every row that is written can be: nobody else has written it since `start`, or is about to.

        Parameters
        ----------
        txid, start, timestamp : bytes, int and int
            The transaction, and the commit timestamp drawn for it.
        changes : Changes
            What it writes.
        unsure : iterable of Place
            The rows that somebody else may have written.
        seen : mapping
            Their cells, read after the transaction's intents were placed.

        Raises
        ------
        TransactionConflictError
            If another transaction wins.
        InvalidFieldError
            If an increment overflows.
        """
        rows = {(space, row): changes.spaces[space].checked[row] for space, row in unsure}
        self.settle(txid, start, {place: (intent, seen.get(place, {})) for place, intent in rows.items()})
        for place, intent in rows.items():
            if intent[0] == INCREMENT:
                self._check_overflow(txid, timestamp, intent, seen.get(place, {}))

    def settle(
        self,
        txid: bytes,
        start: int,
        rows: Mapping[Place, tuple[bytes, Cells]],
        *,
        bulk: bool = False,
    ) -> dict[Place, Cells]:
        """Wait for, or abort, whoever else is writing these rows; return their cells as they are then.

        Parameters
        ----------
        txid, start : bytes and int
            The transaction. The older of two wins, and a job over all that are none.
        rows : mapping
            Intent and cells of each row.
        bulk : bool
            Whether it is a job: what it writes depends on the newest state, so that a commit after `start` is no
            conflict.
        """
        settled: dict[Place, Cells] = {}
        unsettled = dict(rows)
        looked_behind: set[tuple[Place, bytes]] = set()
        end = time.monotonic() + _PATIENCE
        while unsettled:
            for place, (intent, cells) in unsettled.items():
                if intent_of(txid, cells) is None:
                    raise TransactionConflictError("another transaction, or the end of its lease, aborted this one")
                if not bulk and changed_since(start, cells, increments=intent[0] == INCREMENT):
                    self._refuse(place)
            alone = {place: cells for place, (_, cells) in unsettled.items() if len(cells) == 1 + (VALUE in cells)}
            if alone:
                # Nobody else's intent is there, as nearly always.
                settled |= alone
                unsettled = {place: found for place, found in unsettled.items() if place not in alone}
            statuses = self._records.statuses(
                {other for intent, cells in unsettled.values() for other, _ in _rivals(txid, intent, cells)}
            )
            again: dict[Place, bytes] = {}
            waits = False
            for place, (intent, cells) in unsettled.items():
                for other, raw in _rivals(txid, intent, cells):
                    status = statuses.get(other)
                    if status is None:
                        again[place] = other
                    elif status.state == COMMITTED:
                        if not bulk and status.commit > start:
                            self._refuse(place)
                        if bulk and raw[0] == LOCK and (place, other) not in looked_behind:
                            # Another job's: the value that it put in place of the lock may have come since.
                            looked_behind.add((place, other))
                            again.setdefault(place, b"")
                    elif status.state == PENDING:
                        again.setdefault(place, b"")
                        if self._wins((start, txid, bulk), (status.start, other, status.bulk)) or self._expired(
                            other, status
                        ):
                            statuses[other] = self._records.abort(other)
                        else:
                            waits = True
                if place not in again:
                    settled[place] = cells
            if not again:
                break
            if waits:
                if time.monotonic() > end and not bulk:
                    raise TransactionConflictError("an older transaction is writing a row that this one writes")
                time.sleep(random.uniform(*_PAUSE))
            fresh = self.read(again)
            for place, other in again.items():
                if other and intent_of(other, fresh.get(place, {})) is not None:
                    self._records.settle_absent(other)
            unsettled = {place: (rows[place][0], fresh.get(place, {})) for place in again}
        return settled

    @staticmethod
    def _wins(mine: tuple[int, bytes, bool], other: tuple[int, bytes, bool]) -> bool:
        """Tell whether one of two transactions, by start, id, and whether it is a job, may abort the other."""
        return mine[2] if mine[2] != other[2] else mine < other

    def _expired(self, txid: bytes, status: Status) -> bool:
        return self._records.unchanged_for(txid, status) > self._lease

    def _refuse(self, place: Place) -> NoReturn:
        if place[1] == MARKER or place == (bytes(SPACE_BYTES), self._layout.row(bytes(SPACE_BYTES) + MARKER)):
            raise TransactionConflictError("a table's schema was changed since the transaction began")
        raise TransactionConflictError("another transaction wrote a row that this one writes")

    def _check_overflow(self, txid: bytes, timestamp: int, intent: bytes, cells: Cells) -> None:
        """Refuse increments that can overflow, whoever else's are committed in the end, and in whatever order.

        Everybody's intent is placed before it is checked here: the last of them to check sees all others.
        """
        base = base_of(cells)
        if base.version > timestamp:
            raise TransactionConflictError("another transaction was faster to change a row that this one increments")
        steps = increments_of(intent)
        others = [increments_of(raw) for other, raw in intents_of(cells) if other != txid and raw[0] == INCREMENT]
        flat = [step for one in others for step in one]
        try:
            self._merge(base.value, [*(step for step in flat if step.amount > 0), *steps])
            self._merge(base.value, [*(step for step in flat if step.amount < 0), *steps])
        except InvalidFieldError:
            state = self._committed(cells, base)
            self._merge(state.value, steps)
            raise TransactionConflictError(
                "with increments that are not yet committed this one could overflow"
            ) from None

    def _committed(self, cells: Cells, base: RowState) -> RowState:
        statuses = self._records.statuses({txid for txid, _ in intents_of(cells)})
        committed = [
            (status.commit, raw)
            for txid, raw in intents_of(cells)
            if (status := statuses.get(txid)) is not None and status.state == COMMITTED
        ]
        return fold(base, committed, self._merge)

    def reading(
        self, places: Iterable[Place], before: int | None = None
    ) -> tuple[list[Call[object]], Callable[[Sequence[object]], dict[Place, Cells]]]:
        """Return the calls that read rows, and what makes cells of their results.

        Rows that were never written are left out.
        """
        rows: dict[bytes, list[bytes]] = {}
        for space, row in places:
            rows.setdefault(space, []).append(row)
        calls: list[Call[object]] = []
        spaces: list[bytes] = []
        for space, names in rows.items():
            for begin in range(0, len(names), ROWS_AT_ONCE):
                spaces.append(space)
                some = names[begin : begin + ROWS_AT_ONCE]
                calls.append(get_rows(self._layout.table(space), some, [FAMILY], before))

        def decode(results: Sequence[object]) -> dict[Place, Cells]:
            found: dict[Place, Cells] = {}
            for space, result in zip(spaces, results, strict=True):
                assert isinstance(result, list)
                found.update(((space, row), cells) for row, cells in result)
            return found

        return calls, decode

    def read(self, places: Iterable[Place], before: int | None = None) -> dict[Place, Cells]:
        """Return the cells of rows; those that were never written are left out."""
        calls, decode = self.reading(places, before)
        return decode(self._gateway.flight(calls, retry=True))

    def validate_markers(
        self, txid: bytes, start: int, timestamp: int, markers: Iterable[Place], seen: Mapping[Place, Cells]
    ) -> None:
        """Raise if a table's schema changed since `start`; a change that is not yet committed must come later.

        Parameters
        ----------
        markers : iterable of Place
            Those that may have changed.
        seen : mapping
            Their cells, read after the commit timestamp was drawn.
        """
        self._require_unchanged(
            txid,
            start,
            timestamp,
            ((place, seen.get(place, {})) for place in markers),
            lambda again: self.read(again, timestamp).items(),
        )

    def validate(
        self, txid: bytes, start: int, timestamp: int, changes: Changes, reads: ReadSet, *, markers: bool
    ) -> None:
        """Raise if what was read has changed between `start` and the commit timestamp.

        Nobody can change it later: whoever is about to is made to commit after the timestamp. It must have been drawn
        before this is called.
        """
        layout = self._layout
        places = {(key[:SPACE_BYTES], layout.row(key)) for key in reads.keys}
        if markers:
            places |= {(space, layout.row(space + MARKER)) for space in changes.markers}

        def look(again: Iterable[Place]) -> Iterable[tuple[Place, Cells]]:
            return self.read(again, timestamp).items()

        self._require_unchanged(txid, start, timestamp, look(places), look)
        for begin, end in reads.intervals:
            if begin < end:
                self._require_unchanged(txid, start, timestamp, self._interval(begin, end, timestamp), look)

    def _interval(self, begin: bytes, end: bytes, before: int) -> Iterator[tuple[Place, Cells]]:
        table, first, last = self._layout.interval(begin, end)
        for page in self._gateway.pages(table, first, last, [FAMILY], before=before, page_rows=1_000):
            for row, cells in page:
                yield (begin[:SPACE_BYTES], row), cells

    def _require_unchanged(
        self,
        txid: bytes,
        start: int,
        timestamp: int,
        found: Iterable[tuple[Place, Cells]],
        look: Callable[[Iterable[Place]], Iterable[tuple[Place, Cells]]],
    ) -> None:
        unsettled: dict[Place, Cells] = {}
        courtesies = _COURTESIES
        for place, cells in found:
            if base_of(cells).version > start:
                self._refuse_read(place)
            if any(other != txid and raw[0] != LOCK for other, raw in intents_of(cells)):
                unsettled[place] = cells
        while unsettled:
            statuses = self._records.statuses({other for cells in unsettled.values() for other, _ in intents_of(cells)})
            again: dict[Place, set[bytes]] = {}
            polite = False
            for place, cells in unsettled.items():
                for other, raw in intents_of(cells):
                    status = statuses.get(other)
                    if other == txid or raw[0] == LOCK:
                        continue
                    if status is None:
                        again.setdefault(place, set()).add(other)
                    elif status.state == COMMITTED and start < status.commit < timestamp:
                        self._refuse_read(place)
                    elif status.state == PENDING and status.least <= timestamp and courtesies:
                        again.setdefault(place, set())
                        polite = True
                    elif status.state == PENDING and status.least <= timestamp:
                        pushed = self._records.change(other, status, status.pushed(timestamp + 1))
                        if pushed is None or pushed.state != PENDING or pushed.least <= timestamp:
                            again.setdefault(place, set())
            if not again:
                return
            if polite:
                # Those that many read, changes of a schema above all, would otherwise be pushed by one after another.
                courtesies -= 1
                time.sleep(random.uniform(*_PAUSE))
            fresh = dict(look(again))
            unsettled = {}
            for place, gone in again.items():
                cells = fresh.get(place, {})
                if base_of(cells).version > start:
                    self._refuse_read(place)
                unsettled[place] = cells
                for other in gone:
                    if intent_of(other, cells) is not None:
                        self._records.settle_absent(other)

    def _refuse_read(self, place: Place) -> NoReturn:
        if place[1] == MARKER:
            self._refuse(place)
        raise TransactionConflictError("another transaction wrote a row that this one read")


def _rivals(txid: bytes, intent: bytes, cells: Cells) -> Iterator[tuple[bytes, bytes]]:
    """Yield the other transactions that write a row, but for increments beside increments."""
    for other, raw in intents_of(cells):
        if other != txid and not (intent[0] == raw[0] == INCREMENT):
            yield other, raw
