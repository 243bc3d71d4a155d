"""A TCP proxy before a server: it forwards connections until a test refuses or cuts them."""

from __future__ import annotations

import socket
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit

from .processes import HOST

_TIMEOUT = 60


class Link(ABC):
    """One connection through a proxy, run by a thread of its own."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self._client = client
        self._server = server

    def run(self) -> None:
        """Forward until either side ends."""
        try:
            with suppress(OSError, EOFError):  # either side ended the connection
                self._forward()
        finally:
            self.cut()
            self._client.close()
            self._server.close()

    def cut(self) -> None:
        """End both sides at once."""
        for end in (self._client, self._server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    @abstractmethod
    def _forward(self) -> None:
        """Forward requests and replies, and return to end the connection."""


class ForwardingProxy(ABC):
    """Forwards connections to a server, from a free port of 127.0.0.1, until it is closed."""

    def __init__(self, url: str, default_port: int) -> None:
        parts = urlsplit(url)
        self._target = parts.hostname, parts.port or default_port
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._links: set[Link] = set()
        self._accepted = 0
        self.port = 0
        self.accept()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def url(self, url: str) -> str:
        """Return a URL of the server that leads through the proxy."""
        parts = urlsplit(url)
        credentials, at, _server = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{credentials}{at}{HOST}:{self.port}").geturl()

    @property
    def open(self) -> int:
        """The number of open connections."""
        with self._lock:
            return len(self._links)

    @property
    def accepted(self) -> int:
        """The number of connections so far."""
        with self._lock:
            return self._accepted

    def wait_until_open(self, count: int) -> None:
        """Wait until at most so many connections are open; a client's close takes a moment to arrive."""
        with self._changed:
            reached = self._changed.wait_for(lambda: len(self._links) <= count, _TIMEOUT)
            assert reached, f"{len(self._links)} connections are open, not {count}"

    def cut_all(self) -> None:
        with self._lock:
            links = list(self._links)
        for link in links:
            link.cut()

    def refuse(self) -> None:
        """Refuse new connections until `accept`; open ones stay."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()

    def accept(self) -> None:
        self._listener = socket.create_server((HOST, self.port))
        self.port = self._listener.getsockname()[1]
        self._accepting = threading.Thread(
            target=self._accept, args=(self._listener,), name="proxy accept", daemon=True
        )
        self._accepting.start()

    def close(self) -> None:
        self.refuse()
        self.cut_all()
        self.wait_until_open(0)

    def connection(self) -> socket.socket:
        server = socket.create_connection(self._target, _TIMEOUT)
        server.settimeout(None)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return server

    @abstractmethod
    def _link(self, client: socket.socket, server: socket.socket) -> Link: ...

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _address = listener.accept()
            except OSError:
                return  # refusing
            try:
                server = self.connection()
            except OSError:
                client.close()
                continue
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = self._link(client, server)
            with self._changed:
                self._links.add(link)
                self._accepted += 1
            threading.Thread(target=self._serve, args=(link,), name="proxy link", daemon=True).start()

    def _serve(self, link: Link) -> None:
        try:
            link.run()
        finally:
            with self._changed:
                self._links.discard(link)
                self._changed.notify_all()
