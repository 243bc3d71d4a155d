"""`ServerPool`: open connections, one for each transaction, scan or plan."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from structable.backends.base.pool import ConnectionPool
from structable.spi import Traffic

from .connection import ServerConnection

_log = logging.getLogger("structable.postgresql")


class ServerPool(ConnectionPool[ServerConnection]):
    """Connections that `open_connection` opens; it raises `StorageUnavailableError`."""

    holders = "transactions, scans and plans"

    def __init__(
        self,
        open_connection: Callable[[], ServerConnection],
        size: int,
        timeout: float,
        *,
        most_idle: int | None = None,
    ) -> None:
        super().__init__(size, timeout, most_idle=most_idle)
        self._open_connection = open_connection
        self._has_lost = False

    def traffic(self) -> Traffic:
        for connection in self._connections():
            connection.count_bytes()
        return super().traffic()

    def _open(self) -> ServerConnection:
        connection = self._open_connection()
        if self._has_lost:
            self._has_lost = False
            _log.info("connected again, to server process %d", connection.process)
        return connection

    def _serves(self, connection: ServerConnection) -> bool:
        # The server sends a message before it ends a connection; an idle one has nothing else to read.
        if not connection.closed and not connection.readable:
            return True
        self._has_lost = True
        _log.info("the server ended the idle connection to its process %d", connection.process)
        return False

    def _end(self, connection: ServerConnection) -> None:
        self._has_lost = self._has_lost or connection.closed
        super()._end(connection)

    @contextmanager
    def connection(self) -> Iterator[ServerConnection]:
        connection = self.acquire()
        try:
            yield connection
        finally:
            self.release(connection)
