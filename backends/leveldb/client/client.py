"""`Client`: the way to a database that another process owns."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable
from typing import NoReturn, Protocol

from structable.backends.leveldb.folder import Folder
from structable.backends.leveldb.protocol import wire
from structable.backends.leveldb.protocol.error_codec import unpack_error
from structable.backends.leveldb.protocol.wire import ConnectionLostError, TimedOutError
from structable.backends.leveldb.route import OWNER_ENDED, Procedures, Route
from structable.backends.ordered.engine import BulkCommit, EngineSnapshot, SchemaChangedError, WriteSet
from structable.spi.errors import (
    CommitOutcomeUnknownError,
    StorageUnavailableError,
    StructableError,
    TransactionConflictError,
)

from .pool import ConnectionPool
from .snapshot import Connection, HeldSnapshot, RemoteSnapshot

__all__ = ["Client"]

_EARLY_SECONDS = 5.0


class Home(Protocol):
    """What a client needs of its place."""

    folder: Folder

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
        If no owner answers there.
    StorageUnavailableError
        If the owner, or this process, has no means for a connection.
    """

    def __init__(self, home: Home, shared: memoryview[int], path: str, process: int, seconds: float) -> None:
        self.id = os.urandom(16)
        self._home = home
        self._shared = shared
        self._process = process
        self._seconds = seconds
        self._snapshots = itertools.count(1)
        self._early_until = 0.0
        self.get = self._get
        self._pool = pool = ConnectionPool(self.id, path, self._locate, home.folder.path, seconds, self.refuse)
        # Attributes, for the sake of one call less on each request.
        self.take: Callable[[], Connection] = pool.take
        self.give_back: Callable[[Connection], None] = pool.give_back
        self.discard: Callable[[Connection | None], None] = pool.discard
        self.release: Callable[[int], None] = pool.release
        self.lose: Callable[[HeldSnapshot], None] = pool.lost.append
        self.drop = pool.drop
        self.abandon = pool.abandon

    def _locate(self) -> str | None:
        owner = self._home.folder.read_owner()
        return None if owner is None else owner[0]

    def close(self) -> None:
        """Take leave of the owner."""
        with contextlib.suppress(ConnectionLostError, TimedOutError, StructableError):  # it forgets us anyway
            self.ask(wire.GOODBYE, b"")
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
        self.give_back(connection)
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
            flags |= snapshot.commit_flags()
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
                self._resolve(connection, checked=snapshot is not None)
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
        if snapshot is not None:
            snapshot.end()
        self.give_back(connection)
        if frame[0] != wire.DONE:
            self.refuse(frame)

    def _resolve(self, connection: Connection, *, checked: bool) -> None:
        """Find out whether the commit on a lost connection arrived, one that had a snapshot or not."""
        try:
            arrived = self._home.failover(self).committed(self.id, connection.number, connection.sequence)
        except StructableError as error:
            raise CommitOutcomeUnknownError(
                f"process {self._process}, which owned the database, ended during the commit, and nobody knows: {error}"
            ) from error
        if not arrived and checked:
            raise TransactionConflictError(OWNER_ENDED)  # a retry takes a new snapshot
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
        self.give_back(connection)
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
