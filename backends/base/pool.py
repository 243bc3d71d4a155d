"""`ConnectionPool`: open connections, each lent to one thread at a time, the most recently used first.

psycopg_pool is not used because its scheduler and workers are threads: a fork loses them, and a thread that then waits
for a connection waits for ever. This pool has no threads. It opens connections in the calling thread, which receives
the error at once.

A signal handler may raise between any two steps of the main thread without harm: open connections are counted by the
`Slot` that each holds. A connection lost on the way to or from its user is closed when it is collected, and no longer
counts.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from typing import ClassVar, Generic, TypeVar
from weakref import ref

from structable.spi import StorageUnavailableError, Traffic

from .slots import Slot, Slots
from .traffic import Tallies, Tally


class PooledConnection(ABC):
    """A connection that a pool lends. It closes itself when it is collected."""

    tally: Tally
    """The traffic of the connection."""
    slot: Slot | None = None
    """The pool's permit for this connection."""
    lent = False
    """Whether a thread is using the connection."""

    @property
    @abstractmethod
    def usable(self) -> bool:
        """Whether the connection works and no request is in progress on it."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection; idempotent."""

    def shut(self) -> None:
        """Close the connection while another thread uses it."""
        self.close()


Connection = TypeVar("Connection", bound=PooledConnection)


class ConnectionPool(ABC, Generic[Connection]):
    """At most `size` connections; a thread waits `timeout` seconds for one. Keeps at most `most_idle` idle connections.

    Threads may share a pool; a process forked from its creator must not use it.
    """

    holders: ClassVar[str]
    """The owner of the connections, for the message when none is free."""

    def __init__(self, size: int, timeout: float, *, most_idle: int | None = None) -> None:
        self._size = size
        self._timeout = timeout
        self._most_idle = size if most_idle is None else most_idle
        self._slots = Slots(size)
        self._idle: deque[Connection] = deque()
        self._lent: dict[ref[Connection], None] = {}
        self._tallies = Tallies()
        self._process = os.getpid()
        self._closed = False

    @abstractmethod
    def _open(self) -> Connection:
        """Open a connection."""

    @abstractmethod
    def _serves(self, connection: Connection) -> bool:
        """Return whether an idle connection can be used again."""

    @property
    def closed(self) -> bool:
        """Whether `close` was called, or this process was forked from the pool's creator."""
        return self._closed or os.getpid() != self._process

    def traffic(self) -> Traffic:
        """Return the traffic of all connections, open or closed."""
        return self._tallies.traffic()

    def acquire(self) -> Connection:
        """Return a connection for this thread alone, until `release`. Raises any error of opening a connection.

        Raises `StorageUnavailableError` if all connections stayed in use for `timeout` seconds, or the pool is closed.
        """
        if self._closed or os.getpid() != self._process:
            raise self._refusal()
        connection = self._take() or self._slots.wait(self._take, self._timeout)
        if connection is None:
            raise StorageUnavailableError(
                f"all {self._size} connections (pool_size) were in use for {self._timeout:g} s (pool_timeout); "
                f"close {self.holders} that are no longer needed, or raise pool_size"
            )
        connection.lent = True
        if self._closed:  # by another thread since the first check
            self.release(connection)
            raise self._refusal()
        return connection

    def _take(self) -> Connection | None:
        """Return a connection, or None if all are in use."""
        while True:
            if self._closed:
                raise self._refusal()
            try:
                connection = self._idle.pop()
            except IndexError:
                return self._opened()
            if self._serves(connection):
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
            self._tallies.add(connection, connection.tally)
        except BaseException:
            slot = None  # now, not when the traceback is freed
            self._slots.wake()
            raise
        return connection

    def release(self, connection: Connection) -> None:
        """Take a connection back; closes it if it broke or has a request in progress. Idempotent."""
        if os.getpid() != self._process or not connection.lent:
            return
        connection.lent = False
        if connection.usable and not self._closed and len(self._idle) < self._most_idle:
            self._idle.append(connection)
            if self._closed:  # by another thread since the first check
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
        """Close all connections, including those in use; idempotent."""
        if self.closed:
            self._closed = True
            return
        self._closed = True
        self._close_idle()
        for connection in self._connections():
            connection.shut()

    def _connections(self) -> list[Connection]:
        """Return all open connections as of one moment, while other threads take and return some."""
        found = [reference() for reference in list(self._lent)]
        return [connection for connection in found if connection is not None]
