"""`StatusTable`: the status records of transactions, read in batches and changed by compare-and-put."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from threading import Lock

from structable.backends.hbase.layout import STATE, WRITES, Layout, status_row, transaction_of
from structable.backends.hbase.thrift.errors import is_refusal
from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.hbase.thrift.requests import (
    Cells,
    ThriftCall,
    compare_and_put,
    delete_row,
    get_row,
    get_rows,
    put_rows,
    split_rows,
)
from structable.backends.hbase.thrift.retry import pause
from structable.spi import StorageUnavailableError

from .status import ABORTED, PENDING, Status, StatusHead
from .written_rows import TransactionWrites, decode_rows

_MOST_KNOWN = 10_000
_AT_ONCE = 500
_MARKED_BYTES = 32 << 10
"""The size limit of one call: fits the smallest frame_limit."""


class StatusTable:
    """The status records of one prefix.

    `known_for` is the time in seconds that "committed, not yet finalised" may be cached. It must be shorter than
    `late_writes`: versions read because of a status may be removed that long after it changed.
    """

    def __init__(self, gateway: Gateway, layout: Layout, known_for: float) -> None:
        self._gateway = gateway
        self._table = layout.transactions
        self._known_for = known_for
        self._known: OrderedDict[bytes, tuple[float, Status]] = OrderedDict()
        self._lock = Lock()
        self._seen: OrderedDict[bytes, tuple[bytes, float]] = OrderedDict()

    def statuses(self, txids: Iterable[bytes]) -> dict[bytes, Status]:
        """Return the statuses of transactions; those without a record are omitted."""
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
        """Return the status of a transaction, never from the cache."""
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
        """Return how long this process has seen the owner leave a status unchanged, in seconds."""
        now, life = time.monotonic(), status.liveness
        with self._lock:
            before, since = self._seen.get(txid, (b"", now))
            if before != life:
                since = now
                self._seen[txid] = life, now
                while len(self._seen) > _MOST_KNOWN:
                    self._seen.popitem(last=False)
        return now - since

    def record(self, txid: bytes, status: Status, writes: bytes) -> dict[bytes, Mapping[bytes, bytes]]:
        """Return the row and the cells of a new record, for a put below the timestamps of HBase's own clock.

        At such a timestamp they change nothing if a record exists, and cannot be read once a record was removed.
        """
        cells = {STATE: status.raw}
        if status.detached:
            cells[WRITES] = writes
        return {status_row(txid): cells}

    def writes_of(self, txid: bytes, status: Status) -> TransactionWrites:
        """Return the rows that a transaction has written; none if the list was removed."""
        if not status.detached:
            return decode_rows(status.writes)
        cells = self._gateway.call(get_row(self._table, status_row(txid), [WRITES]))
        return decode_rows(cells[WRITES][0] if WRITES in cells else b"")

    def change(self, txid: bytes, expected: Status | None, new: Status) -> Status | None:
        """Change a status if it is as expected, and return the status after that.

        A lost reply is looked up. A change that was not made is tried again; an earlier attempt may still take effect
        later. After a `ServerError`, such as a missing permission, the change was not made and never will be; after any
        other `StorageUnavailableError` it may have been made, or still be.
        """
        call = compare_and_put(
            self._table, status_row(txid), STATE, None if expected is None else expected.raw, new.raw
        )
        deadline = time.monotonic() + self._gateway.timeout
        lost = False
        while True:
            try:
                if self._gateway.call(call, retry=False):
                    return new
                # "False" may be the answer to the gateway's own retry: the cell decides.
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
                # HBase may answer reads and still be unable to write: retries end at the time-out.
                if time.monotonic() > deadline:
                    raise
            pause()

    def change_many(self, changes: Mapping[bytes, tuple[Status, Status]]) -> None:
        """Try several changes at once; the caller reads the statuses again."""
        items = list(changes.items())
        for start in range(0, len(items), _AT_ONCE):
            calls = [
                compare_and_put(self._table, status_row(txid), STATE, expected.raw, new.raw)
                for txid, (expected, new) in items[start : start + _AT_ONCE]
            ]
            self._gateway.flight(calls)

    def mark_finalised(self, ended: Mapping[bytes, Status]) -> list[ThriftCall[None]]:
        """Return the calls that mark committed transactions as finalised.

        Plain puts suffice: a committed record can only be marked, by any process, and then be removed. A removed record
        that such a put restores is removed once more, and means the same as an absent one. The janitor handles a mark
        that HBase's clock puts below the record, as after a move to a server whose clock is behind.
        """
        rows = {status_row(txid): {STATE: status.with_finalised().raw} for txid, status in ended.items()}
        return [put_rows(self._table, part) for part in split_rows(rows, limit_bytes=_MARKED_BYTES)]

    def abort_if_absent(self, txid: bytes) -> Status:
        """Return the status of a transaction that had no record; an aborted one is created unless it has one by now.

        The transaction may also have committed long ago, and its record may have been removed. The status therefore
        makes readers read the row again, as for a finalised transaction.
        """
        status = self.status(txid)
        while status is None:
            status = self.change(txid, None, Status(ABORTED, finalised=True))
        return status

    def abort(self, txid: bytes) -> Status:
        """Abort a transaction unless it is committed, and return its status."""
        status = self.abort_if_absent(txid)
        while status.state == PENDING:
            status = self.change(txid, status, status.aborted()) or self.abort_if_absent(txid)
        return status

    def drop(self, txids: Iterable[bytes]) -> list[ThriftCall[None]]:
        """Return the calls that remove records."""
        return [delete_row(self._table, status_row(txid)) for txid in txids]

    def all(self) -> Iterator[tuple[bytes, StatusHead]]:
        """Yield all records, in no particular order; there may be many."""
        for page in self._gateway.pages(self._table, b"s", b"t", [STATE], before=None, page_rows=1_000):
            for row, cells in page:
                if STATE in cells:
                    yield transaction_of(row), StatusHead(cells[STATE][0])
