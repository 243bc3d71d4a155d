"""`Session`: what a process holds of the store, and its sign of life; without clocks that agree."""

from __future__ import annotations

import itertools
import time
from threading import Lock

from structable.backends.hbase.layout import (
    CLOCK,
    LANE_BYTES,
    SESSION_BYTES,
    SESSIONS,
    STATE,
    TICK,
    TXID_BYTES,
    Layout,
    session_row,
)
from structable.backends.hbase.thrift.errors import is_refusal
from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.hbase.thrift.requests import Call, compare_and_put, get_row, increment
from structable.backends.hbase.thrift.retry import pause
from structable.spi.errors import StorageUnavailableError, TransactionConflictError

from .clock import now
from .recent_writes import RecentWrites

__all__ = ["CLOSED", "DEAD", "Session", "read_clock"]

DEAD = b"dead"
CLOSED = b"closed"
_SEQUENCE_BYTES = TXID_BYTES - SESSION_BYTES - LANE_BYTES
_LANES = 1 << 8 * LANE_BYTES


def read_clock(gateway: Gateway, layout: Layout) -> int:
    """Return the timestamp counter's value."""
    cells = gateway.call(get_row(layout.transactions, CLOCK, [TICK]))
    return int.from_bytes(cells[TICK][0])


class Session:
    """One process's place among the others.

    Its floor keeps versions: no snapshot that it has open, and no transaction of it that is not yet finalised, began
    before. Another process that has seen no sign of life for `timeout` seconds declares it dead, by changing the cell
    that it beats; half that time after its last beat the session itself refuses to read and to commit.

    Parameters
    ----------
    gateway : Gateway
        Where HBase is.
    layout : Layout
        The names.
    timeout : float
        Seconds without a beat after which it may be declared dead.
    """

    def __init__(self, gateway: Gateway, layout: Layout, timeout: float) -> None:
        self._gateway = gateway
        self._layout = layout
        self._trusted_for = timeout / 2
        self._floors: dict[object, int] = {}
        self._beats = itertools.count(1)
        self._sequence = itertools.count(1)
        self._free_lanes: dict[int, int] = {}
        self._lanes = itertools.count(1)
        self._lanes_lock = Lock()
        self._closed = False
        self._lock = Lock()
        started = now()
        number = gateway.call(increment(layout.transactions, SESSIONS, b"c:n", 1))
        self.id = number.to_bytes(SESSION_BYTES)
        self.recent = RecentWrites(layout, self.id)
        self.clock = read_clock(gateway, layout)
        """The newest timestamp known here; no snapshot that begins from now on is older."""
        self._raw = self._content()
        self._over = not self._written(None, self._raw)
        self._good_until = started + self._trusted_for

    def _content(self) -> bytes:
        floors = list(self._floors.values())
        return b"%d|%d" % (min(floors, default=self.clock), next(self._beats))

    def _written(self, expected: bytes | None, new: bytes) -> bool:
        """Change the cell; false if it is not as expected, so that somebody has declared the session dead."""
        row = session_row(self.id)
        call = compare_and_put(self._layout.transactions, row, STATE, expected, new)
        end = time.monotonic() + self._gateway.timeout
        while True:
            try:
                if self._gateway.call(call, retry=False):
                    return True
            except StorageUnavailableError as error:
                if is_refusal(error) or time.monotonic() > end:
                    raise
            cells = self._gateway.call(get_row(self._layout.transactions, row, [STATE]))
            found = cells[STATE][0] if STATE in cells else None
            if found != expected:
                return found == new
            pause()

    def beat(self) -> None:
        """Give a sign of life, with the floor as it is now.

        Raises
        ------
        StorageUnavailableError
            If HBase cannot be reached; the next beat may.
        """
        with self._lock:
            if self._over:
                return
            sent = now()
            self.clock = max(self.clock, read_clock(self._gateway, self._layout))
            new = self._content()
            if self._written(self._raw, new):
                self._raw = new
                self._good_until = sent + self._trusted_for
            else:
                self._over = True
                return
        self.tell()

    def tell(self) -> None:
        """Say in the list of recent writes what has ended, which is not said before the next transaction otherwise."""
        self._put(self.recent.news())

    def _put(self, news: Call[None] | None) -> None:
        """Put the list, if it is given; others do without, but look at more rows then."""
        if news is not None:
            try:
                self._gateway.call(news)
            except StorageUnavailableError:
                self.recent.has_news = True

    @property
    def over(self) -> bool:
        """Whether it was declared dead, or closed."""
        return self._over

    def require_alive(self) -> None:
        """Refuse to go on with a snapshot whose versions may have been removed.

        Raises
        ------
        TransactionConflictError
            If the session was declared dead.
        StorageUnavailableError
            If it may have been: HBase could not be reached for too long.
        """
        if now() > self._good_until and not self._over:
            # It was stopped, or HBase was: whether it is dead is known by trying.
            self.beat()
        if self._closed:
            raise StorageUnavailableError("the storage was closed")
        if self._over:
            raise TransactionConflictError(
                "the snapshot is too old: this process gave no sign of life for so long that others ended its session"
            )
        if now() > self._good_until:
            raise StorageUnavailableError(
                f"this process has not reached HBase for {self._trusted_for:g} s; the snapshot may be gone"
            )

    def next_transaction(self, start: int | None = None) -> bytes:
        """Return the id of a new transaction; never the same again, in any process.

        Parameters
        ----------
        start : int, optional
            The timestamp of its intents: it shares a column, if only with others before and after it. Without it, the
            transaction has a column of its own.
        """
        lane = 0 if start is None else self._take_lane(start)
        return self.id + next(self._sequence).to_bytes(_SEQUENCE_BYTES) + lane.to_bytes(LANE_BYTES)

    def _take_lane(self, start: int) -> int:
        """Return the lowest lane that is free and hides nothing that is put at a timestamp; else a new one."""
        with self._lanes_lock:
            lane = min((lane for lane, hidden in self._free_lanes.items() if hidden < start), default=0)
            if lane:
                del self._free_lanes[lane]
                return lane
            lane = next(self._lanes)
            return lane if lane < _LANES else 0

    def free_lane(self, txid: bytes, hidden: int) -> None:
        """Give the lane of a transaction to the next one.

        All its intents must have been deleted: two in one cell would hide one another. Who was not told that they were
        keeps the lane for ever.

        Parameters
        ----------
        txid : bytes
            The transaction.
        hidden : int
            The highest timestamp that anybody may have deleted its intents at: what is put at it or below is hidden.
        """
        lane = int.from_bytes(txid[-LANE_BYTES:])
        if lane:
            with self._lanes_lock:
                self._free_lanes[lane] = hidden

    def hold(self, holder: object, timestamp: int) -> None:
        """Keep what a snapshot at a timestamp reads, until `let_go` is called for this holder."""
        self._floors[holder] = timestamp

    def let_go(self, holder: object) -> None:
        """Free what a holder holds; idempotent, waits for nothing."""
        self._floors.pop(holder, None)

    @property
    def floors(self) -> int:
        """How many snapshots and transactions are held."""
        return len(self._floors)

    def close(self) -> None:
        """Say that it ends; what it has left unfinalised, others finish."""
        with self._lock:
            if not self._over:
                self._over = self._closed = True
                self._put(self.recent.last())
                self._written(self._raw, CLOSED)
