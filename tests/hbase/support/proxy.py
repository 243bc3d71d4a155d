"""A TCP proxy before a Thrift gateway that loses, delays and doubles requests at chosen places.

It understands as much of Thrift's binary protocol, unframed, as is needed to see where a message ends.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from io import BufferedReader
from typing import Self
from urllib.parse import urlsplit

from thriftpy2.protocol.binary import TBinaryProtocol
from thriftpy2.thrift import TType

__all__ = ["Fault", "Proxy", "Trap"]

_TIMEOUT = 60
_QUIET = 0.1  # seconds without a request, after which a client is taken to wait for replies


class Fault(Enum):
    """What goes wrong at a request."""

    NEVER_SENT = "the connection is lost; the gateway has got what was sent before, and nothing from here on"
    NO_REPLY = "the gateway does what it is asked, and the connection is lost in place of its reply"
    NO_REPLY_TO_ALL = "the same, but the gateway does what was sent behind the request, too"
    LATE = "the connection is lost, and the gateway does what it is asked when the trap says so"
    TWICE = "the gateway does it, and does it again when the trap says so; the client sees nothing of that"


@dataclass(slots=True)
class Trap:
    """Waits for a request.

    Parameters
    ----------
    number : int
        The how manyth request from now on.
    fault : Fault
        What goes wrong there.

    Attributes
    ----------
    api : str
        The request's name, once it came.
    """

    number: int
    fault: Fault
    api: str = ""
    _sprung: threading.Event = field(default_factory=threading.Event)
    _released: threading.Event = field(default_factory=threading.Event)
    _done: threading.Event = field(default_factory=threading.Event)

    @property
    def sprung(self) -> bool:
        """Whether the request came."""
        return self._sprung.is_set()

    def release(self) -> None:
        """Let what is late, or comes twice, reach the gateway, and wait until it has done it."""
        self._released.set()
        if self.sprung and self.fault in (Fault.LATE, Fault.TWICE):
            assert self._done.wait(_TIMEOUT), "the gateway did not answer a request that came late"


class Proxy:
    """Forwards connections to a gateway, on a free port of 127.0.0.1, until it is closed.

    Parameters
    ----------
    url : str
        Names the gateway.

    Attributes
    ----------
    port : int
        Where it listens.
    denied : str
        Requests of this name never reach the gateway, and their connections are lost; empty denies none.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = parts.hostname, parts.port or 9090
        self._lock = threading.Lock()
        self._links: set[_Link] = set()
        self._trap: Trap | None = None
        self.denied = ""
        self._changed = threading.Condition(self._lock)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._accepting = self._accept_in_background(self._listener)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.refuse()
        self.cut_all()
        self.wait_until_open(0)

    def url(self, url: str) -> str:
        """Return a URL of the gateway with the proxy in place of it."""
        return urlsplit(url)._replace(netloc=f"127.0.0.1:{self.port}").geturl()

    def trap(self, number: int, fault: Fault) -> Trap:
        """Let the `number`th request from now on, of whatever connection, go wrong."""
        trap = Trap(number, fault)
        with self._lock:
            self._trap = trap
        return trap

    def wait_until_open(self, count: int) -> None:
        """Wait until so many connections are open, or fewer; a client's close takes a moment to arrive."""
        with self._changed:
            reached = self._changed.wait_for(lambda: len(self._links) <= count, _TIMEOUT)
            assert reached, f"{len(self._links)} connections are open, not {count}"

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
            link = _Link(client, self.connection(), self)
            with self._changed:
                self._links.add(link)
            threading.Thread(target=self._serve, args=(link,), name="proxy link", daemon=True).start()

    def connection(self) -> socket.socket:
        """Open a connection to the gateway."""
        server = socket.create_connection(self._target, _TIMEOUT)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return server

    def _serve(self, link: _Link) -> None:
        try:
            link.run()
        finally:
            with self._changed:
                self._links.discard(link)
                self._changed.notify_all()

    def spring(self, api: str) -> Trap | None:
        """Return the trap if it waits for this request."""
        with self._lock:
            trap = self._trap
            if trap is None:
                return None
            trap.number -= 1
            if trap.number:
                return None
            self._trap = None
            trap.api = api
            trap._sprung.set()
            return trap


class _Link:
    """One connection: a request is forwarded when the reply to the one before has come, so that nothing overtakes."""

    def __init__(self, client: socket.socket, server: socket.socket, proxy: Proxy) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client = client
        self._server = server
        self._proxy = proxy

    def run(self) -> None:
        try:
            client, server = self._client, self._server
            with suppress(OSError, EOFError), client.makefile("rb") as requests, server.makefile("rb") as replies:
                self._forward(requests, replies)
        finally:
            self.cut()
            self._client.close()
            self._server.close()

    def cut(self) -> None:
        """End both sides at once."""
        for end in (self._client, self._server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _forward(self, requests: BufferedReader, replies: BufferedReader) -> None:
        while True:
            api, request = _message(requests)
            trap = self._proxy.spring(api)
            if api == self._proxy.denied:
                return
            if trap is None:
                self._server.sendall(request)
                self._client.sendall(_message(replies)[1])
            elif trap.fault is Fault.NEVER_SENT:
                return
            elif trap.fault is Fault.TWICE:
                self._server.sendall(request)
                reply = _message(replies)[1]
                self._do_later(trap, request)
                self._client.sendall(reply)
            elif trap.fault is Fault.LATE:
                self._do_later(trap, request)
                return
            else:
                self._server.sendall(request)
                _message(replies)
                if trap.fault is Fault.NO_REPLY_TO_ALL:
                    self._do_the_rest(requests, replies)
                return

    def _do_the_rest(self, requests: BufferedReader, replies: BufferedReader) -> None:
        """Do what the client sent already; it sends nothing more before it has the first reply."""
        self._client.settimeout(_QUIET)
        while True:
            self._server.sendall(_message(requests)[1])
            _message(replies)

    def _do_later(self, trap: Trap, request: bytes) -> None:
        def work() -> None:
            trap._released.wait(_TIMEOUT)
            with self._proxy.connection() as server, server.makefile("rb") as replies:
                server.sendall(request)
                _message(replies)
            trap._done.set()

        threading.Thread(target=work, name="proxy late", daemon=True).start()


class _Recorded:
    """What is read of a stream, kept."""

    def __init__(self, stream: BufferedReader) -> None:
        self._stream = stream
        self.found = bytearray()

    def read(self, size: int) -> bytes:
        found = self._stream.read(size)
        if len(found) < size:
            raise EOFError
        self.found += found
        return found


def _message(stream: BufferedReader) -> tuple[str, bytes]:
    """Read one message, and return its name and all of it."""
    recorded = _Recorded(stream)
    protocol = TBinaryProtocol(recorded)
    name, _kind, _number = protocol.read_message_begin()
    protocol.skip(TType.STRUCT)
    protocol.read_message_end()
    return name, bytes(recorded.found)
