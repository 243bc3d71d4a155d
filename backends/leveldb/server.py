"""The owner's server: a Unix socket in the database folder, a thread for each connection."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import struct
import tempfile
import threading
from pathlib import Path
from typing import Protocol

from structable.spi.errors import StorageUnavailableError

from .folder import Folder
from .served import ServedConnection, Session
from .store import LocalStore
from .wire import Channel

__all__ = ["Server", "check_peer"]

_LONGEST_PATH = 107
_PULSE = 0.5
_SHORT_PREFIX = "structable-"


class Procedures(Protocol):
    """What clients may have run here."""

    def run(self, procedure: str, argument: bytes) -> bytes:
        """Run a procedure of the layer above."""


class Server:
    """Serves a database to the other processes of this machine.

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
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._path = ""

    def start(self) -> None:
        """Listen, and say where.

        Raises
        ------
        StorageUnavailableError
            If that is not possible.
        """
        try:
            self._remove_predecessor()
            self._path = self._short_path()
            # The socket is made under a mask of its own, for it must not be open to others even for a moment.
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            self._listener.bind(self._path)
            os.chmod(self._path, 0o600)
            self._listener.listen(128)
            self.folder.write_owner(self._path)
        except OSError as error:
            self._listener.close()
            raise StorageUnavailableError(f"cannot listen at {self._path or self.folder.socket}: {error}") from error
        for work in (self._accept, self._pulse):
            threading.Thread(target=work, name=f"structable {work.__name__[1:]}", daemon=True).start()

    def _short_path(self) -> str:
        path = str(self.folder.socket)
        if len(os.fsencode(path)) <= _LONGEST_PATH:
            return path
        place = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
        if not os.access(place, os.W_OK | os.X_OK) or len(os.fsencode(place)) > _LONGEST_PATH - 40:
            place = tempfile.gettempdir() if len(tempfile.gettempdir()) < _LONGEST_PATH - 40 else "/tmp"
        return os.path.join(tempfile.mkdtemp(prefix=_SHORT_PREFIX, dir=place), "socket")

    def _remove_predecessor(self) -> None:
        owner = self.folder.read_owner()
        if owner is not None:
            _remove_socket(owner[0])
        self.folder.socket.unlink(missing_ok=True)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # stopped
            try:
                check_peer(connection, self.folder.path)
                channel = Channel(connection, receive_seconds=0, send_seconds=self._seconds)
            except OSError:
                connection.close()
                continue
            served = ServedConnection(self, channel)
            thread = threading.Thread(target=self._serve, args=(served,), name="structable connection", daemon=True)
            with self._lock:
                if self.stopping:
                    connection.close()
                    return
                self._threads[served] = thread
            thread.start()

    def _serve(self, served: ServedConnection) -> None:
        try:
            served.serve()
        finally:
            with self._lock:
                self._threads.pop(served, None)

    def _pulse(self) -> None:
        while not self._stopped.wait(_PULSE):
            with self._lock:
                connections = list(self._threads)
            for connection in connections:
                connection.pulse()

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
        """Answer the requests that are being worked at, and end all connections."""
        with self._lock:
            self.stopping = True
            threads = dict(self._threads)
        self._stopped.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in threads:
            connection.stop()
        for thread in threads.values():
            thread.join()

    def remove(self) -> None:
        """Remove the socket."""
        _remove_socket(self._path)

    def abandon(self) -> None:
        """Close the copies of the sockets in a forked process."""
        self._listener.close()
        for connection in self._threads:
            connection.abandon()


def _remove_socket(path: str) -> None:
    folder = Path(path).parent
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return
        os.unlink(path)
        if folder.name.startswith(_SHORT_PREFIX):
            shutil.rmtree(folder)
    except OSError:
        pass  # it is gone, or another user's


def check_peer(connection: socket.socket, folder: Path) -> None:
    """Make sure that the other side belongs to this user, to the folder's, or to root.

    Raises
    ------
    PermissionError
        If not.
    """
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", credentials)
    if user not in (os.getuid(), os.stat(folder).st_uid, 0):
        raise PermissionError(f"user {user} is a stranger to {folder}")
