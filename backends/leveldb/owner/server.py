"""`Server`: accepts the clients of an owner, and answers each connection in a thread of its own."""

from __future__ import annotations

import contextlib
import logging
import resource
import socket
import threading
from collections.abc import Callable

from structable.backends.leveldb.folder import DatabaseFolder
from structable.backends.leveldb.permissions import check_peer
from structable.backends.leveldb.protocol import messages
from structable.backends.leveldb.protocol.channel import Channel, PeerLostError, TimedOutError
from structable.backends.leveldb.protocol.error_codec import pack_error
from structable.spi import StorageUnavailableError

from .connection import ServedConnection
from .listener import ListeningSocket
from .service import Service
from .store import LocalStore

_PULSE = 0.5
_RESERVED_DESCRIPTORS = 32
_ACCEPT_PAUSE = 0.05
_REFUSAL_SECONDS = 0.1
_log = logging.getLogger("structable.leveldb")


class Server:
    """Serves a database to the other processes of this machine.

    It listens as long as it runs: a socket whose file is removed is replaced. While descriptors or threads run out, it
    refuses clients. It calls `check` twice a second.
    """

    def __init__(
        self,
        folder: DatabaseFolder,
        store: LocalStore,
        run: Callable[[str, bytes], bytes],
        check: Callable[[], None],
        seconds: float,
    ) -> None:
        self.service = Service(folder, store, run)
        self._folder = folder
        self._check = check
        self._seconds = seconds
        self._lock = threading.Lock()
        self._threads: dict[ServedConnection, threading.Thread] = {}
        self._stopped = threading.Event()
        self._listener: ListeningSocket | None = None
        self._workers: list[threading.Thread] = []

    def start(self) -> None:
        """Listen, and publish the socket; all or nothing."""
        try:
            self._listener = ListeningSocket(self._folder)
            for work in (self._accept, self._pulse):
                thread = threading.Thread(target=work, name=f"structable {work.__name__[1:]}", daemon=True)
                thread.start()
                self._workers.append(thread)
        except (OSError, RuntimeError) as error:
            self.stop()
            raise StorageUnavailableError(f"the owner of {self._folder.path} cannot listen: {error}") from error
        except BaseException:
            self.stop()
            raise

    def _accept(self) -> None:
        """Accept clients until the server stops, whatever errors occur."""
        listener = self._listener
        while listener is not None and not self.service.stopping:
            try:
                connection = listener.accept()
            except OSError:
                if listener is not self._listener:
                    listener.close()
                    listener = self._listener
                else:
                    # Most likely out of descriptors or memory: the client waits in the socket's queue.
                    self._stopped.wait(_ACCEPT_PAUSE)
                continue
            try:
                self._admit(connection)
            except Exception as error:
                connection.close()  # this client finds it closed, and the next one is served
                _log.warning("cannot serve a connection: %s", error)
        if listener is not None:
            listener.close()

    def _admit(self, connection: socket.socket) -> None:
        check_peer(connection, self._folder.path)
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if most != resource.RLIM_INFINITY and connection.fileno() >= most - min(_RESERVED_DESCRIPTORS, most // 8):
            # Without descriptors LevelDB would fail, for all clients.
            self._refuse(connection, f"its limit of {most:,} open files leaves none for another connection")
            return
        served = ServedConnection(self.service, Channel(connection, receive_seconds=0, send_seconds=self._seconds))
        thread = threading.Thread(target=self._serve, args=(served,), name="structable connection", daemon=True)
        try:
            with self._lock:
                if self.service.stopping:
                    served.turn_away()
                    return
                thread.start()
                self._threads[served] = thread
        except (RuntimeError, MemoryError) as error:
            self._refuse(connection, f"it cannot start another thread ({error})")

    def _refuse(self, connection: socket.socket, reason: str) -> None:
        channel = Channel(connection, receive_seconds=_REFUSAL_SECONDS, send_seconds=_REFUSAL_SECONDS)
        _log.warning("refused a connection: %s", reason)
        error = StorageUnavailableError(f"the process that owns the database refused the connection: {reason}")
        with contextlib.suppress(PeerLostError, TimedOutError):
            channel.send(messages.ERROR, pack_error(error))
        channel.close()

    def _serve(self, served: ServedConnection) -> None:
        try:
            served.serve()
        finally:
            with self._lock:
                self._threads.pop(served, None)

    def _pulse(self) -> None:
        while not self._stopped.wait(_PULSE) and not self.service.stopping:
            with self._lock:
                connections = list(self._threads)
            try:
                for connection in connections:
                    connection.pulse()
                self._listen_again()
                self._check()
            except Exception:
                _log.exception("the upkeep of the owner of %s failed unexpectedly and continues", self._folder.path)

    def _listen_again(self) -> None:
        """Replace a socket that clients cannot find any more."""
        before = self._listener
        if before is None or before.reachable or not self._folder.holds_lock:
            return
        try:
            listener = ListeningSocket(self._folder)
        except OSError:
            return  # the next pulse tries again
        with self._lock:
            if not self.service.stopping:
                self._listener = listener
                before.shut()  # the accepting thread changes over
                _log.warning("the socket %s was removed; listening on another", before.path)
                return
        listener.close()
        listener.remove()

    def stop(self) -> None:
        """Finish the current requests, turn away all others, and remove the socket; idempotent."""
        with self._lock:
            self.service.stopping = True
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
                    listener.close()  # otherwise the accepting thread has closed it
                listener.remove()

    def abandon(self) -> None:
        """Close the copies of the sockets in a forked process, where greenlets of its parent continue to run."""
        self.service.stopping = True
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._threads):
            connection.abandon()
