"""The owner's server: it accepts the clients of a database, and answers each connection in a thread of its own."""

from __future__ import annotations

import contextlib
import resource
import socket
import threading
from typing import Protocol

from structable.backends.leveldb.folder import Folder
from structable.backends.leveldb.protocol import wire
from structable.backends.leveldb.protocol.error_codec import pack_error
from structable.backends.leveldb.protocol.wire import Channel, ConnectionLostError, TimedOutError
from structable.spi.errors import StorageUnavailableError

from .connection import ServedConnection, Session
from .listener import Listener, check_peer
from .store import LocalStore

__all__ = ["Server"]

_PULSE = 0.5
_RESERVED_DESCRIPTORS = 32
_ACCEPT_PAUSE = 0.05
_REFUSAL_SECONDS = 0.1


class Procedures(Protocol):
    """What clients may have run here."""

    def run(self, procedure: str, argument: bytes) -> bytes:
        """Run a procedure of the layer above."""


class Server:
    """Serves a database to the other processes of this machine.

    It listens for as long as it runs: where the socket's file was removed, it makes another; where descriptors or
    threads run out, clients are refused, and accepted again when there are some.

    Parameters
    ----------
    folder : Folder
        The database folder, owned by this process.
    store : LocalStore
        The database.
    procedures : Procedures
        What clients may have run here.
    seconds : float
        How long to wait for a client to take an answer.
    """

    def __init__(self, folder: Folder, store: LocalStore, procedures: Procedures, seconds: float) -> None:
        self.folder = folder
        self.store = store
        self.stopping = False
        self._procedures = procedures
        self._seconds = seconds
        self._lock = threading.Lock()
        self._sessions: dict[bytes, Session] = {}
        self._threads: dict[ServedConnection, threading.Thread] = {}
        self._stopped = threading.Event()
        self._listener: Listener | None = None
        self._workers: list[threading.Thread] = []

    def start(self) -> None:
        """Listen, and publish where; wholly or not at all.

        Raises
        ------
        StorageUnavailableError
            If that is not possible.
        """
        try:
            self._listener = Listener(self.folder)
            for work in (self._accept, self._pulse):
                thread = threading.Thread(target=work, name=f"structable {work.__name__[1:]}", daemon=True)
                thread.start()
                self._workers.append(thread)
        except (OSError, RuntimeError) as error:
            self.stop()
            raise StorageUnavailableError(f"the owner of {self.folder.path} cannot listen: {error}") from error
        except BaseException:
            self.stop()
            raise

    # Accepting

    def _accept(self) -> None:
        """Accept clients until the server stops: no error ends this."""
        listener = self._listener
        while listener is not None and not self.stopping:
            try:
                connection = listener.accept()
            except OSError:
                if listener is not self._listener:
                    listener.close()
                    listener = self._listener
                else:
                    # No descriptors or memory, most likely: the client waits in the socket's queue.
                    self._stopped.wait(_ACCEPT_PAUSE)
                continue
            try:
                self._admit(connection)
            except Exception:
                connection.close()  # its client sees that, and the next one must not suffer from it
        if listener is not None:
            listener.close()

    def _admit(self, connection: socket.socket) -> None:
        check_peer(connection, self.folder.path)
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if most != resource.RLIM_INFINITY and connection.fileno() >= most - min(_RESERVED_DESCRIPTORS, most // 8):
            # LevelDB would fail without descriptors, and take the other clients with it.
            self._refuse(connection, f"its limit of {most:,} open files leaves none for another connection")
            return
        served = ServedConnection(self, Channel(connection, receive_seconds=0, send_seconds=self._seconds))
        thread = threading.Thread(target=self._serve, args=(served,), name="structable connection", daemon=True)
        try:
            with self._lock:
                if self.stopping:
                    served.turn_away()
                    return
                thread.start()
                self._threads[served] = thread
        except (RuntimeError, MemoryError) as error:
            self._refuse(connection, f"it cannot start another thread ({error})")

    def _refuse(self, connection: socket.socket, reason: str) -> None:
        channel = Channel(connection, receive_seconds=_REFUSAL_SECONDS, send_seconds=_REFUSAL_SECONDS)
        error = StorageUnavailableError(f"the process that owns the database cannot serve this one: {reason}")
        with contextlib.suppress(ConnectionLostError, TimedOutError):
            channel.send(wire.ERROR, pack_error(error))
        channel.close()

    def _serve(self, served: ServedConnection) -> None:
        try:
            served.serve()
        finally:
            with self._lock:
                self._threads.pop(served, None)

    # Upkeep

    def _pulse(self) -> None:
        while not self._stopped.wait(_PULSE):
            with self._lock:
                connections = list(self._threads)
            for connection in connections:
                connection.pulse()
            self._listen_again()

    def _listen_again(self) -> None:
        """Replace a socket that clients no longer find."""
        before = self._listener
        if before is None or before.reachable or not self.folder.owned:
            return
        try:
            listener = Listener(self.folder)
        except OSError:
            return  # the next pulse tries again
        with self._lock:
            if not self.stopping:
                self._listener = listener
                before.shut()  # the thread that accepts changes over
                return
        listener.close()
        listener.remove()

    # For connections

    def attach(self, client: bytes, number: int, connection: ServedConnection) -> Session:
        """Return the session of a client."""
        with self._lock:
            self.store.count_commits()
            session = self._sessions.setdefault(client, Session(client))
            session.connections[number] = connection
            return session

    def detach(self, session: Session, number: int, connection: ServedConnection) -> None:
        """Forget a connection, and the session with its last one."""
        with self._lock:
            if session.connections.get(number) is connection:
                del session.connections[number]
            if session.connections:
                return
            self._sessions.pop(session.client, None)
        session.end()

    def is_connected(self, client: bytes, number: int) -> bool:
        """Tell whether a connection of a client is still being served."""
        with self._lock:
            session = self._sessions.get(client)
            return session is not None and number in session.connections

    def run(self, procedure: str, argument: bytes) -> bytes:
        """Run a procedure of the layer above."""
        return self._procedures.run(procedure, argument)

    # Ending

    def stop(self) -> None:
        """Answer the requests that are being worked at, turn away all others, and remove the socket; idempotent."""
        with self._lock:
            self.stopping = True
            threads = dict(self._threads)
            listener = self._listener
        self._stopped.set()
        try:
            if listener is not None:
                listener.shut()
            for connection in threads:
                connection.stop()
            for thread in (*self._workers, *threads.values()):
                thread.join()
        finally:
            if listener is not None:
                if not self._workers:
                    listener.close()  # else the thread that accepts has done so
                listener.remove()

    def abandon(self) -> None:
        """Close the copies of the sockets in a forked process."""
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._threads):
            connection.abandon()
