"""`OwnerConnections`: the connections of a client to the owner; a thread uses one at a time."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections import deque
from typing import NoReturn
from weakref import ref

from structable.backends.base.traffic import Tallies
from structable.backends.leveldb.folder import DatabaseFolder, Pauses
from structable.backends.leveldb.permissions import check_peer
from structable.backends.leveldb.protocol import messages
from structable.backends.leveldb.protocol.channel import Channel, PeerLostError, TimedOutError
from structable.backends.leveldb.protocol.error_codec import unpack_error
from structable.backends.ordered.engine import EngineSnapshot
from structable.spi import StorageUnavailableError, TransactionConflictError

_KEPT = 4
_IDLE_SECONDS = 1.0


class OwnerConnection:
    """A connection with its number, and the number of its newest commit; closed when it is collected."""

    __slots__ = ("__weakref__", "channel", "number", "sequence", "used")

    def __init__(self, channel: Channel, number: int) -> None:
        self.channel = channel
        self.number = number
        self.sequence = 0
        self.used = True
        """Whether it was used since the pool last looked for idle connections."""

    def call(self, message: int, body: bytes) -> bytes:
        """Send a request and return the answer: the message byte and the body."""
        self.channel.send(message, body)
        return self.receive()

    def receive(self) -> bytes:
        """Return the next answer, for which a call waits: a round trip."""
        channel = self.channel
        channel.tally.round_trips += 1
        return channel.receive()

    def __del__(self) -> None:
        self.channel.close()


class SnapshotRef(ref[EngineSnapshot]):
    """The number of a snapshot that the owner holds. It outlives the snapshot if an interruption loses the snapshot."""

    __slots__ = ("number",)
    number: int


def refuse(frame: bytes) -> NoReturn:
    """Raise the error in an answer."""
    if frame[0] == messages.EPOCH:
        raise TransactionConflictError("a table's schema was changed since the transaction began")
    if frame[0] == messages.ERROR:
        raise unpack_error(frame[1:])
    raise PeerLostError(f"unexpected answer {frame[0]}")


class _RefusedError(Exception):
    """The owner refused the connection; its answer has the reason."""

    def __init__(self, frame: bytes) -> None:
        super().__init__(frame)
        self.frame = frame


class OwnerConnections:
    """Connections to one owner, made as they are needed and closed when they have been idle for a while.

    Raises the errors of `Client`.
    """

    def __init__(self, client: bytes, path: str, folder: DatabaseFolder, seconds: float, tallies: Tallies) -> None:
        self._client = client
        self.path = path
        self._folder = folder
        self._seconds = seconds
        self._tallies = tallies
        self._numbers = itertools.count(1)
        self.idle: deque[OwnerConnection] = deque()
        """Idle connections, the most recently used last."""
        self.open: dict[ref[OwnerConnection], None] = {}
        """Weak references, so that a connection lost by an interruption is closed when it is collected."""
        self._is_dropped = False  # cheaper to test than the event
        self._dropped = threading.Event()
        self._unreleased: dict[int, None] = {}
        self.lost: deque[SnapshotRef] = deque()
        """Snapshots that were collected unclosed."""
        self._lock = threading.Lock()
        self._trimmer: threading.Thread | None = None
        # Always idle: all connections share the snapshots, which last as long as one connection does.
        self._anchor: OwnerConnection | None = None
        self._anchor = self._connect()

    def take(self) -> OwnerConnection:
        """Return a connection that no other thread uses, to be given back or discarded."""
        try:
            connection = self.idle.pop()
        except IndexError:
            return self._connect()
        connection.used = True
        return connection

    def give_back(self, connection: OwnerConnection) -> None:
        """Return a connection to the pool; no request may be in progress on it."""
        if self._unreleased or self.lost:
            self._release_on(connection)
        self.idle.append(connection)
        if self._is_dropped:
            self.close_idle()

    def discard(self, connection: OwnerConnection | None) -> None:
        if connection is not None:
            self.open.pop(ref(connection), None)
            connection.channel.close()

    def release(self, snapshot: int) -> None:
        """Free a snapshot; if every connection is in use, when the next one is returned.

        Neither waits nor takes a lock: the garbage collector may call this at any moment.
        """
        self._unreleased[snapshot] = None
        try:
            connection = self.idle.pop()
        except IndexError:
            return
        self.give_back(connection)

    def _release_on(self, connection: OwnerConnection) -> None:
        for lost in list(self.lost):
            self._unreleased[lost.number] = None
            with contextlib.suppress(ValueError):  # another thread has done the same
                self.lost.remove(lost)
        try:
            for snapshot in list(self._unreleased):
                # Removed afterwards: a second release by another thread is harmless, and an interruption loses none.
                connection.channel.send(messages.RELEASE, snapshot.to_bytes(4, "little"))
                self._unreleased.pop(snapshot, None)
        except (PeerLostError, TimedOutError):
            pass  # the next use of the connection fails; the snapshots end with their owner

    def drop(self) -> None:
        """Close all connections: the owner has ended. Those in use are closed by their threads."""
        self._is_dropped = True
        self._dropped.set()
        self.close_idle()
        for connection in self._all():
            connection.channel.shut()
        self.discard(self._anchor)

    def close_idle(self) -> None:
        while self.idle:
            try:
                self.discard(self.idle.pop())
            except IndexError:
                return

    def abandon(self) -> None:
        """Close the copies of the connections in a forked process."""
        self._is_dropped = True
        self._dropped.set()
        self.idle.clear()
        for connection in self._all():
            self.discard(connection)

    def _all(self) -> list[OwnerConnection]:
        found = [reference() for reference in list(self.open)]
        return [connection for connection in found if connection is not None]

    def _connect(self) -> OwnerConnection:
        deadline = time.monotonic() + self._seconds
        pauses = Pauses()
        while True:
            if self._is_dropped:
                raise PeerLostError("the owner has ended", was_sent=False)
            try:
                return self._added(self._open_at(self.path, deadline))
            except (FileNotFoundError, ConnectionRefusedError) as error:
                # A living owner that does not listen there is closing, or about to listen elsewhere.
                anchor = self._anchor
                if anchor is None or not anchor.channel.alive:
                    raise PeerLostError(str(error), was_sent=False) from None
                if time.monotonic() > deadline:
                    raise TimedOutError from None
            except _RefusedError as refused:
                # Other clients close idle connections, and other threads return theirs.
                if self._anchor is None or time.monotonic() > deadline:
                    refuse(refused.frame)
            except StorageUnavailableError:
                raise
            except TimeoutError:
                raise TimedOutError from None
            except OSError as error:
                raise PeerLostError(str(error), was_sent=False) from None
            pauses.pause()
            with contextlib.suppress(IndexError):
                connection = self.idle.pop()
                connection.used = True
                return connection
            owner = self._folder.read_owner()
            if owner is not None:
                self.path = owner[0]

    def _added(self, connection: OwnerConnection) -> OwnerConnection:
        self.open[ref(connection, self.open.pop)] = None
        self._tallies.add(connection, connection.channel.tally)
        if self._is_dropped:
            connection.channel.shut()  # `drop` may have run before it was listed
        if len(self.open) > _KEPT and self._trimmer is None:
            self._start_trimmer()
        return connection

    def _open_at(self, path: str, deadline: float) -> OwnerConnection:
        try:
            end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:
            raise StorageUnavailableError(
                f"cannot open another connection to the owner of the database in {self._folder.path}: {error}"
            ) from error
        try:
            _connect_before(end, path, deadline)
            check_peer(end, self._folder.path)
            channel = Channel(end, receive_seconds=self._seconds, send_seconds=self._seconds)
            opened = OwnerConnection(channel, next(self._numbers))
            hello = messages.HELLO_BODY.pack(messages.VERSION, self._client, opened.number)
            with contextlib.suppress(PeerLostError):  # a refusal, read next, closes the connection at once
                channel.send(messages.HELLO, hello)
            frame = opened.receive()
            if frame[0] != messages.DONE:
                raise _RefusedError(frame)
        except BaseException:
            end.close()
            raise
        return opened

    def _start_trimmer(self) -> None:
        with self._lock:
            if self._trimmer is not None:
                return
            trimmer = threading.Thread(target=self._trim, name="structable idle connections", daemon=True)
            try:
                trimmer.start()
            except (RuntimeError, MemoryError):
                return  # out of threads: the next connection tries again
            self._trimmer = trimmer

    def _trim(self) -> None:
        """Close connections idle for one to two seconds, down to a few."""
        while not self._dropped.wait(_IDLE_SECONDS):
            for connection in list(self.idle):
                if len(self.open) <= _KEPT:
                    break
                if connection.used:
                    connection.used = False
                    continue
                try:
                    self.idle.remove(connection)
                except (ValueError, IndexError):
                    continue  # a thread has taken it
                self.discard(connection)
            with self._lock:
                if len(self.open) <= _KEPT:
                    self._trimmer = None
                    return


def _connect_before(end: socket.socket, path: str, deadline: float) -> None:
    """Connect, again and again while the queue of the socket is full, which a Unix socket reports at once."""
    end.setblocking(False)
    pauses = Pauses()
    while True:
        try:
            end.connect(path)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError from None
        else:
            end.setblocking(True)
            return
        pauses.pause()
