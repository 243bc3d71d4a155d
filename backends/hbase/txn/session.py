"""`ProcessSession`: a process's heartbeat and the oldest timestamp that it needs; works without synchronised clocks.

The numbers of sessions come from a counter that older software cannot use once the format is raised. Such software
reads the format when it connects, and later begins a new session, without reading it again, in place of one that was
declared dead. It counts sessions in another cell, which a raised format makes unusable as a counter.
"""

from __future__ import annotations

import itertools
import logging
import time
from threading import Lock

from structable.backends.hbase.layout import (
    CLOCK,
    FEEDS_FORMAT,
    FORMAT_VERSION,
    GC,
    LANE_BYTES,
    SESSION_BYTES,
    SESSIONS,
    STATE,
    TICK,
    TXID_BYTES,
    TYPES_FORMAT,
    Layout,
    session_row,
)
from structable.backends.hbase.thrift.errors import ServerError, is_refusal
from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.hbase.thrift.requests import ThriftCall, compare_and_put, get_row, increment, put_rows
from structable.backends.hbase.thrift.retry import pause
from structable.spi import StorageUnavailableError, TransactionConflictError

from .recent_writes import RecentWrites

DEAD = b"dead"
CLOSED = b"closed"
_SEQUENCE_BYTES = TXID_BYTES - SESSION_BYTES - LANE_BYTES
_LANES = 1 << 8 * LANE_BYTES
_FIRST_COUNTER = b"c:n"
_COUNTERS = {TYPES_FORMAT: b"c:m", FEEDS_FORMAT: b"c:l"}
"""The counters of later formats."""
_STARTS = {TYPES_FORMAT: 1 << 32, FEEDS_FORMAT: 2 << 32}
"""The starts of these counters, beyond every number of the counters before: no two sessions may have one number."""

_log = logging.getLogger("structable.hbase")


def now() -> float:
    """Return seconds since some moment, including the time in which the machine was suspended.

    Other processes continued while this one was suspended. To watch them for silence, use `time.monotonic` instead: a
    process that was suspended with this one was not silent.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def read_clock(gateway: Gateway, layout: Layout) -> int:
    """Return the timestamp counter's value."""
    cells = gateway.call(get_row(layout.transactions, CLOCK, [TICK]))
    return int.from_bytes(cells[TICK][0])


def _knows_format(heartbeat: bytes, version: int) -> bool:
    """Return whether the process of a heartbeat knows a format; software before format 3 names none."""
    _, _, known = heartbeat.partition(b"|")[2].partition(b"|")
    return known.isdigit() and int(known) >= version


def require_no_older(gateway: Gateway, layout: Layout, version: int) -> None:
    """Raise `StorageUnavailableError` if a living process does not know a format."""
    for page in gateway.pages(layout.transactions, session_row(b""), GC, [STATE], before=None, page_rows=500):
        for row, cells in page:
            heartbeat = cells[STATE][0]
            if heartbeat not in (DEAD, CLOSED) and not _knows_format(heartbeat, version):
                raise StorageUnavailableError(
                    f"the session {int.from_bytes(row[1:])} of {layout.prefix} is an older structable's, which does "
                    f"not know {'change feeds' if version == FEEDS_FORMAT else 'table types'}; end its process, or "
                    "wait for session_timeout if it was killed, and try again"
                )


def next_session_number(gateway: Gateway, layout: Layout) -> int:
    """Return a number that no other session has."""
    table = layout.transactions
    counter = _FIRST_COUNTER
    for following in _COUNTERS.values():
        try:
            return gateway.call(increment(table, SESSIONS, counter, 1))
        except ServerError:
            cells = gateway.call(get_row(table, SESSIONS, [counter]))
            if counter not in cells or cells[counter][0] not in map(_no_counter, _COUNTERS):
                raise
        counter = following
    return gateway.call(increment(table, SESSIONS, counter, 1))


def refuse_older_sessions(gateway: Gateway, layout: Layout, version: int) -> None:
    """Let no software older than a format begin a session from now on; idempotent."""
    table = layout.transactions
    gateway.call(compare_and_put(table, SESSIONS, _COUNTERS[version], None, _STARTS[version].to_bytes(8)))
    older = [_FIRST_COUNTER, *(counter for known, counter in _COUNTERS.items() if known < version)]
    gateway.call(put_rows(table, {SESSIONS: dict.fromkeys(older, _no_counter(version))}))


def _no_counter(version: int) -> bytes:
    return b"format %d counts sessions in %b" % (version, _COUNTERS[version])


