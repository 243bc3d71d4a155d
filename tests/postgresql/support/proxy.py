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
from urllib.parse import urlsplit

from tests.servers.proxy import ForwardingProxy, Link

_TIMEOUT = 60
_LENGTH = struct.Struct("!I")
_START_UP = struct.pack("!I", 196608)  # the protocol's version, 3.0; encryption and cancel requests differ
_BLOCK = 65536
_ROUND_TRIPS = (b"Q", b"S")  # a simple query, and the end of a batch of the extended protocol


class Cut(Enum):
    """Where the connection is lost, seen from the message that a trap waits for."""

    BEFORE = "the server never gets the message"
    AFTER = "the server gets it; nothing that it answers from then on reaches the client"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a client; for an execute, `text` is the SQL of its portal's statement."""

    kind: bytes  # b"Q" a simple query, b"P" parse, b"B" bind, b"E" execute, b"S" sync, b"d" copy data, ...
    body: bytes
    text: str  # empty for messages that run no SQL


Condition = Callable[[Message], bool]


def statement(pattern: str) -> Condition:
    """Return a condition for messages that run SQL which matches a regular expression, case ignored."""
    expression = re.compile(pattern, re.IGNORECASE)
    return lambda message: bool(message.text) and expression.search(message.text) is not None


COMMIT = statement(r"^\s*COMMIT\b")
"""What ends a transaction, by the simple or the extended protocol."""


def ANYTHING(_message: Message) -> bool:
    """Take the next message."""
    return True


@dataclass(slots=True)
class Trap:
    """Waits for a message, and then cuts its connection."""

    condition: Condition
    cut: Cut
    _sprung: threading.Event = field(default_factory=threading.Event, init=False)

    @property
    def sprung(self) -> bool:
        """Whether the message came."""
        return self._sprung.is_set()

    def spring(self) -> None:
        """Record the message; the proxy calls this just before it cuts the connection."""
        self._sprung.set()

    def wait(self) -> None:
        """Wait until the message came and, for `Cut.AFTER`, the server has executed it."""
        assert self._sprung.wait(_TIMEOUT), "the message that the trap waits for never came"


class Proxy(ForwardingProxy):
    """Forwards connections to a server, named by libpq's or structable's URL, and cuts one at each trap."""

    def __init__(self, conninfo: str) -> None:
        self._traps: list[Trap] = []
        self._round_trips = 0
        super().__init__(conninfo, 5432)

    def url(self, url: str) -> str:
        """Return a URL of the server, libpq's or structable's, that leads through the proxy."""
        parts = urlsplit(super().url(url))
        query = "&".join(filter(None, [parts.query, "sslmode=disable", "gssencmode=disable"]))
        return parts._replace(query=query).geturl()

    @property
    def round_trips(self) -> int:
        """The number of times that clients have waited for the server so far."""
        with self._lock:
            return self._round_trips

    def trips_of(self, work: Callable[[], object]) -> int:
        """Return how often work waits for the server."""
        before = self.round_trips
        work()
        return self.round_trips - before

    def trap(self, condition: Condition, cut: Cut) -> Trap:
        """Cut one connection, at the next message of any that meets the condition."""
        trap = Trap(condition, cut)
        with self._lock:
            self._traps.append(trap)
        return trap

    def _link(self, client: socket.socket, server: socket.socket) -> Link:
        return _Link(client, server, self._spring)

    def _spring(self, message: Message) -> Trap | None:
        with self._lock:
            self._round_trips += message.kind in _ROUND_TRIPS
            for trap in self._traps:
                if trap.condition(message):
                    self._traps.remove(trap)
                    return trap
        return None


class Pooler(Proxy):
    """Gives clients other numbers of the server's processes than they have, as a pooler of sessions does."""

    def _link(self, client: socket.socket, server: socket.socket) -> Link:
        return _PooledLink(client, server, self._spring)


class _Link(Link):
    """One connection, with a thread for each direction."""

    def __init__(self, client: socket.socket, server: socket.socket, spring: Callable[[Message], Trap | None]) -> None:
        super().__init__(client, server)
        self._spring = spring
        self._swallow = threading.Event()
        self._answering = threading.Thread(target=self._answers, name="proxy answers", daemon=True)
        self._statements: dict[bytes, str] = {}
        self._portals: dict[bytes, str] = {}

    def _forward(self) -> None:
        self._answering.start()
        try:
            self._requests()
        finally:
            self.cut()
            self._answering.join()

    def _answers(self) -> None:
        with suppress(OSError):
            while block := self._server.recv(_BLOCK):
                if not self._swallow.is_set():
                    self._client.sendall(self._answer(block))
        if not self._swallow.is_set():
            self.cut()

    def _answer(self, block: bytes) -> bytes:
        return block

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


class _PooledLink(_Link):
    """A connection whose first answers name another process."""

    _PROCESS = re.compile(rb"(K\0\0\0\x0c)....", re.DOTALL)
    _renamed = False

    def _answer(self, block: bytes) -> bytes:
        if not self._renamed:
            block, count = self._PROCESS.subn(b"\\g<1>\x7f\0\0\x01", block, 1)
            self._renamed = bool(count)
        return block


def _exactly(stream: BufferedReader, size: int) -> bytes:
    found = stream.read(size)
    if len(found) < size:
        raise EOFError
    return found
