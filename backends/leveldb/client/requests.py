"""`OwnerRequests`: requests to the owner of a database, through a pool of connections."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NoReturn

from structable.backends.base.traffic import Tallies
from structable.backends.leveldb.folder import DatabaseFolder
from structable.backends.leveldb.protocol import messages
from structable.backends.leveldb.protocol.channel import TimedOutError
from structable.spi import StorageUnavailableError, TransactionConflictError

from .pool import OwnerConnection, OwnerConnections, refuse

_EAGER_SECONDS = 5.0


class OwnerRequests:
    """Sends requests to one owner; raises the errors of `Client`."""

    def __init__(
        self,
        client: bytes,
        folder: DatabaseFolder,
        path: str,
        process: int,
        seconds: float,
        find_next_owner: Callable[[], object],
        tallies: Tallies,
    ) -> None:
        self.process = process
        self.find_next_owner = find_next_owner
        self.eager_until = 0.0
        """Until this time the owner takes snapshots as transactions begin, because one was lost; 0 for never."""
        self._seconds = seconds
        self.pool = OwnerConnections(client, path, folder, seconds, tallies)

    def ask(self, message: int, body: bytes) -> bytes:
        """Return the answer to a request that may be repeated.

        Raises `PeerLostError` if the owner has ended, and `StorageUnavailableError` if it does not answer in time.
        """
        pool = self.pool
        connection: OwnerConnection | None = None
        try:
            connection = pool.take()
            frame = connection.call(message, body)
        except TimedOutError:
            pool.discard(connection)
            raise self.silent() from None
        except BaseException:
            pool.discard(connection)
            raise
        pool.give_back(connection)
        return frame

    def silent(self) -> StorageUnavailableError:
        """Return the error for an owner that does not answer."""
        return StorageUnavailableError(
            f"process {self.process}, which owns the database, has not answered for {self._seconds:g} seconds"
        )

    def refuse(self, frame: bytes) -> NoReturn:
        """Raise the error in an answer."""
        if frame[0] == messages.LOST:
            # A retry might fail in the same way: for some time the owner takes snapshots as transactions begin.
            self.eager_until = time.monotonic() + _EAGER_SECONDS
            raise TransactionConflictError(frame[1:].decode())
        refuse(frame)
