"""`Visibility`: the states of rows at a snapshot, with the intents of other transactions that count there.

`Pushes` keep pending transactions from committing below the snapshot.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterator, Mapping, Sequence

from structable.backends.hbase.layout import FAMILY, VALUE
from structable.backends.hbase.thrift.requests import ROWS_AT_ONCE, Cells, FoundRow, get_rows
from structable.spi import StorageUnavailableError

from .context import PrefixContext
from .intents import LOCK, RowState, base_of, fold, fold_stepwise, intents_of
from .status import ABORTED, COMMITTED, Status

_PUSH_DELAY = (0.002, 0.008)
"""Seconds that a reader waits before it pushes transactions to later timestamps: most have committed by then."""


class Visibility:
    """Reads rows without ever waiting for another transaction to end."""

    def __init__(self, context: PrefixContext) -> None:
        self._context = context
        self._gateway = context.gateway
        self._status_table = context.status_table
        self._upcalls = context.upcalls

    def read(
        self, table: str, rows: Sequence[bytes], at: int | None, assumed: Mapping[bytes, Status] | None = None
    ) -> dict[bytes, RowState]:
        """Return the states of rows at a timestamp, or newest; rows that were never written are left out."""
        return self.states(table, list(self._cells(table, rows, at).items()), at, assumed)

    def _cells(self, table: str, rows: Sequence[bytes], at: int | None) -> dict[bytes, Cells]:
        """Return the cells of any number of rows at a timestamp, or newest."""
        before = None if at is None else at + 1
        cells: dict[bytes, Cells] = {}
        calls = [get_rows(table, part, [FAMILY], before) for part in _parts(rows)]
        for found in self._gateway.flight(calls, retry=True):
            assert isinstance(found, list)
            cells.update(found)
        return cells

    def states(
        self, table: str, found: Sequence[FoundRow], at: int | None, assumed: Mapping[bytes, Status] | None = None
    ) -> dict[bytes, RowState]:
        """Return the states at a timestamp of rows that were read, with all their cells of family x.

        Pending writers are pushed beyond the timestamp; for None, the newest committed state, no writer is pushed.
        `assumed` has known statuses.
        """
        states: dict[bytes, RowState] = {}
        contested: dict[bytes, Cells] = {}
        for row, cells in found:
            if len(cells) == 1 and VALUE in cells:
                states[row] = base_of(cells)
            elif cells:
                contested[row] = cells
        for row, committed in self._committed(table, contested, at, assumed).items():
            states[row] = fold(base_of(contested[row]), committed, self._upcalls().merge)
        return states

    def history(
        self, table: str, rows: Mapping[bytes, Collection[int]], assumed: Mapping[bytes, Status]
    ) -> dict[tuple[bytes, int], RowState]:
        """Return the states of rows at several timestamps each; rows that were never written are left out.

        The intents of a row are read once, at the last of its timestamps. A commit up to there whose intent is gone
        has become a version by then, so the versions below the earlier timestamps are read after the intents.
        """
        last: dict[int, list[bytes]] = {}
        for row, times in rows.items():
            last.setdefault(max(times), []).append(row)
        found: dict[bytes, Cells] = {}
        committed: dict[bytes, list[tuple[int, bytes]]] = {}
        for at, names in last.items():
            some = self._cells(table, names, at)
            committed |= self._committed(table, some, at, assumed)
            found |= some
        bases = {row: dict.fromkeys(rows[row], base_of(cells)) for row, cells in found.items()}
        self._look_below(table, bases)
        return {
            (row, at): state
            for row, below in bases.items()
            for at, state in fold_stepwise(below, committed[row], self._upcalls().merge).items()
        }

    def _look_below(self, table: str, bases: Mapping[bytes, dict[int, RowState]]) -> None:
        """Read again, at its own timestamp, each state whose version is later; the states are without intents."""
        older: dict[int, list[bytes]] = {}
        for row, below in bases.items():
            for at, base in below.items():
                if base.version > at:
                    older.setdefault(at, []).append(row)
        parts = [(at, part) for at, names in older.items() for part in _parts(names)]
        calls = [get_rows(table, names, [VALUE], at + 1) for at, names in parts]
        for (at, names), read in zip(parts, self._gateway.flight(calls, retry=True), strict=True):
            assert isinstance(read, list)
            cells = dict(read)
            for row in names:
                bases[row][at] = base_of(cells.get(row, {}))

    def _committed(
        self, table: str, contested: dict[bytes, Cells], at: int | None, assumed: Mapping[bytes, Status] | None
    ) -> dict[bytes, list[tuple[int, bytes]]]:
        """Return commit timestamp and intent of the intents that count at a timestamp; may read rows again."""
        found: dict[bytes, list[tuple[int, bytes]]] = {}
        ignored: set[tuple[bytes, bytes]] = set()
        pushes = Pushes(self._context)
        while contested:
            statuses = self._statuses(contested, assumed)
            pending: dict[bytes, Status] = {}
            again: set[tuple[bytes, bytes]] = set()
            absent: dict[bytes, set[bytes]] = {}
            for row, cells in contested.items():
                for txid, intent in intents_of(cells):
                    if (row, txid) in ignored:
                        continue
                    status = statuses.get(txid)
                    if status is None:
                        absent.setdefault(row, set()).add(txid)
                    elif status.finalised:
                        # Its version is in the row, perhaps written after the row was read: this intent arrived late.
                        if status.state != COMMITTED or at is None or status.commit <= at:
                            again.add((row, txid))
                    elif status.state == COMMITTED:
                        continue
                    elif status.state != ABORTED and at is not None and status.least <= at and intent[0] != LOCK:
                        pending[txid] = status
            if at is not None and pending:
                pushes.push(pending, at)
                continue
            if again or absent:
                self._read_again(table, contested, {row for row, _ in again}, absent, at)
                ignored |= again
                continue
            for row, cells in contested.items():
                found[row] = [
                    (known.commit, intent)
                    for txid, intent in intents_of(cells)
                    if (row, txid) not in ignored and _counts(known := statuses[txid], at)
                ]
            break
        return found

    def _statuses(
        self, contested: Mapping[bytes, Cells], assumed: Mapping[bytes, Status] | None
    ) -> dict[bytes, Status]:
        txids = {txid for cells in contested.values() for txid, _ in intents_of(cells)}
        if not assumed:
            return self._status_table.statuses(txids)
        return {**self._status_table.statuses(txids - assumed.keys()), **assumed}

    def _read_again(
        self,
        table: str,
        contested: dict[bytes, Cells],
        again: set[bytes],
        absent: Mapping[bytes, set[bytes]],
        at: int | None,
    ) -> None:
        """Read rows of ended transactions again; abort transactions that have an intent but no record."""
        rows = sorted(again | absent.keys())
        found = self._cells(table, rows, at)
        for row in rows:
            contested[row] = found.get(row, {})
            left = {txid for txid, _ in intents_of(contested[row])}
            for txid in absent.get(row, set()) & left:
                self._status_table.abort_if_absent(txid)


class Pushes:
    """Pushes pending transactions for one read, which reads the statuses again after each push."""

    def __init__(self, context: PrefixContext) -> None:
        self._status_table = context.status_table
        self._waited = False
        self._end = time.monotonic() + context.gateway.timeout

    def push(self, pending: Mapping[bytes, Status], at: int) -> None:
        """Wait a moment, the first time; then try to push transactions beyond a timestamp."""
        if not self._waited:
            self._waited = True
            time.sleep(random.uniform(*_PUSH_DELAY))
            return
        try:
            self._status_table.change_many({txid: (status, status.pushed(at + 1)) for txid, status in pending.items()})
        except StorageUnavailableError:
            # The statuses are read again until the time-out: the pushes may have been made.
            if time.monotonic() > self._end:
                raise


def _parts(rows: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Yield rows in parts for one call each."""
    return (rows[start : start + ROWS_AT_ONCE] for start in range(0, len(rows), ROWS_AT_ONCE))


def _counts(status: Status, at: int | None) -> bool:
    return status.state == COMMITTED and (at is None or status.commit <= at)
