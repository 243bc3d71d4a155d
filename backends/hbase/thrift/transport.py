"""`Wire`: bytes to and from a gateway; receives while it sends, so that neither side waits for the other."""

from __future__ import annotations

import os
import select
import socket
import struct
import time
import weakref
from collections import deque
from collections.abc import Sequence

from structable.backends.base.traffic import Tally

_BLOCK = 1 << 16
_KEPT = 64
_LENGTH = struct.Struct("!i")


class Wire:
    """An open connection; raises `OSError` if it cannot be opened.

    With `framed`, every message is preceded by its length. Both time-outs are in seconds; `timeout` limits the wait for
    the peer to accept sent bytes.
    """

    def __init__(
        self, address: tuple[str, int], tally: Tally, *, framed: bool, connect_timeout: float, timeout: float
    ) -> None:
        self._socket = socket.create_connection(address, connect_timeout)
        # An unclosed storage and scan are collected in any order: the socket must not be closed first.
        self._closing = weakref.finalize(self, self._socket.close)
        self._closing.atexit = False
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._socket.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._tally = tally
        self._framed = framed
        self._frame = 0  # bytes that are left of the one being read
        self._timeout = timeout
        self._early: deque[bytes] = deque()
        self._process = os.getpid()
        self.deadline = 0.0  # until when `read` waits, by the monotonic clock
        self.first = b""  # bytes received, for a diagnosis

    @property
    def readable(self) -> bool:
        """Whether bytes, or the end, can be read: an idle connection has neither."""
        return bool(self._early) or bool(self._poll.poll(0))

    def send(self, messages: Sequence[bytes]) -> None:
        """Send messages, and receive replies at the same time.

        Raises `OSError` if the connection is lost; `TimeoutError`, if the peer accepts nothing for too long.
        """
        if self._framed:
            messages = [part for message in messages for part in (_LENGTH.pack(len(message)), message)]
        rest = memoryview(b"".join(messages))
        while rest:
            try:
                sent = self._socket.send(rest)
            except BlockingIOError:
                self._wait_until_taken()
            else:
                self._tally.sent += sent
                rest = rest[sent:]

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
        """Return at least one byte of the replies and at most `size`.

        Raises `OSError` if the connection is lost, `TimeoutError` at the deadline, and `ValueError` if a frame's length
        is not positive.
        """
        if not self._framed:
            return self._some(size)
        if not self._frame:
            head = self._some(4)
            while len(head) < 4:
                head += self._some(4 - len(head))
            self._frame = _LENGTH.unpack(head)[0]
            if self._frame <= 0:
                raise ValueError(f"a frame has the size {self._frame}")
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
        # The transport above requests as many bytes as it has room for, possibly far more than a reply.
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
        self._tally.received += len(found)
        if len(self.first) < _KEPT:
            self.first = (self.first + found[:_KEPT])[:_KEPT]
        return found

    def shut(self) -> None:
        """End the connection, even while another thread uses it; a forked process leaves its parent's alone."""
        if os.getpid() == self._process:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # it has ended already

    def close(self) -> None:
        self._closing()
