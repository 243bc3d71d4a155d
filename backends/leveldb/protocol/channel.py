"""`Channel`: one connection between the owner of a database and a client, over a Unix socket.

A frame is the length of the rest (four bytes, little-endian), one byte that names the message, and the body.
"""

from __future__ import annotations

import _socket
import contextlib
import math
import os
import socket
import struct
from array import array
from collections.abc import Callable
from time import perf_counter
from typing import TypeVar

from structable.backends.base.traffic import Tally
from structable.spi import UnsupportedOperationError

from .messages import ENDING, KEEP_ALIVE

Result = TypeVar("Result")

_LENGTH = struct.Struct("<I")
_HEAD_BYTES = 5
_RECEIVE = 1 << 16
_LARGEST = 3 << 30
_LONGEST_SECONDS = 1e9

_POLLED = 50e-6
_OVERDUE = 1e-3
_MOST_UNPOLLED = 256
polled_until = array("d", [0.0])
"""The end of the current polling in this process. It has no lock, which an interruption might leave taken."""


class PeerLostError(Exception):
    """The other side is gone; `was_sent` says that it may have begun the last request."""

    def __init__(self, reason: str, *, was_sent: bool = True) -> None:
        super().__init__(reason)
        self.was_sent = was_sent


class TimedOutError(Exception):
    """The other side did not answer in time."""


class Channel:
    """One connection, used by one thread at a time.

    Waking a thread that sleeps on another core takes longer than most requests. So a thread that waits for a frame
    polls for it first, for 50 us, and yields its core before each poll. Only one thread of a process polls at a time,
    and a connection whose polls miss polls less and less, down to one wait in 256.

    The socket is connected and blocking. Both times limit the wait for the other side; 0 waits for ever.

    A library of greenlets that replaced Python's sockets, such as gevent, runs others while a socket waits. Its sockets
    never block in the kernel: they need its own time-outs, and a poll would keep the others from running.
    """

    __slots__ = ("_buffer", "_is_cooperative", "_misses", "_receive", "_send", "_unpolled", "connection", "tally")

    def __init__(self, connection: socket.socket, *, receive_seconds: float, send_seconds: float) -> None:
        # The kernel's own time-outs: Python's would ask the kernel before each call whether it would block.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(receive_seconds))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(send_seconds))
        self.connection = connection
        self.tally = Tally()
        self._send: Callable[..., int] = connection.send
        self._receive: Callable[..., bytes] = connection.recv
        self._buffer = b""
        self._misses = 1
        self._unpolled: float = 0
        self._is_cooperative = socket.socket.recv is not _socket.socket.recv
        if self._is_cooperative:
            self._send = _limited(connection.send, connection, send_seconds)
            self._receive = _limited(connection.recv, connection, receive_seconds)
            self._unpolled = math.inf

    def send(self, message: int, body: bytes = b"") -> None:
        """Send a frame.

        Raises `PeerLostError` or `TimedOutError` if the other side is gone, or does not read it in time; and
        `UnsupportedOperationError`, with nothing sent, if the frame exceeds the limit, which no transaction can.
        """
        if len(body) > _LARGEST - _HEAD_BYTES:
            raise UnsupportedOperationError(
                f"a message between the processes of a database has {_LARGEST:,} bytes at most, and this one has "
                f"{len(body) + _HEAD_BYTES:,}; read or write less at once"
            )
        frame = b"%b%c%b" % (_LENGTH.pack(len(body) + 1), message, body)
        try:
            sent = self._send(frame)
            while sent < len(frame):
                sent += self._send(memoryview(frame)[sent:])
            self.tally.sent += sent
        except (BlockingIOError, TimeoutError):
            raise TimedOutError from None
        except OSError as error:
            raise PeerLostError(str(error), was_sent=False) from None

    def receive(self) -> bytes:
        """Return the next frame without its length, the message byte and the body; `KEEP_ALIVE` is skipped.

        Raises `PeerLostError` or `TimedOutError` if the other side is gone, closes, or sends nothing in time.
        """
        frame = self._receive_any()
        while frame[0] >= KEEP_ALIVE:
            if frame[0] == ENDING:
                raise PeerLostError("the owner is closing", was_sent=False)
            frame = self._receive_any()
        return frame

    def _receive_any(self) -> bytes:
        data = self._buffer or self._read()
        while len(data) < 4:
            data += self._read()
        end = int.from_bytes(data[:4], "little") + 4
        if len(data) == end:
            self._buffer = b""
            return data[4:]
        if len(data) < end:
            if end > _LARGEST:
                raise PeerLostError(f"a frame of {end:,} bytes exceeds the limit of the protocol")
            parts, have = [data], len(data)
            while have < end:
                data = self._read(min(end - have, 1 << 20) if end - have > _RECEIVE else _RECEIVE)
                parts.append(data)
                have += len(data)
            data = b"".join(parts)
        self._buffer = data[end:]
        return data[4:end]

    def _read(self, size: int = _RECEIVE) -> bytes:
        try:
            data = self._poll(size) or self._receive(size)
        except (BlockingIOError, TimeoutError):
            raise TimedOutError from None
        except OSError as error:
            raise PeerLostError(str(error)) from None
        if not data:
            raise PeerLostError("the connection was closed")
        self.tally.received += len(data)
        return data

    def _poll(self, size: int) -> bytes:
        """Return bytes that arrive soon, or nothing."""
        if self._unpolled:
            self._unpolled -= 1
            return b""
        end = perf_counter()
        if end < polled_until[0]:
            return b""
        data = b""
        end += _POLLED
        polled_until[0] = end
        try:
            while perf_counter() < end:
                os.sched_yield()
                try:
                    data = self._receive(size, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    continue
                break
        finally:
            polled_until[0] = 0.0
        # A late frame is a miss as well. After a millisecond the core was used by a computing thread, and a thread that
        # had slept would have been scheduled before it.
        overdue = perf_counter() - end
        if overdue < 0:
            self._misses = 1
        else:
            self._unpolled = self._misses if overdue < _OVERDUE else _MOST_UNPOLLED
            self._misses = min(2 * self._unpolled, _MOST_UNPOLLED)
        return data

    def stop_receiving(self) -> None:
        """Make `receive` find the connection lost; the current answer can still be sent."""
        self.connection.shutdown(socket.SHUT_RD)

    def shut(self) -> None:
        """Make both sides find the connection lost; its user on this side still must close it."""
        with contextlib.suppress(OSError):  # the other side was first
            self.connection.shutdown(socket.SHUT_RDWR)

    @property
    def alive(self) -> bool:
        """Whether the other side has the connection open; no request may be under way on it."""
        if self._is_cooperative:
            self.connection.settimeout(0)  # it would wait in spite of the flag
        try:
            self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def close(self) -> None:
        self.connection.close()


def _limited(call: Callable[..., Result], connection: socket.socket, seconds: float) -> Callable[..., Result]:
    """Return a call with a limit on its wait."""
    limit = seconds if 0 < seconds < _LONGEST_SECONDS else None

    def limited(*args: object) -> Result:
        connection.settimeout(limit)
        return call(*args)

    return limited


def _timeval(seconds: float) -> bytes:
    if not seconds < _LONGEST_SECONDS:
        return struct.pack("ll", 0, 0)  # for ever
    whole = int(seconds)
    return struct.pack("ll", whole, int((seconds - whole) * 1_000_000))
