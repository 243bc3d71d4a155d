"""`ConnectionPool`: open connections, the one used last lent first, to the first gateway that answers.

The calling thread opens connections itself, so that errors are raised there at once; the pool has no threads that a
fork would lose. A connection that is dropped between two calls, because a signal handler raised, is closed when it is
collected, and no longer counts.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from weakref import ref

from structable.backends.base.slots import Slots
from structable.spi import StorageUnavailableError

from .connection import Connection
from .errors import ConnectionLostError, format_address

__all__ = ["ConnectionPool"]

_FIRST_AVOIDANCE = 1.0
_LONGEST_AVOIDANCE = 30.0
_PROBE = 5.0
"""Seconds for connecting, if there is another gateway to try."""

Address = tuple[str, int]

_log = logging.getLogger("structable.hbase")


class ConnectionPool:
    """A limited number of connections to the first of the gateways that works.

    Parameters
    ----------
    addresses : sequence of tuple
        The gateways' hosts and ports.
    connect : callable
        Opens a connection within the given seconds; raises `ConnectionLostError`.
    size : int
        The largest number of open connections.
    pool_timeout : float
        Seconds to wait for one of them.
    timeout : float
        Seconds for connecting, for one reply, and for all attempts at a call that may be repeated.

    Attributes
    ----------
    reached : bool
        Whether a gateway ever gave a valid answer.
    round_trips : int
        How often a thread waited for replies.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        connect: Callable[[Address, float], Connection],
        *,
        size: int,
        pool_timeout: float,
        timeout: float,
    ) -> None:
        self._addresses = tuple(addresses)
        self._connect = connect
        self._size = size
        self._pool_timeout = pool_timeout
        self.timeout = timeout
        self.reached = False
        self.round_trips = 0
        self._slots = Slots(size)
        self._idle: deque[Connection] = deque()
        self._lent: dict[ref[Connection], None] = {}
        self._avoided: dict[Address, tuple[float, float]] = {}  # until when, and for how long
        self._process = os.getpid()
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether `close` was called, or this process was forked from the one that made the pool."""
        return self._closed or os.getpid() != self._process

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Lend a connection for the `with` block; if it is lost there, its gateway is avoided for a while."""
        connection = self.acquire()
        waited = connection.waits
        try:
            yield connection
        except ConnectionLostError as error:
            self.avoid(connection.address, error)
            raise
        else:
            self.trust(connection.address)
        finally:
            self.reached |= connection.answered
            self.round_trips += connection.waits - waited
            self.release(connection)

    def acquire(self) -> Connection:
        """Return a connection for this thread alone; give it back by `release`.

        Raises
        ------
        ConnectionLostError
            If no gateway can be reached.
        StorageUnavailableError
            If all connections were in use for `pool_timeout`, or the pool is closed.
        """
        if self.closed:
            raise self._refusal()
        connection = self._take() or self._slots.wait(self._take, self._pool_timeout)
        if connection is None:
            raise StorageUnavailableError(
                f"all {self._size} connections (pool_size) were in use for {self._pool_timeout:g} s (pool_timeout): "
                "close scans that are no longer needed, or raise pool_size"
            )
        connection.lent = True
        if self._closed:  # meanwhile
            self.release(connection)
            raise self._refusal()
        return connection

    def _take(self) -> Connection | None:
        """Return a connection, or None if all are in use."""
        best = self._best()[0]
        while True:
            if self._closed:
                raise self._refusal()
            try:
                connection = self._idle.pop()
            except IndexError:
                return self._opened()
            if connection.address == best and not connection.stale:
                return connection
            self._end(connection)

    def _opened(self) -> Connection | None:
        slot = self._slots.take()
        if slot is None:
            return None
        try:
            connection = self._open()
            connection.slot = slot
            self._lent[ref(connection, self._lent.pop)] = None
        except BaseException:
            slot = None  # now, and not when the traceback goes
            self._slots.wake()
            raise
        return connection

    def _best(self) -> list[Address]:
        """Return the gateways in the order to try them: as listed, those to avoid last."""
        if not self._avoided:
            return list(self._addresses)
        now = time.monotonic()
        until = {address: self._avoided.get(address, (0.0, 0.0))[0] for address in self._addresses}
        return sorted(self._addresses, key=lambda address: max(until[address], now))

    def _open(self) -> Connection:
        lost: list[ConnectionLostError] = []
        several = len(self._addresses) > 1
        for address in self._best():
            known = address in self._avoided
            if known:
                self.avoid(address)  # other threads need not try as well
            try:
                return self._connect(address, min(self.timeout, _PROBE) if several else self.timeout)
            except ConnectionLostError as error:
                if not known:
                    self.avoid(address, error)
                lost.append(error)
        if len(lost) == 1:
            raise lost[0]
        others = "; ".join(str(error) for error in lost[1:])
        raise ConnectionLostError(lost[0].address, f"{lost[0].reason}; {others}", sent=False) from lost[0]

    @property
    def untried(self) -> bool:
        """Whether there is a gateway that is not avoided."""
        return any(address not in self._avoided for address in self._addresses)

    def avoid(self, address: Address, error: ConnectionLostError | None = None) -> None:
        """Prefer the other gateways for some seconds, longer after each failure in a row."""
        duration = min(self._avoided.get(address, (0.0, _FIRST_AVOIDANCE / 2))[1] * 2, _LONGEST_AVOIDANCE)
        self._avoided[address] = (time.monotonic() + duration, duration)
        if error is not None:
            _log.warning("gateway %s; it is avoided for %g s", error, duration)

    def trust(self, address: Address) -> None:
        """Note that a gateway answered."""
        if address in self._avoided:
            self._avoided.pop(address, None)
            _log.info("gateway %s answers again", format_address(address))

    def release(self, connection: Connection) -> None:
        """Take a connection back; a broken one, or one with a reply outstanding, is closed. Idempotent."""
        if os.getpid() != self._process or not connection.lent:
            return
        connection.lent = False
        if connection.usable and not self._closed:
            self._idle.append(connection)
            if self._closed:  # meanwhile
                self._close_idle()
        else:
            self._end(connection)
        self._slots.wake()

    def _end(self, connection: Connection) -> None:
        connection.close()
        connection.slot = None

    def _refusal(self) -> StorageUnavailableError:
        how = "was closed" if self._closed else "belongs to the process that forked this one; connect again"
        return StorageUnavailableError(f"the storage {how}")

    def _close_idle(self) -> None:
        while self._idle:
            try:
                self._end(self._idle.pop())
            except IndexError:  # another thread was faster
                return

    def close(self) -> None:
        """Close all connections, those in use too; idempotent."""
        if self.closed:
            self._closed = True
            return
        self._closed = True
        self._close_idle()
        for reference in list(self._lent):  # at once, whatever other threads take and give back
            connection = reference()
            if connection is not None:
                connection.shut()
