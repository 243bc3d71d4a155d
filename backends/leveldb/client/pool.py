"""`ConnectionPool`: the connections of a client to the owner, of which each thread uses one at a time."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn
from weakref import ref

from structable.backends.leveldb.owner.listener import check_peer
from structable.backends.leveldb.protocol import wire
from structable.backends.leveldb.protocol.wire import Channel, ConnectionLostError, TimedOutError
from structable.spi.errors import StorageUnavailableError

from .snapshot import Connection, HeldSnapshot

__all__ = ["ConnectionPool"]

_KEPT = 4
_IDLE_SECONDS = 1.0
_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.02


class _RefusedError(Exception):
    """The owner does not accept the connection; its answer says why."""

    def __init__(self, frame: bytes) -> None:
        super().__init__(frame)
        self.frame = frame


class ConnectionPool:
    """Connections to one owner, made as they are needed and closed when they have been idle for a while.

    Parameters
    ----------
    client : bytes
        The client's id.
    path : str
        The owner's socket.
    locate : callable
        Returns the path of the owner's socket at present, or None.
    folder : pathlib.Path
        The database folder.
    seconds : float
        How long to wait for the owner.
    refuse : callable
        Raises what an answer of the owner says.

    Raises
    ------
    ConnectionLostError, TimedOutError
        If no owner answers there.
    StorageUnavailableError
        If the owner, or this process, has no means for a connection.
    """

    def __init__(
        self,
        client: bytes,
        path: str,
        locate: Callable[[], str | None],
        folder: Path,
        seconds: float,
        refuse: Callable[[bytes], NoReturn],
    ) -> None:
        self._client = client
        self._path = path
        self._locate = locate
        self._folder = folder
        self._seconds = seconds
        self._refuse = refuse
        self._numbers = itertools.count(1)
        self.idle: deque[Connection] = deque()
        """The last one was used last."""
        self.open: dict[ref[Connection], None] = {}
        """References remove themselves: a connection that an interruption has lost is closed when it is collected."""
        self._is_dropped = False  # an event would take longer to ask
        self._dropped = threading.Event()
        self._unreleased: dict[int, None] = {}
        self.lost: deque[HeldSnapshot] = deque()
        """Snapshots that were collected unclosed."""
        self._lock = threading.Lock()
        self._trimmer: threading.Thread | None = None
        # Idle for ever: snapshots belong to all connections together, and last as long as one of them does.
        self._anchor: Connection | None = None
        self._anchor = self._connect()

    def take(self) -> Connection:
        """Return a connection that no other thread uses, to be given back or discarded."""
        try:
            connection = self.idle.pop()
        except IndexError:
            return self._connect()
        connection.used = True
        return connection

    def give_back(self, connection: Connection) -> None:
        """Let others use a connection; nothing may be under way on it."""
        if self._unreleased or self.lost:
            self._release_on(connection)
        self.idle.append(connection)
        if self._is_dropped:
            self._close_idle()

    def discard(self, connection: Connection | None) -> None:
        """Close a connection, if there is one."""
        if connection is not None:
            self.open.pop(ref(connection), None)
            connection.channel.close()

    def release(self, snapshot: int) -> None:
        """Free a snapshot; where every connection is in use, with the next one that is given back.

        It waits for nothing, and takes no lock: the garbage collector may call this at any moment.
        """
        self._unreleased[snapshot] = None
        try:
            connection = self.idle.pop()
        except IndexError:
            return
        self.give_back(connection)

    def _release_on(self, connection: Connection) -> None:
        for lost in list(self.lost):
            self._unreleased[lost.number] = None
            with contextlib.suppress(ValueError):  # another thread has done the same
                self.lost.remove(lost)
        try:
            for snapshot in list(self._unreleased):
                # Noted afterwards: another thread may free it too, which does no harm, and an interruption loses none.
                connection.channel.send(wire.RELEASE, snapshot.to_bytes(4, "little"))
                self._unreleased.pop(snapshot, None)
        except (ConnectionLostError, TimedOutError):
            pass  # the next use of the connection finds it lost; the snapshots go with their owner

    def drop(self) -> None:
        """Close all connections: the owner has ended. Those in use are closed by their threads."""
        self._is_dropped = True
        self._dropped.set()
        self._close_idle()
        for connection in self._all():
            connection.channel.shut()
        self.discard(self._anchor)

    def _close_idle(self) -> None:
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

    def _all(self) -> list[Connection]:
        found = [reference() for reference in list(self.open)]
        return [connection for connection in found if connection is not None]

    # Making connections

    def _connect(self) -> Connection:
        deadline = time.monotonic() + self._seconds
        pause = _FIRST_PAUSE
        while True:
            if self._is_dropped:
                raise ConnectionLostError("the owner has ended", was_sent=False)
            try:
                return self._added(self._open_at(self._path, deadline))
            except (FileNotFoundError, ConnectionRefusedError) as error:
                # An owner that lives but does not listen there is ending, or about to listen elsewhere.
                anchor = self._anchor
                if anchor is None or not anchor.channel.alive:
                    raise ConnectionLostError(str(error), was_sent=False) from None
                if time.monotonic() > deadline:
                    raise TimedOutError from None
            except _RefusedError as refused:
                # Other clients close connections that they no longer need, and other threads give theirs back.
                if self._anchor is None or time.monotonic() > deadline:
                    self._refuse(refused.frame)
            except StorageUnavailableError:
                raise
            except TimeoutError:
                raise TimedOutError from None
            except OSError as error:
                raise ConnectionLostError(str(error), was_sent=False) from None
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)
            with contextlib.suppress(IndexError):
                connection = self.idle.pop()
                connection.used = True
                return connection
            self._path = self._locate() or self._path

    def _added(self, connection: Connection) -> Connection:
        self.open[ref(connection, self.open.pop)] = None
        if self._is_dropped:
            connection.channel.shut()  # `drop` may have come too early to see it
        if len(self.open) > _KEPT and self._trimmer is None:
            self._start_trimmer()
        return connection

    def _open_at(self, path: str, deadline: float) -> Connection:
        try:
            end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:
            raise StorageUnavailableError(
                f"this process cannot open another connection to the owner of the database in {self._folder}: {error}"
            ) from error
        try:
            _connect_before(end, path, deadline)
            check_peer(end, self._folder)
            opened = Connection(Channel(end, receive_seconds=self._seconds, send_seconds=self._seconds), self._number())
            hello = wire.HELLO_BODY.pack(wire.VERSION, self._client, opened.number)
            with contextlib.suppress(ConnectionLostError):  # a refusal, to be read next, closes the connection at once
                opened.channel.send(wire.HELLO, hello)
            frame = opened.channel.receive()
            if frame[0] != wire.DONE:
                raise _RefusedError(frame)
        except BaseException:
            end.close()
            raise
        return opened

    def _number(self) -> int:
        return next(self._numbers)

    # Closing idle ones

    def _start_trimmer(self) -> None:
        with self._lock:
            if self._trimmer is not None:
                return
            trimmer = threading.Thread(target=self._trim, name="structable idle connections", daemon=True)
            try:
                trimmer.start()
            except (RuntimeError, MemoryError):
                return  # no thread at present: the next connection tries again
            self._trimmer = trimmer

    def _trim(self) -> None:
        """Close what was idle for one to two seconds, until few connections are left."""
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
    """Connect. A Unix socket whose queue is full says so at once, and is no reason to give up."""
    end.setblocking(False)
    pause = _FIRST_PAUSE
    while True:
        try:
            end.connect(path)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError from None
        else:
            end.setblocking(True)
            return
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)
