"""`Wire`: bytes to and from a gateway, where sending never waits for a peer that waits for us to receive."""

from __future__ import annotations

import os
import select
import socket
import struct
import time
import weakref
from collections import deque
from collections.abc import Sequence

__all__ = ["Wire"]

_BLOCK = 1 << 16
_KEPT = 64
_LENGTH = struct.Struct("!i")


class Wire:
    """A connection that is open.

    Parameters
    ----------
    address : tuple
        Host and port.
    framed : bool
        Whether every message has its length in front of it.
    connect_timeout : float
        Seconds to wait for the connection.
    timeout : float
        Seconds to wait for the peer to take what is sent.

    Attributes
    ----------
    deadline : float
        Until when `read` waits, on the monotonic clock.
    first : bytes
        The first bytes that ever came, for a diagnosis.
    received : int
        How many bytes came so far.

    Raises
    ------
    OSError
        If there is no connection.
    """

    def __init__(self, address: tuple[str, int], *, framed: bool, connect_timeout: float, timeout: float) -> None:
        self._socket = socket.create_connection(address, connect_timeout)
        # A storage and a scan that nobody has closed are collected in any order: the socket is not to be the first.
        self._closing = weakref.finalize(self, self._socket.close)
        self._closing.atexit = False
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._socket.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._framed = framed
        self._frame = 0  # bytes that are left of the one being read
        self._timeout = timeout
        self._early: deque[bytes] = deque()
        self._process = os.getpid()
        self.deadline = 0.0
        self.first = b""
        self.received = 0

    @property
    def readable(self) -> bool:
        """Whether bytes, or the end, are there to be read: an idle connection has neither."""
        return bool(self._early) or bool(self._poll.poll(0))

    def send(self, messages: Sequence[bytes]) -> None:
        """Send messages, and receive meanwhile what comes.

        Raises
        ------
        OSError
            If the connection is lost; TimeoutError, if the peer takes nothing for too long.
        """
        if self._framed:
            messages = [part for message in messages for part in (_LENGTH.pack(len(message)), message)]
        rest = memoryview(b"".join(messages))
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                self._wait_until_taken()

    def _wait_until_taken(self) -> None:
        self._poll.modify(self._socket, select.POLLIN | select.POLLOUT)
        try:
            events = self._poll.poll(self._timeout * 1_000)
        finally:
            self._poll.modify(self._socket, select.POLLIN)
        if not events:
            raise TimeoutError
        if events[0][1] & select.POLLIN:
            self._early.append(self._received(_BLOCK))

    def read(self, size: int) -> bytes:
        """Return at least one byte of the replies and at most so many.

        Raises
        ------
        OSError
            If the connection is lost; TimeoutError, at the deadline.
        ValueError
            If a frame's length is none.
        """
        if not self._framed:
            return self._some(size)
        if not self._frame:
            head = self._some(4)
            while len(head) < 4:
                head += self._some(4 - len(head))
            self._frame = _LENGTH.unpack(head)[0]
            if self._frame <= 0:
                raise ValueError(f"a frame of {self._frame} bytes")
        found = self._some(min(size, self._frame))
        self._frame -= len(found)
        return found

    def _some(self, size: int) -> bytes:
        if self._early:
            found = self._early.popleft()
            if len(found) > size:
                self._early.appendleft(found[size:])
                found = found[:size]
            return found
        # The transport above asks for as much as it has room for, which may be far more than is to come.
        size = min(size, 1 << 20)
        while True:
            try:
                return self._received(size)
            except BlockingIOError:
                remaining = self.deadline - time.monotonic()
                if remaining <= 0 or not self._poll.poll(remaining * 1_000):
                    raise TimeoutError from None

    def _received(self, size: int) -> bytes:
        found = self._socket.recv(size)
        if not found:
            raise ConnectionResetError("the peer closed the connection")
        self.received += len(found)
        if len(self.first) < _KEPT:
            self.first = (self.first + found[:_KEPT])[:_KEPT]
        return found

    def shut(self) -> None:
        """End the connection under whoever uses it; a forked process leaves its parent's alone."""
        if os.getpid() == self._process:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # it has ended already

    def close(self) -> None:
        """Close this process's end."""
        self._closing()
