"""`SessionPool`: open connections, one for each transaction, scan or plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from structable.backends.base.pool import ConnectionPool

from .session import Session

__all__ = ["SessionPool"]


class SessionPool(ConnectionPool[Session]):
    """Connections that `open_session` opens; it raises `StorageUnavailableError`."""

    holders = "transactions, scans and plans"

    def __init__(
        self, open_session: Callable[[], Session], size: int, timeout: float, *, most_idle: int | None = None
    ) -> None:
        super().__init__(size, timeout, most_idle=most_idle)
        self._open_session = open_session

    def _open(self) -> Session:
        return self._open_session()

    def _serves(self, connection: Session) -> bool:
        # The server says good-bye to a connection that it ends: an idle one has nothing else to be read.
        return not connection.closed and not connection.readable

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Lend a connection for the `with` block."""
        session = self.acquire()
        try:
            yield session
        finally:
            self.release(session)
