"""`ServerPool`: open connections, one for each transaction, scan or plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from structable.backends.base.pool import ConnectionPool

from .connection import ServerConnection

__all__ = ["ServerPool"]


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

    def _open(self) -> ServerConnection:
        return self._open_connection()

    def _serves(self, connection: ServerConnection) -> bool:
        # The server says good-bye to a connection that it ends: an idle one has nothing else to be read.
        return not connection.closed and not connection.readable

    @contextmanager
    def connection(self) -> Iterator[ServerConnection]:
        """Lend a connection for the `with` block."""
        connection = self.acquire()
        try:
            yield connection
        finally:
            self.release(connection)
