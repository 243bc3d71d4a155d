"""`Client`: the way to a database that another process owns."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import time
from collections import deque
from pathlib import Path
from typing import NoReturn, Protocol

from structable.backends.ordered.engine import BulkCommit, EngineSnapshot, SchemaChangedError, WriteSet
from structable.spi.errors import (
    CommitOutcomeUnknownError,
    StorageUnavailableError,
    StructableError,
    TransactionConflictError,
)

from . import wire
from .failures import unpack_error
from .remote import Connection, RemoteSnapshot
from .route import OWNER_ENDED, Procedures, Route
from .server import check_peer
from .wire import Channel, ConnectionLostError, TimedOutError

__all__ = ["Client"]

_EARLY_SECONDS = 5.0


class Home(Protocol):
    """What a client needs of its place."""

    def failover(self, lost: Route) -> Route:
        """Return the new way after one was lost."""


class Client(Route):
    """The way of a process that does not own the database. Each thread uses a connection of its own.

    Parameters
    ----------
    home : Home
        The place.
    shared : memoryview
        The cells of `open_shared`.
    path : str
        The owner's socket.
    process : int
        The owner's id, for messages.
    seconds : float
        How long to wait for the owner.

    Raises
    ------
    ConnectionLostError, TimedOutError
        If nobody answers there.
    """

    def __init__(self, home: Home, shared: memoryview[int], path: str, process: int, seconds: float) -> None:
        self.id = os.urandom(16)
        self._home = home
        self._shared = shared
        self._path = path
        self._process = process
        self._seconds = seconds
        self._numbers = itertools.count(1)
        self._snapshots = itertools.count(1)
        self._idle: deque[Connection] = deque()
        self._open: set[Connection] = set()
        self._dropped = False
        self._early_until = 0.0
        self.get = self._get
        # Idle for ever: snapshots belong to all connections together, and last as long as one of them does.
        self._anchor = self._connect()

    # Connections

    def _connect(self) -> Connection:
        if self._dropped:
            raise ConnectionLostError("the owner has ended")
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(self._seconds)
            connection.connect(self._path)
            connection.settimeout(None)
            check_peer(connection, Path(self._path).parent)
            channel = Channel(connection, receive_seconds=self._seconds, send_seconds=self._seconds)
            number = next(self._numbers)
            opened = Connection(channel, number)
            frame = opened.call(wire.HELLO, wire.HELLO_BODY.pack(wire.VERSION, self.id, number))
        except TimeoutError:
            connection.close()
            raise TimedOutError from None
        except OSError as error:
            connection.close()
            raise ConnectionLostError(str(error)) from None
        except BaseException:
            connection.close()
            raise
        if frame[0] != wire.DONE:
            connection.close()
            self.refuse(frame)
        self._open.add(opened)
        return opened

    def take(self) -> Connection:
        """Return a connection that nobody uses, to be given back or discarded."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def give_back(self, connection: Connection) -> None:
        """Let others use a connection; nothing may be under way on it."""
        self._idle.append(connection)

    def discard(self, connection: Connection | None) -> None:
        """Close a connection, if there is one."""
        if connection is not None:
            self._open.discard(connection)
            connection.channel.close()

    def drop(self) -> None:
        """Close all connections: the owner has ended."""
        self._dropped = True
        self._idle.clear()
        for connection in list(self._open):
            self.discard(connection)

    abandon = drop

    def close(self) -> None:
        """Take leave of the owner."""
        with contextlib.suppress(ConnectionLostError, TimedOutError, StructableError):  # it forgets us anyway
            self.take().call(wire.GOODBYE, b"")
        self.drop()

    def ask(self, message: int, body: bytes) -> bytes:
        """Return the answer to a request that may be repeated.

        Raises
        ------
        ConnectionLostError
            If the owner has ended.
        StorageUnavailableError
            If it does not answer in time.
        """
        connection: Connection | None = None
        try:
            connection = self.take()
            frame = connection.call(message, body)
        except TimedOutError:
            self.discard(connection)
            raise self.silent() from None
        except BaseException:
            self.discard(connection)
            raise
        self._idle.append(connection)
        return frame

    def find_next(self) -> None:
        """Let this process go on with the next owner, or as the owner.

        Raises
        ------
        StorageUnavailableError
            If there is none within the time-out.
        """
        self._home.failover(self)

    def silent(self) -> StorageUnavailableError:
        """Return the error for an owner that does not answer."""
        return StorageUnavailableError(
            f"process {self._process}, which owns the database, has not answered for {self._seconds:g} seconds"
        )

    def refuse(self, frame: bytes) -> NoReturn:
        """Raise what an answer says that is not the one hoped for."""
        if frame[0] == wire.EPOCH:
            raise TransactionConflictError("the schema was changed since the transaction began")
        if frame[0] == wire.LOST:
            # Whoever tries again would perhaps be as late: for some time the owner takes snapshots at once.
            self._early_until = time.monotonic() + _EARLY_SECONDS
            raise TransactionConflictError(frame[1:].decode())
        if frame[0] == wire.ERROR:
            raise unpack_error(frame[1:])
        raise ConnectionLostError(f"unexpected answer {frame[0]}")

    # Route

    def _get(self, key: bytes) -> bytes | None:
        try:
            frame = self.ask(wire.GET, self._shared[0].to_bytes(8, "little") + key)
        except ConnectionLostError:
            return self._home.failover(self).get(key)
        message = frame[0]
        if message == wire.VALUE:
            return frame[1:]
        if message == wire.ABSENT:
            return None
        if message == wire.EPOCH:
            raise SchemaChangedError
        return self.refuse(frame)

    def begin(self, read_only: bool) -> EngineSnapshot:
        shared = self._shared
        place = shared[1]  # before the epoch, so that a schema change between the two conflicts
        snapshot = RemoteSnapshot(self, next(self._snapshots), place, shared[0], wire.READ_ONLY if read_only else 0)
        if self._early_until and not read_only:
            if time.monotonic() < self._early_until:
                snapshot.get(b"")  # no key is empty
            else:
                self._early_until = 0.0
        return snapshot

    def commit(self, snapshot: EngineSnapshot | None, changes: WriteSet, sync: bool) -> None:
        flags = wire.SYNC if sync else 0
        number = epoch = place = 0
        if snapshot is None:
            flags |= wire.UNCHECKED
        elif isinstance(snapshot, RemoteSnapshot) and snapshot.client is self:
            number, epoch, place = snapshot.number, snapshot.epoch, snapshot.place
            flags |= snapshot.end()
        else:
            raise TransactionConflictError(OWNER_ENDED)
        body = wire.pack_changes(changes)
        connection: Connection | None = None
        try:
            connection = self.take()
            connection.sequence += 1
            frame = connection.call(
                wire.COMMIT, wire.COMMIT_HEAD.pack(number, flags, epoch, place, connection.sequence) + body
            )
        except TimedOutError:
            self.discard(connection)
            if connection is None:
                raise self.silent() from None
            raise CommitOutcomeUnknownError(f"{self.silent()}, and may have committed") from None
        except ConnectionLostError as error:
            self.discard(connection)
            if connection is not None and error.was_sent:
                self._resolve(connection)
                return
            route = self._home.failover(self)
            if snapshot is None:
                route.commit(None, changes, sync)
            else:
                raise TransactionConflictError(OWNER_ENDED) from None
            return
        except BaseException:
            self.discard(connection)
            raise
        self._idle.append(connection)
        if frame[0] != wire.DONE:
            self.refuse(frame)

    def _resolve(self, connection: Connection) -> None:
        """Find out whether the commit on a lost connection arrived."""
        try:
            arrived = self._home.failover(self).committed(self.id, connection.number, connection.sequence)
        except StructableError as error:
            raise CommitOutcomeUnknownError(
                f"process {self._process}, which owned the database, ended during the commit, and nobody knows: {error}"
            ) from error
        if not arrived:
            raise StorageUnavailableError(
                f"process {self._process}, which owned the database, ended before the commit; nothing was committed"
            )

    def commit_bulk(self, bulk: BulkCommit) -> None:
        raise StorageUnavailableError("this process does not own the database; delegate the bulk commit")

    def delegate(self, procedures: Procedures, procedure: str, argument: bytes) -> bytes:
        connection: Connection | None = None
        try:
            connection = self.take()
            frame = connection.call(wire.DELEGATE, wire.pack_texts([procedure.encode()]) + argument)
        except TimedOutError:
            self.discard(connection)
            if connection is None:
                raise self.silent() from None
            raise CommitOutcomeUnknownError(f"{self.silent()}, and may have done what it was asked to") from None
        except ConnectionLostError as error:
            self.discard(connection)
            route = self._home.failover(self)
            if connection is None or not error.was_sent:
                return route.delegate(procedures, procedure, argument)
            raise CommitOutcomeUnknownError(
                f"process {self._process}, which owned the database, has ended, and may have done what it was asked to"
            ) from error
        except BaseException:
            self.discard(connection)
            raise
        self._idle.append(connection)
        if frame[0] != wire.VALUE:
            self.refuse(frame)
        return frame[1:]

    def checkpoint(self, plan: str) -> None:
        try:
            frame = self.ask(wire.CHECKPOINT, plan.encode())
        except ConnectionLostError:
            self._home.failover(self).checkpoint(plan)
            return
        if frame[0] != wire.DONE:
            self.refuse(frame)

    def committed(self, client: bytes, connection: int, sequence: int) -> bool:
        try:
            frame = self.ask(wire.LOOK_UP, wire.LOOK_UP_BODY.pack(client, connection, sequence))
        except ConnectionLostError:
            return self._home.failover(self).committed(client, connection, sequence)
        if frame[0] not in (wire.VALUE, wire.ABSENT):
            self.refuse(frame)
        return frame[0] == wire.VALUE
