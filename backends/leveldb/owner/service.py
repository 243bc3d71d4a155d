"""`Service`: the state shared by the connections of an owner, and the clients that they serve."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from structable.backends.leveldb.folder import DatabaseFolder

from .snapshot import LocalSnapshot
from .store import LocalStore
from .turns import ClientPace

_log = logging.getLogger("structable.leveldb")


class ClientSession:
    """A client process: its snapshots, which all its connections share."""

    def __init__(self, client: bytes) -> None:
        self.client = client
        self.snapshots: dict[int, LocalSnapshot] = {}
        self.connections: dict[int, object] = {}
        """The open connections by their numbers."""
        self.numbers: set[int] = set()
        """The numbers of all its connections, closed ones too."""
        self.said_goodbye = False
        self.pace = ClientPace(self.snapshots)

    def end(self) -> None:
        while self.snapshots:
            self.snapshots.popitem()[1].close()


class Service:
    """The database, the procedures that clients may run, and the sessions of the clients."""

    def __init__(self, folder: DatabaseFolder, store: LocalStore, run: Callable[[str, bytes], bytes]) -> None:
        self.folder = folder
        self.store = store
        self.run = run
        self.stopping = False
        self._lock = threading.Lock()
        self._sessions: dict[bytes, ClientSession] = {}

    def attach(self, client: bytes, number: int, connection: object) -> ClientSession:
        with self._lock:
            self.store.count_commits()
            session = self._sessions.get(client)
            if session is None:
                session = self._sessions[client] = ClientSession(client)
                self.store.turns.paces[session.pace] = None
                _log.info("client %s connected", client.hex())
            session.connections[number] = connection
            return session

    def detach(self, session: ClientSession, number: int, connection: object) -> None:
        """Remove a connection, and the session with its last one."""
        with self._lock:
            if session.connections.get(number) is connection:
                del session.connections[number]
            if session.connections:
                return
            known = self._sessions.pop(session.client, None)
            self.store.turns.paces.pop(session.pace, None)
        if known is not None:
            _log.info("client %s %s", session.client.hex(), "closed" if session.said_goodbye else "was lost")
        session.end()

    def is_connected(self, client: bytes, number: int) -> bool:
        with self._lock:
            session = self._sessions.get(client)
            return session is not None and number in session.connections

    @property
    def sessions(self) -> list[ClientSession]:
        with self._lock:
            return list(self._sessions.values())
