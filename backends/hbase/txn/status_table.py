"""`Records`: the statuses of transactions, looked up in batches and changed by compare-and-set."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from threading import Lock

from structable.backends.hbase.layout import STATE, WRITES, Layout, status_row, transaction_of
from structable.backends.hbase.thrift.errors import is_refusal
from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.hbase.thrift.requests import (
    Call,
    Cells,
    compare_and_put,
    delete_row,
    get_row,
    get_rows,
    put_rows,
    split_rows,
)
from structable.backends.hbase.thrift.retry import pause
from structable.spi.errors import StorageUnavailableError

from .status import ABORTED, PENDING, Outline, Status, WrittenRows, decode_writes

__all__ = ["Records"]

_MOST_KNOWN = 10_000
_AT_ONCE = 500
_MARKED_BYTES = 32 << 10
"""Of one call: it fits the smallest frame that may be set."""


class Records:
    """The status records of one prefix.

    Parameters
    ----------
    gateway : Gateway
        Where HBase is.
    layout : Layout
        The names.
    known_for : float
        Seconds that "committed, not yet finalised" may be taken for true without looking again. Must be shorter than
        the time that late writes take at most: what is read by a status may be cleaned up that long after it changed.
    """

    def __init__(self, gateway: Gateway, layout: Layout, known_for: float) -> None:
        self._gateway = gateway
        self._table = layout.transactions
        self._known_for = known_for
        self._known: OrderedDict[bytes, tuple[float, Status]] = OrderedDict()
        self._lock = Lock()
        self._seen: OrderedDict[bytes, tuple[bytes, float]] = OrderedDict()

    def statuses(self, txids: Iterable[bytes]) -> dict[bytes, Status]:
        """Return the statuses of transactions; one without a record is left out."""
        found: dict[bytes, Status] = {}
        unknown = []
        now = time.monotonic()
        for txid in txids:
            known = self._known.get(txid)
            if known is not None and (known[1].state == ABORTED or now < known[0]):
                found[txid] = known[1]
            else:
                unknown.append(txid)
        for start in range(0, len(unknown), _AT_ONCE):
            rows = [status_row(txid) for txid in unknown[start : start + _AT_ONCE]]
            for row, cells in self._gateway.call(get_rows(self._table, rows, [STATE])):
                txid = transaction_of(row)
                found[txid] = self._noted(txid, cells)
        return found

    def status(self, txid: bytes) -> Status | None:
        """Return the status of a transaction as it is now."""
        cells = self._gateway.call(get_row(self._table, status_row(txid), [STATE]))
        return Status.decode(cells[STATE][0]) if STATE in cells else None

    def _noted(self, txid: bytes, cells: Cells) -> Status:
        raw = cells[STATE][0]
        status = Status.decode(raw)
        if status.state != PENDING and not status.finalised:
            with self._lock:
                self._known[txid] = time.monotonic() + self._known_for, status
                while len(self._known) > _MOST_KNOWN:
                    self._known.popitem(last=False)
        return status

    def unchanged_for(self, txid: bytes, status: Status) -> float:
        """Return for how many seconds, as far as this process has seen, its owner has not changed a status."""
        now, life = time.monotonic(), status.life
        with self._lock:
            before, since = self._seen.get(txid, (b"", now))
            if before != life:
                since = now
                self._seen[txid] = life, now
                while len(self._seen) > _MOST_KNOWN:
                    self._seen.popitem(last=False)
        return now - since

    def begin(self, txid: bytes, status: Status, writes: bytes) -> dict[bytes, dict[bytes, bytes]]:
        """Return the row and the cells of a record that is to be made, at a timestamp below HBase's own clock.

        So they change nothing where the record was made before, and cannot be read once it was removed.
        """
        cells = {STATE: status.raw}
        if status.detached:
            cells[WRITES] = writes
        return {status_row(txid): cells}

    def writes_of(self, txid: bytes, status: Status) -> WrittenRows | None:
        """Return what a transaction has written, None if that cannot be found any more."""
        if not status.detached:
            return decode_writes(status.writes)
        cells = self._gateway.call(get_row(self._table, status_row(txid), [WRITES]))
        return decode_writes(cells[WRITES][0]) if WRITES in cells else None

    def change(self, txid: bytes, expected: Status | None, new: Status) -> Status | None:
        """Change a status if it is as expected, and return what it is then.

        A reply that was lost is looked up. A change that was not made is tried again; it may still be made later.

        Raises
        ------
        ServerError
            If HBase refuses the change for good, for want of a right for example: it has not been made and will not be.
        StorageUnavailableError
            If the status cannot be looked up, or not be changed in time: the change may be made, or may have been.
        """
        call = compare_and_put(
            self._table, status_row(txid), STATE, None if expected is None else expected.raw, new.raw
        )
        end = time.monotonic() + self._gateway.timeout
        lost = False
        while True:
            try:
                if self._gateway.call(call, retry=False):
                    return new
                # "False" may be the answer to the gateway's own second attempt: what is there decides.
                return self.status(txid)
            except StorageUnavailableError as error:
                if is_refusal(error):
                    if lost:
                        raise StorageUnavailableError(f"a reply was lost, and then: {error}") from error
                    raise
                lost = True
                found = self.status(txid)
                if found != expected:
                    return found
                # Nobody would wait for a reply to what HBase cannot do, while it can still be read.
                if time.monotonic() > end:
                    raise
            pause()

    def change_many(self, changes: Mapping[bytes, tuple[Status, Status]]) -> None:
        """Try several changes at once; whoever needs to know looks again."""
        items = list(changes.items())
        for start in range(0, len(items), _AT_ONCE):
            calls = [
                compare_and_put(self._table, status_row(txid), STATE, expected.raw, new.raw)
                for txid, (expected, new) in items[start : start + _AT_ONCE]
            ]
            self._gateway.flight(calls)

    def mark_finalised(self, ended: Mapping[bytes, Status]) -> list[Call[None]]:
        """Return the calls that mark committed transactions as finalised, all of them in place.

        They compare nothing: what is committed can only be marked, by anyone, and then be removed. A record that was
        removed, and comes back by this, is removed once more, and says what an absent one does. One that HBase's clock
        puts below what is there, as after a move to a server whose clock is behind, is left to the janitor.
        """
        rows = {status_row(txid): {STATE: status.with_finalised().raw} for txid, status in ended.items()}
        return [put_rows(self._table, part) for part in split_rows(rows, limit_bytes=_MARKED_BYTES)]

    def settle_absent(self, txid: bytes) -> Status:
        """Return the status of a transaction that had no record: from now on it is aborted, unless it has one.

        Such a one may also have committed long since, and its record been removed: so the status says, as that of a
        finalised transaction does, that what was read before has to be read again.
        """
        status = self.status(txid)
        while status is None:
            status = self.change(txid, None, Status(ABORTED, finalised=True))
        return status

    def abort(self, txid: bytes) -> Status:
        """Abort a transaction unless it is committed, and return what it is."""
        status = self.settle_absent(txid)
        while status.state == PENDING:
            status = self.change(txid, status, status.aborted()) or self.settle_absent(txid)
        return status

    def drop(self, txids: Iterable[bytes]) -> list[Call[None]]:
        """Return the calls that remove records."""
        return [delete_row(self._table, status_row(txid)) for txid in txids]

    def all(self) -> Iterator[tuple[bytes, Outline]]:
        """Yield all records, page by page, in no order that means anything; there may be many."""
        for page in self._gateway.pages(self._table, b"s", b"t", [STATE], before=None, page_rows=1_000):
            for row, cells in page:
                if STATE in cells:
                    yield transaction_of(row), Outline(cells[STATE][0])
