"""`Conflicts`: other transactions that prevent a commit, found in the rows that the commit reads back."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NoReturn

from structable.backends.hbase.layout import FAMILY, MARKER, VALUE
from structable.backends.hbase.thrift.requests import Cells
from structable.backends.ordered.engine import SPACE_BYTES, BlindStep, ReadSet
from structable.spi import FieldSizeLimitError, TransactionConflictError

from .context import PrefixContext
from .intent_set import IntentSet
from .intents import LOCK, STEPS, RowId, base_of, changed_since, fold, intent_of, intents_of, read_rows, steps_of
from .status import ABORTED, COMMITTED, PENDING

_LONGEST_WAIT = 0.05
"""Seconds that a younger transaction waits for an older one."""
_PAUSE = (0.001, 0.005)
_PUSH_DELAYS = 3
"""Pauses before a pending transaction that writes a row read by this one is pushed to a later commit timestamp."""

_log = logging.getLogger("structable.hbase")


class Conflicts:
    """Checks transactions against one another."""

    def __init__(self, context: PrefixContext) -> None:
        self._gateway = context.gateway
        self._layout = context.layout
        self._status_table = context.status_table
        self._upcalls = context.upcalls
        self._lease = context.settings.lease

    def check(
        self,
        txid: bytes,
        start: int,
        timestamp: int,
        intents: IntentSet,
        suspects: Iterable[RowId],
        seen: Mapping[RowId, Cells],
    ) -> None:
        """Raise if another transaction has written a row since `start`, or is about to.

        `suspects` are the rows that another transaction may have written, and `seen` has their cells, read after the
        transaction's intents were written. Raises `InvalidFieldError` if a step overflows.
        """
        rows = {(space, row): intents.spaces[space].checked[row] for space, row in suspects}
        self.settle(txid, start, {row_id: (intent, seen.get(row_id, {})) for row_id, intent in rows.items()})
        for row_id, intent in rows.items():
            if intent[0] in STEPS:
                self._check_steps(txid, timestamp, row_id, intent, seen.get(row_id, {}))

    def settle(
        self,
        txid: bytes,
        start: int,
        rows: Mapping[RowId, tuple[bytes, Cells]],
        *,
        bulk: bool = False,
    ) -> dict[RowId, Cells]:
        """Wait for other writers of these rows, or abort them; return the rows' cells after that.

        `rows` has the intent and the cells of each. The older of two transactions wins; a write job, `bulk`, wins over
        all other transactions, and its writes depend on the newest state, so a commit after `start` does not conflict.
        """
        settled: dict[RowId, Cells] = {}
        unsettled = dict(rows)
        looked_behind: set[tuple[RowId, bytes]] = set()
        end = time.monotonic() + _LONGEST_WAIT
        while unsettled:
            for row_id, (intent, cells) in unsettled.items():
                if intent_of(txid, cells) is None:
                    raise TransactionConflictError("another process aborted this transaction; retry it")
                if not bulk and changed_since(start, cells, intent[0]):
                    self._refuse(row_id)
            alone = {row_id: cells for row_id, (_, cells) in unsettled.items() if len(cells) == 1 + (VALUE in cells)}
            if alone:
                # Nearly always there is no other intent.
                settled |= alone
                unsettled = {row_id: found for row_id, found in unsettled.items() if row_id not in alone}
            statuses = self._status_table.statuses(
                {other for intent, cells in unsettled.values() for other, _ in _rivals(txid, intent, cells)}
            )
            again: dict[RowId, bytes] = {}
            waits = False
            for row_id, (intent, cells) in unsettled.items():
                for other, raw in _rivals(txid, intent, cells):
                    status = statuses.get(other)
                    if status is None:
                        again[row_id] = other
                    elif status.state == COMMITTED:
                        if not bulk and status.commit > start:
                            self._refuse(row_id)
                        if bulk and raw[0] == LOCK and (row_id, other) not in looked_behind:
                            # The intent belongs to another job: its value may have replaced the lock since.
                            looked_behind.add((row_id, other))
                            again.setdefault(row_id, b"")
                    elif status.state == PENDING:
                        again.setdefault(row_id, b"")
                        if self._wins((start, txid, bulk), (status.start, other, status.bulk)):
                            statuses[other] = self._status_table.abort(other)
                        elif self._status_table.unchanged_for(other, status) > self._lease:
                            statuses[other] = ended = self._status_table.abort(other)
                            if ended.state != COMMITTED:
                                _log.warning("aborted transaction %s: its lease expired", other.hex())
                        else:
                            waits = True
                if row_id not in again:
                    settled[row_id] = cells
            if not again:
                break
            if waits:
                if time.monotonic() > end and not bulk:
                    raise TransactionConflictError("an older transaction is writing a row that this one writes")
                time.sleep(random.uniform(*_PAUSE))
            fresh = read_rows(self._gateway, self._layout, again)
            for row_id, other in again.items():
                if other and intent_of(other, fresh.get(row_id, {})) is not None:
                    self._status_table.abort_if_absent(other)
            unsettled = {row_id: (rows[row_id][0], fresh.get(row_id, {})) for row_id in again}
        return settled

    @staticmethod
    def _wins(mine: tuple[int, bytes, bool], other: tuple[int, bytes, bool]) -> bool:
        """Return whether one of two transactions, given by start, id, and whether it is a job, may abort the other."""
        return mine[2] if mine[2] != other[2] else mine < other

    def _refuse(self, row_id: RowId) -> NoReturn:
        if row_id[1] == MARKER or row_id == (bytes(SPACE_BYTES), self._layout.row(bytes(SPACE_BYTES) + MARKER)):
            raise TransactionConflictError("a table's schema was changed since the transaction began")
        raise TransactionConflictError("another transaction wrote a row that this one writes")

    def _check_steps(self, txid: bytes, timestamp: int, row_id: RowId, intent: bytes, cells: Cells) -> None:
        """Reject steps that could overflow together with pending ones, whichever of them commit and in any order.

        Nor may the row be too large with all of them.

        Every transaction writes its intent before it checks: the last one to check sees all others.
        """
        upcalls, base = self._upcalls(), base_of(cells)
        if base.version > timestamp:
            raise TransactionConflictError("another transaction wrote a row that this one changes")
        steps = steps_of(intent)
        others = [(other, raw) for other, raw in intents_of(cells) if other != txid and raw[0] != LOCK]
        if all(raw[0] == intent[0] for _, raw in others):
            beside = [step for _, raw in others for step in steps_of(raw)]
            if self._fits(row_id, base.value, steps, beside):
                return  # nearly always, even if all the others commit
        statuses = self._status_table.statuses({other for other, _ in others})
        before: list[tuple[int, bytes]] = []
        beside = []
        for other, raw in others:
            status = statuses.get(other)
            if status is not None and status.state == COMMITTED and status.commit < timestamp:
                before.append((status.commit, raw))
            elif raw[0] == intent[0] and (status is None or status.state != ABORTED):
                beside += steps_of(raw)
        value = fold(base, before, upcalls.merge).value
        if not self._fits(row_id, value, steps, beside):
            upcalls.check(b"".join(row_id), upcalls.merge(value, steps), steps)
            raise TransactionConflictError(
                "this change could exceed a limit together with changes that are not yet committed; retry it"
            )

    def _fits(
        self, row_id: RowId, value: bytes | None, steps: Sequence[BlindStep], beside: Sequence[BlindStep]
    ) -> bool:
        """Return whether the steps fit the value with any of the others, and the row is within its limits with all."""
        upcalls = self._upcalls()
        if not upcalls.fits(value, steps, beside):
            return False
        try:
            upcalls.check(b"".join(row_id), upcalls.merge(value, [*beside, *steps]), steps)
        except FieldSizeLimitError:
            return False
        return True

    def validate_markers(
        self, txid: bytes, start: int, timestamp: int, markers: Iterable[RowId], seen: Mapping[RowId, Cells]
    ) -> None:
        """Raise if a table's schema changed since `start`; a change that is not yet committed must come later.

        The cells in `seen` were read after the commit timestamp was drawn.
        """
        self._require_unchanged(
            txid,
            start,
            timestamp,
            ((row_id, seen.get(row_id, {})) for row_id in markers),
            lambda again: read_rows(self._gateway, self._layout, again, timestamp).items(),
        )

    def validate(
        self, txid: bytes, start: int, timestamp: int, intents: IntentSet, reads: ReadSet, *, markers: bool
    ) -> None:
        """Raise if a read row has changed between `start` and the commit timestamp, which is drawn before the call.

        The rows cannot change later: pending writers are pushed to commit after the timestamp.
        """
        layout = self._layout
        row_ids = {(key[:SPACE_BYTES], layout.row(key)) for key in reads.keys}
        if markers:
            row_ids |= {(space, layout.row(space + MARKER)) for space in intents.markers}

        def look(again: Iterable[RowId]) -> Iterable[tuple[RowId, Cells]]:
            return read_rows(self._gateway, self._layout, again, timestamp).items()

        self._require_unchanged(txid, start, timestamp, look(row_ids), look)
        for begin, end in reads.intervals:
            if begin < end:
                self._require_unchanged(txid, start, timestamp, self._interval(begin, end, timestamp), look)

    def _interval(self, begin: bytes, end: bytes, before: int) -> Iterator[tuple[RowId, Cells]]:
        table, first, last = self._layout.interval(begin, end)
        for page in self._gateway.pages(table, first, last, [FAMILY], before=before, page_rows=1_000):
            for row, cells in page:
                yield (begin[:SPACE_BYTES], row), cells

    def _require_unchanged(
        self,
        txid: bytes,
        start: int,
        timestamp: int,
        found: Iterable[tuple[RowId, Cells]],
        look: Callable[[Iterable[RowId]], Iterable[tuple[RowId, Cells]]],
    ) -> None:
        unsettled: dict[RowId, Cells] = {}
        delays = _PUSH_DELAYS
        for row_id, cells in found:
            if base_of(cells).version > start:
                self._refuse_read(row_id)
            if any(other != txid and raw[0] != LOCK for other, raw in intents_of(cells)):
                unsettled[row_id] = cells
        while unsettled:
            statuses = self._status_table.statuses(
                {other for cells in unsettled.values() for other, _ in intents_of(cells)}
            )
            again: dict[RowId, set[bytes]] = {}
            delays_left = False
            for row_id, cells in unsettled.items():
                for other, raw in intents_of(cells):
                    status = statuses.get(other)
                    if other == txid or raw[0] == LOCK:
                        continue
                    if status is None:
                        again.setdefault(row_id, set()).add(other)
                    elif status.state == COMMITTED and start < status.commit < timestamp:
                        self._refuse_read(row_id)
                    elif status.state == PENDING and status.least <= timestamp and delays:
                        again.setdefault(row_id, set())
                        delays_left = True
                    elif status.state == PENDING and status.least <= timestamp:
                        pushed = self._status_table.change(other, status, status.pushed(timestamp + 1))
                        if pushed is None or pushed.state != PENDING or pushed.least <= timestamp:
                            again.setdefault(row_id, set())
            if not again:
                return
            if delays_left:
                # A row that many transactions read, above all a schema marker, would otherwise be pushed by each of
                # them.
                delays -= 1
                time.sleep(random.uniform(*_PAUSE))
            fresh = dict(look(again))
            unsettled = {}
            for row_id, gone in again.items():
                cells = fresh.get(row_id, {})
                if base_of(cells).version > start:
                    self._refuse_read(row_id)
                unsettled[row_id] = cells
                for other in gone:
                    if intent_of(other, cells) is not None:
                        self._status_table.abort_if_absent(other)

    def _refuse_read(self, row_id: RowId) -> NoReturn:
        if row_id[1] == MARKER:
            self._refuse(row_id)
        raise TransactionConflictError("another transaction wrote a row that this one read")


def _rivals(txid: bytes, intent: bytes, cells: Cells) -> Iterator[tuple[bytes, bytes]]:
    """Yield the other transactions that write a row; steps of one kind do not compete."""
    for other, raw in intents_of(cells):
        if other != txid and not (intent[0] == raw[0] and intent[0] in STEPS):
            yield other, raw
