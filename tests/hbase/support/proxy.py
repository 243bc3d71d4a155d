"""A TCP proxy before a Thrift gateway that loses, delays and doubles requests at chosen places.

It parses Thrift's binary protocol, unframed, to see where a message ends.
"""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass, field
from enum import Enum
from io import BufferedReader

from thriftpy2.protocol.binary import TBinaryProtocol
from thriftpy2.thrift import TType

from tests.servers.proxy import ForwardingProxy, Link

_TIMEOUT = 60
_QUIET = 0.1  # seconds without a request, after which the client must be waiting for replies


class Fault(Enum):
    """The fault at a request."""

    NEVER_SENT = "the connection is lost; the gateway received the requests before this one, and none from here on"
    NO_REPLY = "the gateway executes the request, and the connection is lost in place of its reply"
    NO_REPLY_TO_ALL = "the same, but the gateway also executes the requests sent behind it"
    LATE = "the connection is lost, and the gateway executes the request when the trap is released"
    TWICE = "the gateway executes the request, and again when the trap is released; the client cannot see that"


@dataclass(slots=True)
class Trap:
    """Waits for the `number`th request from now on, from 1; `api` is its name once it came."""

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
        """Let the late or second request reach the gateway, and wait until the gateway has executed it."""
        self._released.set()
        if self.sprung and self.fault in (Fault.LATE, Fault.TWICE):
            assert self._done.wait(_TIMEOUT), "the gateway did not answer a request that came late"


class Proxy(ForwardingProxy):
    """Forwards connections to a gateway, and lets a trap spring at one request.

    Requests named `denied` never reach the gateway, and their connections are lost; empty denies none.
    """

    def __init__(self, url: str) -> None:
        self._trap: Trap | None = None
        self.denied = ""
        super().__init__(url, 9090)

    def trap(self, number: int, fault: Fault) -> Trap:
        """Let the `number`th request from now on, over any connection, go wrong."""
        trap = Trap(number, fault)
        with self._lock:
            self._trap = trap
        return trap

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

    def _link(self, client: socket.socket, server: socket.socket) -> Link:
        return _Link(client, server, self)


class _Link(Link):
    """One connection: a request is forwarded when the reply to the one before has come, so that nothing overtakes."""

    def __init__(self, client: socket.socket, server: socket.socket, proxy: Proxy) -> None:
        super().__init__(client, server)
        self._proxy = proxy

    def _forward(self) -> None:
        with self._client.makefile("rb") as requests, self._server.makefile("rb") as replies:
            self._forward_requests(requests, replies)

    def _forward_requests(self, requests: BufferedReader, replies: BufferedReader) -> None:
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
        """Forward the requests already sent; the client sends no more before it has the first reply."""
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
    """Read one message; return its name and its bytes."""
    recorded = _Recorded(stream)
    protocol = TBinaryProtocol(recorded)
    name, _kind, _number = protocol.read_message_begin()
    protocol.skip(TType.STRUCT)
    protocol.read_message_end()
    return name, bytes(recorded.found)
