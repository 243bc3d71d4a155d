"""`Client`: the route of a process that does not own the database."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Sequence

from structable.backends.base.traffic import Tallies
from structable.backends.leveldb.folder import DatabaseFolder
from structable.backends.leveldb.protocol import messages
from structable.backends.leveldb.protocol.channel import PeerLostError, TimedOutError
from structable.backends.leveldb.protocol.shared_memory import open_shared
from structable.backends.leveldb.route import OWNER_ENDED, Procedures, Route
from structable.backends.ordered.engine import BulkCommit, EngineSnapshot, SchemaChangedError, WriteSet
from structable.spi import CommitOutcomeUnknownError, StorageUnavailableError, StructableError, TransactionConflictError

from .pool import OwnerConnection
from .requests import OwnerRequests
from .snapshot import RemoteSnapshot


def connect_to_owner(
    folder: DatabaseFolder, failover: Callable[[Route], Route], seconds: float, tallies: Tallies
) -> Client | str:
    """Return a client of the owner of a database, or the problem, as the end of "another process owns it, ...".

    `tallies` count its connections.
    """
    owner = folder.read_owner()
    if owner is None:
        return "which has not published its address"
    path, process = owner
    try:
        shared = open_shared(folder.epoch, writable=False)
    except (OSError, ValueError) as error:
        return f"process {process}, which cannot be reached: {error}"
    try:
        return Client(folder, failover, shared, path, process, seconds, tallies)
    except TimedOutError:
        return f"process {process}, which does not answer"
    except PeerLostError as error:
        return f"process {process}, which cannot be reached: {error}"
    except StorageUnavailableError as error:
        return f"process {process}, which cannot be used: {error}"


class Client(Route):
    """Sends every operation to the owner. Each thread uses its own connection.

    Raises `PeerLostError` or `TimedOutError` if no owner answers there, and `StorageUnavailableError` if the owner, or
    this process, cannot open a connection.
    """

    def __init__(
        self,
        folder: DatabaseFolder,
        failover: Callable[[Route], Route],
        shared: memoryview[int],
        path: str,
        process: int,
        seconds: float,
        tallies: Tallies,
    ) -> None:
        self.id = os.urandom(16)
        self._failover = failover
        self.shared = shared
        self.process = process
        self._snapshots = itertools.count(1)
        self.requests = OwnerRequests(self.id, folder, path, process, seconds, lambda: failover(self), tallies)
        self.pool = self.requests.pool
        self.get = self._get
        self.begin = self._begin
        self.commit = self._commit
        self.drop = self.pool.drop
        self.abandon = self.pool.abandon

    def close(self) -> None:
        """Tell the owner that this client ends, and close the connections."""
        with contextlib.suppress(PeerLostError, TimedOutError, StructableError):  # the owner forgets this client anyway
            self.requests.ask(messages.GOODBYE, b"")
        self.drop()

    def _get(self, key: bytes) -> bytes | None:
        try:
            frame = self.requests.ask(messages.GET, self.shared[0].to_bytes(8, "little") + key)
        except PeerLostError:
            return self._failover(self).get(key)
        message = frame[0]
        if message == messages.VALUE:
            return frame[1:]
        if message == messages.ABSENT:
            return None
        if message == messages.EPOCH:
            raise SchemaChangedError
        return self.requests.refuse(frame)

    def _begin(self, read_only: bool) -> EngineSnapshot:
        shared, requests = self.shared, self.requests
        base = shared[1]  # before the epoch, so that a schema change between the two conflicts
        flags = messages.READ_ONLY if read_only else 0
        snapshot = RemoteSnapshot(requests, next(self._snapshots), base, shared[0], flags)
        if requests.eager_until and not read_only:
            if time.monotonic() < requests.eager_until:
                snapshot.get(b"")  # no key is empty: this only makes the owner take the snapshot
            else:
                requests.eager_until = 0.0
        return snapshot

    def _commit(self, snapshot: EngineSnapshot | None, changes: WriteSet, sync: bool) -> None:
        flags = messages.SYNC if sync else 0
        number = epoch = base = 0
        if snapshot is None:
            flags |= messages.UNCHECKED
        elif isinstance(snapshot, RemoteSnapshot) and snapshot.requests is self.requests:
            number, epoch, base = snapshot.number, snapshot.epoch, snapshot.base
            flags |= snapshot.commit_flags()
        else:
            raise TransactionConflictError(OWNER_ENDED)
        body = messages.pack_changes(changes)
        pool = self.pool
        connection: OwnerConnection | None = None
        try:
            connection = pool.take()
            connection.sequence += 1
            frame = connection.call(
                messages.COMMIT, messages.COMMIT_HEAD.pack(number, flags, epoch, base, connection.sequence) + body
            )
        except TimedOutError:
            pool.discard(connection)
            if connection is None:
                raise self.requests.silent() from None
            raise CommitOutcomeUnknownError(f"{self.requests.silent()}, and may have committed") from None
        except PeerLostError as error:
            pool.discard(connection)
            if connection is not None and error.was_sent:
                self._resolve(connection, checked=snapshot is not None)
                return
            route = self._failover(self)
            if snapshot is None:
                route.commit(None, changes, sync)
            else:
                raise TransactionConflictError(OWNER_ENDED) from None
            return
        except BaseException:
            pool.discard(connection)
            raise
        if snapshot is not None:
            snapshot.end()
        pool.give_back(connection)
        if frame[0] != messages.DONE:
            self.requests.refuse(frame)

    def _resolve(self, connection: OwnerConnection, *, checked: bool) -> None:
        """Look up the commit on a lost connection; `checked` says that the commit had a snapshot."""
        try:
            arrived = self._failover(self).committed(self.id, connection.number, connection.sequence)
        except StructableError as error:
            raise CommitOutcomeUnknownError(
                f"process {self.process}, which owned the database, ended during the commit, whose outcome cannot be "
                f"looked up: {error}"
            ) from error
        if not arrived and checked:
            raise TransactionConflictError(OWNER_ENDED)  # a retry takes a new snapshot
        if not arrived:
            raise StorageUnavailableError(
                f"process {self.process}, which owned the database, ended before the commit; nothing was committed"
            )

    def commit_bulk(self, bulk: BulkCommit) -> None:
        raise StorageUnavailableError("bulk commits run in the process that owns the database: delegate this one")

    def delegate(self, procedures: Procedures, procedure: str, argument: bytes) -> bytes:
        pool = self.pool
        connection: OwnerConnection | None = None
        try:
            connection = pool.take()
            frame = connection.call(messages.DELEGATE, messages.pack_texts([procedure.encode()]) + argument)
        except TimedOutError:
            pool.discard(connection)
            if connection is None:
                raise self.requests.silent() from None
            raise CommitOutcomeUnknownError(
                f"{self.requests.silent()}, and {procedure!r} may have taken effect"
            ) from None
        except PeerLostError as error:
            pool.discard(connection)
            route = self._failover(self)
            if connection is None or not error.was_sent:
                return route.delegate(procedures, procedure, argument)
            raise CommitOutcomeUnknownError(
                f"process {self.process}, which owned the database, ended during {procedure!r}, which may have "
                "taken effect"
            ) from error
        except BaseException:
            pool.discard(connection)
            raise
        pool.give_back(connection)
        if frame[0] != messages.VALUE:
            self.requests.refuse(frame)
        return frame[1:]

    def checkpoint(self, plan: str) -> None:
        try:
            frame = self.requests.ask(messages.CHECKPOINT, plan.encode())
        except PeerLostError:
            self._failover(self).checkpoint(plan)
            return
        if frame[0] != messages.DONE:
            self.requests.refuse(frame)

    def compact(self, compression: str | None, keys: Sequence[bytes]) -> bool:
        try:
            frame = self.requests.ask(messages.COMPACT, messages.pack_texts([(compression or "").encode(), *keys]))
        except PeerLostError:
            return self._failover(self).compact(compression, keys)
        if frame[0] not in (messages.VALUE, messages.ABSENT):
            self.requests.refuse(frame)
        return frame[0] == messages.VALUE

    def committed(self, client: bytes, connection: int, sequence: int) -> bool:
        try:
            frame = self.requests.ask(messages.LOOK_UP, messages.LOOK_UP_BODY.pack(client, connection, sequence))
        except PeerLostError:
            return self._failover(self).committed(client, connection, sequence)
        if frame[0] not in (messages.VALUE, messages.ABSENT):
            self.requests.refuse(frame)
        return frame[0] == messages.VALUE
