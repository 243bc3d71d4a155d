"""A TCP proxy before a PostgreSQL server that loses connections at chosen points of the protocol.

It must see the protocol in the clear: connect through it with `sslmode=disable` and `gssencmode=disable`.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from io import BufferedReader
from typing import Self
from urllib.parse import urlsplit, urlunsplit

__all__ = ["ANYTHING", "COMMIT", "Cut", "Message", "Proxy", "Trap", "statement"]

_TIMEOUT = 60
_LENGTH = struct.Struct("!I")
_START_UP = struct.pack("!I", 196608)  # the protocol's version, 3.0; what asks for encryption or a cancel is another
_BLOCK = 65536


class Cut(Enum):
    """Where the connection is lost, seen from the message that a trap waits for."""

    BEFORE = "the server never gets the message"
    AFTER = "the server gets it; nothing that it answers from then on reaches the client"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a client.

    Parameters
    ----------
    kind : bytes
        Its letter: b"Q" a simple query, b"P" parse, b"B" bind, b"E" execute, b"S" sync, b"d" copy data, ...
    body : bytes
        What follows its length.
    text : str
        The SQL that it runs: a query's own, and for an execute that of the statement which its portal was bound to.
        Empty for all other messages.
    """

    kind: bytes
    body: bytes
    text: str


Condition = Callable[[Message], bool]


def statement(pattern: str) -> Condition:
    """Return a condition for messages that run SQL which matches a regular expression, in whatever case."""
    expression = re.compile(pattern, re.IGNORECASE)
    return lambda message: bool(message.text) and expression.search(message.text) is not None


COMMIT = statement(r"^\s*COMMIT\b")
"""What ends a transaction, by the simple or the extended protocol."""


def ANYTHING(_message: Message) -> bool:
    """Take the next message, whatever it is."""
    return True


@dataclass(slots=True)
class Trap:
    """Waits for a message, and then cuts its connection.

    Parameters
    ----------
    condition : callable
        Which message.
    cut : Cut
        Where.
    """

    condition: Condition
    cut: Cut
    _sprung: threading.Event = field(default_factory=threading.Event, init=False)

    @property
    def sprung(self) -> bool:
        """Whether the message came."""
        return self._sprung.is_set()

    def spring(self) -> None:
        """Say that the message came; the proxy does, just before it cuts the connection."""
        self._sprung.set()

    def wait(self) -> None:
        """Wait until the message came and, for `Cut.AFTER`, the server has done what it asked for."""
        assert self._sprung.wait(_TIMEOUT), "the message that the trap waits for never came"