class ProcessSession:
    """The registration of one process with the others.

    Its low watermark keeps versions: no open snapshot or unfinalised transaction of the process began before it. A
    process that has seen no heartbeat for `timeout` seconds declares the session dead by changing its cell; half that
    time after its last heartbeat the session itself refuses to read and to commit.
    """

    def __init__(self, gateway: Gateway, layout: Layout, timeout: float) -> None:
        self._gateway = gateway
        self._layout = layout
        self._good_for = timeout / 2
        self.holders: dict[object, int] = {}
        self._heartbeats = itertools.count(1)
        self._sequence = itertools.count(1)
        self._free_lanes: dict[int, int] = {}
        self.gates: set[bytes] = set()  # the feeds in whose gates it is known to have a row
        self._lanes = itertools.count(1)
        self._lanes_lock = Lock()
        self._closed = False
        self._lock = Lock()
        started = now()
        number = next_session_number(gateway, layout)
        self.id = number.to_bytes(SESSION_BYTES)  # never used by another session
        self.recent = RecentWrites(layout, self.id)
        self.clock = read_clock(gateway, layout)  # the newest timestamp known here; no later snapshot is older
        self.raw = self._content()
        self.over = not self._written(None, self.raw)
        """Whether the session was declared dead, or closed."""
        self.good_until = started + self._good_for
        _log.info("session %d of %s began", number, layout.prefix)

    def _content(self) -> bytes:
        held = list(self.holders.values())
        return b"%d|%d|%d" % (min(held, default=self.clock), next(self._heartbeats), FORMAT_VERSION)

    def _written(self, expected: bytes | None, new: bytes) -> bool:
        """Change the cell; False if another process has changed it, and so declared the session dead."""
        row = session_row(self.id)
        call = compare_and_put(self._layout.transactions, row, STATE, expected, new)
        deadline = time.monotonic() + self._gateway.timeout
        while True:
            try:
                if self._gateway.call(call, retry=False):
                    return True
            except StorageUnavailableError as error:
                if is_refusal(error) or time.monotonic() > deadline:
                    raise
            cells = self._gateway.call(get_row(self._layout.transactions, row, [STATE]))
            found = cells[STATE][0] if STATE in cells else None
            if found != expected:
                return found == new
            pause()

    def heartbeat(self) -> None:
        """Renew the session with the present low watermark; after an error the next heartbeat may succeed."""
        with self._lock:
            if self.over:
                return
            sent = now()
            self.clock = max(self.clock, read_clock(self._gateway, self._layout))
            new = self._content()
            if self._written(self.raw, new):
                self.raw = new
                self.good_until = sent + self._good_for
            else:
                self.over = True
                _log.warning(
                    "session %d of %s was lost: another process saw no heartbeat for session_timeout",
                    int.from_bytes(self.id),
                    self._layout.prefix,
                )
                return
        self.publish_recent_writes()

    def publish_recent_writes(self) -> None:
        """Put the list of recent writes if a transaction has ended since the last put."""
        self._put(self.recent.news())

    def _put(self, news: ThriftCall[None] | None) -> None:
        """Put the list, if given; if that fails, other processes only read more rows back."""
        if news is not None:
            try:
                self._gateway.call(news)
            except StorageUnavailableError:
                self.recent.has_news = True

    def require_alive(self) -> None:
        """Raise if versions that a snapshot reads may have been removed.

        That is a conflict if the session was declared dead, and `StorageUnavailableError` if it may have been: HBase
        could not be reached for too long.
        """
        if now() > self.good_until and not self.over:
            # This process was stopped, or HBase was: a heartbeat reveals whether the session is dead.
            self.heartbeat()
        if self._closed:
            raise StorageUnavailableError("the storage was closed; connect again")
        if self.over:
            raise TransactionConflictError(
                "the snapshot is too old: this process sent no heartbeat for session_timeout, and another process "
                "ended its session; retry the transaction"
            )
        if now() > self.good_until:
            raise StorageUnavailableError(
                f"this process has not reached HBase for {self._good_for:g} s; the snapshot may be gone"
            )

    def next_transaction(self, start: int | None = None) -> bytes:
        """Return the id of a new transaction, unique across all processes and all time.

        If the timestamp of its intents is given as `start`, the transaction shares a column with earlier and later
        ones; otherwise it has its own column.
        """
        lane = 0 if start is None else self._take_lane(start)
        return self.id + next(self._sequence).to_bytes(_SEQUENCE_BYTES) + lane.to_bytes(LANE_BYTES)

    def _take_lane(self, start: int) -> int:
        """Return the lowest free lane that hides nothing put at a timestamp, or a new one."""
        with self._lanes_lock:
            lane = min((lane for lane, hidden in self._free_lanes.items() if hidden < start), default=0)
            if lane:
                del self._free_lanes[lane]
                return lane
            lane = next(self._lanes)
            return lane if lane < _LANES else 0

    def free_lane(self, txid: bytes, hidden: int) -> None:
        """Give the lane of a transaction to the next one.

        All its intents must have been deleted: two in one cell would hide one another. If their deletion is uncertain,
        the lane is never free again. `hidden` is the highest timestamp at which any process may have deleted them: puts
        at or below it are hidden.
        """
        lane = int.from_bytes(txid[-LANE_BYTES:])
        if lane:
            with self._lanes_lock:
                self._free_lanes[lane] = hidden

    def hold(self, holder: object, timestamp: int) -> None:
        """Keep the versions that a snapshot at a timestamp reads, until `release` is called for this holder."""
        self.holders[holder] = timestamp

    def release(self, holder: object) -> None:
        """End the effect of `hold`; idempotent, never waits."""
        self.holders.pop(holder, None)

    def holds(self, holder: object) -> bool:
        """Return whether `hold` was called for this holder, and `release` was not."""
        return holder in self.holders

    def close(self) -> None:
        """End the session; other processes finish its unfinalised transactions."""
        with self._lock:
            if not self.over:
                self.over = self._closed = True
                self._put(self.recent.last())
                self._written(self.raw, CLOSED)
                _log.info("session %d of %s ended", int.from_bytes(self.id), self._layout.prefix)