class Proxy:
    """Forwards connections to a server, on a free port of 127.0.0.1, until it is closed.

    Parameters
    ----------
    conninfo : str
        The server, as libpq's or structable's URL.

    Attributes
    ----------
    port : int
        Where it listens.
    """

    def __init__(self, conninfo: str) -> None:
        self._target = urlsplit(conninfo)
        self._lock = threading.Lock()
        self._links: set[_Link] = set()
        self._traps: list[Trap] = []
        self._accepted = 0
        self._changed = threading.Condition(self._lock)
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._accepting = self._accept_in_background(self._listener)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def url(self, url: str) -> str:
        """Return a URL of the server, libpq's or structable's, with the proxy in place of it."""
        parts = urlsplit(url)
        credentials = parts.netloc.rpartition("@")[0]
        host = f"{credentials}@127.0.0.1:{self.port}" if credentials else f"127.0.0.1:{self.port}"
        query = "&".join(filter(None, [parts.query, "sslmode=disable", "gssencmode=disable"]))
        return urlunsplit((parts.scheme, host, parts.path, query, ""))

    @property
    def open(self) -> int:
        """How many connections are open now."""
        with self._lock:
            return len(self._links)

    @property
    def accepted(self) -> int:
        """How many connections there have been so far."""
        with self._lock:
            return self._accepted

    def wait_until_open(self, count: int) -> None:
        """Wait until exactly so many connections are open; a client's close takes a moment to arrive."""
        with self._changed:
            reached = self._changed.wait_for(lambda: len(self._links) == count, _TIMEOUT)
            assert reached, f"{len(self._links)} connections are open, not {count}"

    def trap(self, condition: Condition, cut: Cut) -> Trap:
        """Cut one connection, at the next message of any that meets the condition."""
        trap = Trap(condition, cut)
        with self._lock:
            self._traps.append(trap)
        return trap

    def cut_all(self) -> None:
        """Cut all connections that are open now."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.cut()

    def refuse(self) -> None:
        """Refuse new connections until `accept`; those that are open stay."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()

    def accept(self) -> None:
        """Accept connections again after `refuse`."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._accepting = self._accept_in_background(self._listener)

    def close(self) -> None:
        """Cut all connections, and end."""
        self.refuse()
        self.cut_all()
        self.wait_until_open(0)

    def _accept_in_background(self, listener: socket.socket) -> threading.Thread:
        thread = threading.Thread(target=self._accept, args=(listener,), name="proxy accept", daemon=True)
        thread.start()
        return thread

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _address = listener.accept()
            except OSError:
                return  # refusing
            try:
                server = socket.create_connection((self._target.hostname, self._target.port or 5432), _TIMEOUT)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = _Link(client, server, self._spring)
            with self._changed:
                self._links.add(link)
                self._accepted += 1
                self._changed.notify_all()
            threading.Thread(target=self._serve, args=(link,), name="proxy link", daemon=True).start()

    def _serve(self, link: _Link) -> None:
        try:
            link.run()
        finally:
            with self._changed:
                self._links.discard(link)
                self._changed.notify_all()

    def _spring(self, message: Message) -> Trap | None:
        with self._lock:
            for trap in self._traps:
                if trap.condition(message):
                    self._traps.remove(trap)
                    return trap
        return None


class _Link:
    """One connection: two sockets, and a thread for each direction."""

    def __init__(self, client: socket.socket, server: socket.socket, spring: Callable[[Message], Trap | None]) -> None:
        self._client = client
        self._server = server
        self._spring = spring
        self._swallow = threading.Event()
        self._answering = threading.Thread(target=self._answers, name="proxy answers", daemon=True)
        self._statements: dict[bytes, str] = {}
        self._portals: dict[bytes, str] = {}

    def run(self) -> None:
        """Forward both ways until either side ends."""
        self._answering.start()
        try:
            with suppress(OSError, EOFError):  # the connection's end, by whichever side and in whatever way
                self._requests()
        finally:
            self.cut()
            self._answering.join()
            self._client.close()
            self._server.close()

    def cut(self) -> None:
        """End both sides at once."""
        for end in (self._client, self._server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _answers(self) -> None:
        with suppress(OSError):
            while block := self._server.recv(_BLOCK):
                if not self._swallow.is_set():
                    self._client.sendall(block)
        if not self._swallow.is_set():
            self.cut()

    def _requests(self) -> None:
        with self._client.makefile("rb") as stream:
            while True:
                header = _exactly(stream, 4)
                body = _exactly(stream, _LENGTH.unpack(header)[0] - 4)
                self._server.sendall(header + body)
                if body[:4] == _START_UP:
                    break
            while True:
                kind, header = _exactly(stream, 1), _exactly(stream, 4)
                body = _exactly(stream, _LENGTH.unpack(header)[0] - 4)
                raw = kind + header + body
                trap = self._spring(Message(kind, body, self._text(kind, body)))
                if trap is None:
                    self._server.sendall(raw)
                    continue
                if trap.cut is Cut.AFTER:
                    self._lose_answers(raw)
                trap.spring()  # before the client can notice anything
                self.cut()
                return

    def _lose_answers(self, raw: bytes) -> None:
        """Let the server execute the message, wait until it has, and drop its answers."""
        self._swallow.set()
        sync = b"" if raw[:1] == b"Q" else b"S" + _LENGTH.pack(4)
        terminate = b"X" + _LENGTH.pack(4)
        self._server.sendall(raw + sync + terminate)
        self._answering.join(_TIMEOUT)

    def _text(self, kind: bytes, body: bytes) -> str:
        first, _, rest = body.partition(b"\0")
        if kind == b"Q":
            return first.decode()
        if kind == b"P":
            self._statements[first] = rest.partition(b"\0")[0].decode()
        elif kind == b"B":
            self._portals[first] = self._statements.get(rest.partition(b"\0")[0], "")
        elif kind == b"E":
            return self._portals.get(first, "")
        return ""


def _exactly(stream: BufferedReader, size: int) -> bytes:
    found = stream.read(size)
    if len(found) < size:
        raise EOFError
    return found
