"""The protocol between the owner of a database and its clients: frames, and what travels in them.

A frame is its length (four bytes, little-endian, of what follows), one byte that names the message, and the body.
Clients ask, the owner answers each request with one frame, in order; while a request takes long, `KEEP_ALIVE` frames
may come before the answer. `RELEASE` and `SCAN_END` are not answered. An owner that ends finishes the requests that it
is at, and answers all others with `ENDING`: they were not begun.

A reference to a snapshot is `REFERENCE`: the number that the client gave it, flags, the client's schema epoch, and the
number of the newest commit when its transaction began. The owner takes the snapshot with the first request that refers
to it, which has the flag `BEGIN`; `PINNED` says that the transaction had written before, so that this is too late.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter

from structable.backends.ordered.engine import SPACE_BYTES, Increment, ReadSet, WriteSet
from structable.spi.errors import UnsupportedOperationError

__all__ = ["Channel", "ConnectionLostError", "TimedOutError"]

VERSION = 3

# Requests
HELLO, GET, READ, READ_MANY, SCAN, SCAN_MORE, SCAN_END, RELEASE = range(1, 9)
COMMIT, LOOK_UP, DELEGATE, CHECKPOINT, GOODBYE = range(9, 14)
# Answers
VALUE, ABSENT, VALUES, PAIRS, LAST_PAIRS, DONE, EPOCH, ERROR, LOST, KEEP_ALIVE, ENDING = range(65, 76)

UNANSWERED = frozenset({RELEASE, SCAN_END})
"""Requests without an answer."""

BEGIN, READ_ONLY, SYNC, UNCHECKED, REVERSE, PINNED = 1, 2, 4, 8, 16, 32
"""Flags."""

REFERENCE = struct.Struct("<IBQQ")
COMMIT_HEAD = struct.Struct("<IBQQQ")
HELLO_BODY = struct.Struct("<H16sI")
LOOK_UP_BODY = struct.Struct("<16sIQ")

_LENGTH = struct.Struct("<I")
_HEAD_BYTES = 5
_RECEIVE = 1 << 16
_LARGEST = 3 << 30
_LONGEST_SECONDS = 1e9

_POLLED = 50e-6
_TOO_LATE = 1e-3
_MOST_UNPOLLED = 256
_polled_until = array("d", [0.0])
"""Until when a thread of this process polls. No lock, which an interruption of that thread might leave taken."""


class ConnectionLostError(Exception):
    """The other side is gone.

    Parameters
    ----------
    reason : str
        How that showed.
    was_sent : bool
        Whether the other side may have begun with the last request.
    """

    def __init__(self, reason: str, *, was_sent: bool = True) -> None:
        super().__init__(reason)
        self.was_sent = was_sent


class TimedOutError(Exception):
    """The other side did not answer in time."""


class Channel:
    """One connection, used by one thread at a time.

    To wake a thread that sleeps on another core takes longer than most requests. So whoever waits for a frame polls for
    it first, for 50 us, and gives its core away to whoever wants it before each look. Only one thread of a process
    polls at a time, and a connection where that was in vain does so less and less often, down to one wait in 256.

    Parameters
    ----------
    connection : socket.socket
        A connected, blocking stream socket.
    seconds : float
        How long to wait for the other side to send or take something; 0 for ever.
    """

    __slots__ = ("_buffer", "_in_vain", "_receive", "_send", "_unpolled", "connection")

    def __init__(self, connection: socket.socket, *, receive_seconds: float, send_seconds: float) -> None:
        # The kernel's own time-outs: Python's would ask the kernel before each call whether it would block.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(receive_seconds))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(send_seconds))
        self.connection = connection
        self._send = connection.send
        self._receive = connection.recv
        self._buffer = b""
        self._in_vain = 1
        self._unpolled = 0

    def send(self, message: int, body: bytes = b"") -> None:
        """Send a frame.

        Raises
        ------
        ConnectionLostError, TimedOutError
            If the other side is gone, or does not take it.
        UnsupportedOperationError
            If it is over the limit of a frame, which the largest transaction is not; nothing was sent.
        """
        if len(body) > _LARGEST - _HEAD_BYTES:
            raise UnsupportedOperationError(
                f"a message between the processes of a database has {_LARGEST:,} bytes at most, and this one has "
                f"{len(body) + _HEAD_BYTES:,}: read or write less at once"
            )
        frame = b"%b%c%b" % (_LENGTH.pack(len(body) + 1), message, body)
        try:
            sent = self._send(frame)
            while sent < len(frame):
                sent += self._send(memoryview(frame)[sent:])
        except BlockingIOError:
            raise TimedOutError from None
        except OSError as error:
            raise ConnectionLostError(str(error), was_sent=False) from None

    def receive(self) -> bytes:
        """Return the next frame without its length, the message byte and the body; `KEEP_ALIVE` is passed over.

        Raises
        ------
        ConnectionLostError, TimedOutError
            If the other side is gone, ends, or sends nothing.
        """
        frame = self._receive_any()
        while frame[0] >= KEEP_ALIVE:
            if frame[0] == ENDING:
                raise ConnectionLostError("the owner is ending", was_sent=False)
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
                raise ConnectionLostError(f"a frame of {end:,} bytes is not of this protocol")
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
        except BlockingIOError:
            raise TimedOutError from None
        except OSError as error:
            raise ConnectionLostError(str(error)) from None
        if not data:
            raise ConnectionLostError("the connection was closed")
        return data

    def _poll(self, size: int) -> bytes:
        """Return what comes soon, or nothing."""
        if self._unpolled:
            self._unpolled -= 1
            return b""
        end = perf_counter()
        if end < _polled_until[0]:
            return b""
        data = b""
        end += _POLLED
        _polled_until[0] = end
        try:
            while perf_counter() < end:
                os.sched_yield()
                try:
                    data = self._receive(size, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    continue
                break
        finally:
            _polled_until[0] = 0.0
        # Late is in vain, too. Who gets the core back after a millisecond has given it to somebody who computes, and
        # would have been preferred to him if woken.
        late = perf_counter() - end
        if late < 0:
            self._in_vain = 1
        else:
            self._unpolled = self._in_vain if late < _TOO_LATE else _MOST_UNPOLLED
            self._in_vain = min(2 * self._unpolled, _MOST_UNPOLLED)
        return data

    def stop_receiving(self) -> None:
        """Let a thread that waits in `receive` find the connection lost; what is being answered can still be sent."""
        self.connection.shutdown(socket.SHUT_RD)

    def shut(self) -> None:
        """Let both sides find the connection lost; its user on this side still has to close it."""
        with contextlib.suppress(OSError):  # the other side was first
            self.connection.shutdown(socket.SHUT_RDWR)

    @property
    def alive(self) -> bool:
        """Whether the other side has the connection open, on which nothing is under way."""
        try:
            self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


def _timeval(seconds: float) -> bytes:
    if not seconds < _LONGEST_SECONDS:
        return struct.pack("ll", 0, 0)  # for ever
    whole = int(seconds)
    return struct.pack("ll", whole, int((seconds - whole) * 1_000_000))


# Bodies


def pack_texts(texts: Sequence[bytes | None]) -> bytes:
    """Return a list of texts, some of them missing, in its encoded form."""
    lengths = array("i", [-1 if text is None else len(text) for text in texts])
    return b"".join((_LENGTH.pack(len(texts)), lengths.tobytes(), *(text for text in texts if text)))


def unpack_texts(body: bytes, place: int) -> tuple[list[bytes | None], int]:
    """Return the list of texts at a place of a body, and the place after it."""
    count = int.from_bytes(body[place : place + 4], "little")
    start = place + 4 + 4 * count
    lengths = array("i")
    lengths.frombytes(body[place + 4 : start])
    texts: list[bytes | None] = []
    for length in lengths:
        if length < 0:
            texts.append(None)
        else:
            texts.append(body[start : start + length])
            start += length
    return texts, start


def unpack_present(body: bytes, place: int) -> tuple[list[bytes], int]:
    """Return the list of texts at a place of a body, none of which may be missing, and the place after it."""
    texts, place = unpack_texts(body, place)
    present = [text for text in texts if text is not None]
    if len(present) != len(texts):
        raise ValueError("a text is missing")
    return present, place


_ONE = struct.Struct("<Iii")


def pack_map(changes: Mapping[bytes, bytes | None]) -> bytes:
    """Return keys and values in their encoded form."""
    if len(changes) == 1:
        [(key, value)] = changes.items()
        return b"%b%b%b" % (_ONE.pack(1, len(key), -1 if value is None else len(value)), key, value or b"")
    return pack_pairs(list(changes), list(changes.values()))


def pack_pairs(keys: Sequence[bytes], values: Sequence[bytes | None]) -> bytes:
    """Return keys and their values in encoded form."""
    lengths = array("i", map(len, keys))
    lengths.extend([-1 if value is None else len(value) for value in values])
    return b"".join((_LENGTH.pack(len(keys)), lengths.tobytes(), *keys, *filter(None, values)))


def unpack_map(body: bytes, place: int) -> tuple[dict[bytes, bytes | None], int]:
    """Return the keys and values at a place of a body, and the place after them."""
    count = int.from_bytes(body[place : place + 4], "little")
    if count == 1:
        _, key_length, length = _ONE.unpack_from(body, place)
        middle = place + 12 + key_length
        if length < 0:
            return {body[place + 12 : middle]: None}, middle
        return {body[place + 12 : middle]: body[middle : middle + length]}, middle + length
    start = place + 4 + 8 * count
    lengths = array("i")
    lengths.frombytes(body[place + 4 : start])
    keys: list[bytes] = []
    for length in lengths[:count]:
        keys.append(body[start : start + length])
        start += length
    changes: dict[bytes, bytes | None] = {}
    for key, length in zip(keys, lengths[count:], strict=True):
        if length < 0:
            changes[key] = None
        else:
            changes[key] = body[start : start + length]
            start += length
    return changes, start


_WRITES, _DERIVED, _INCREMENTS, _READS, _SPACES, _CHANGED = 1, 2, 4, 8, 16, 32

_ROWS_OF_ONE_TABLE = 64
_ONE_ROW = struct.Struct(f"<B{SPACE_BYTES}sIii")
_ROWS_PLACE = 1 + SPACE_BYTES


def pack_changes(changes: WriteSet) -> bytes:
    """Return a write set in its encoded form."""
    if len(changes.spaces) == 1 and not (
        changes.derived or changes.increments or changes.changed_spaces or changes.reads
    ):
        # What most transactions write has a form of its own, for it is read in a third of the time.
        [space], writes = changes.spaces, changes.writes
        if len(writes) == 1:
            [(key, value)] = writes.items()
            head = _ONE_ROW.pack(_ROWS_OF_ONE_TABLE, space, 1, len(key), -1 if value is None else len(value))
            return b"%b%b%b" % (head, key, value or b"")
        return b"%c%b%b" % (_ROWS_OF_ONE_TABLE, space, pack_map(writes))
    flags = 0
    parts: list[bytes] = [b""]
    if changes.writes:
        flags |= _WRITES
        parts.append(pack_map(changes.writes))
    if changes.derived:
        flags |= _DERIVED
        parts.append(pack_map(changes.derived))
    if changes.increments:
        flags |= _INCREMENTS
        parts.append(_pack_increments(changes.increments))
    if changes.reads is not None:
        flags |= _READS
        parts.append(pack_texts(list(changes.reads.keys)))
        parts.append(pack_texts([bound for interval in changes.reads.intervals for bound in interval]))
    if changes.spaces:
        flags |= _SPACES
        parts.append(pack_texts(list(changes.spaces)))
    if changes.changed_spaces:
        flags |= _CHANGED
        parts.append(pack_texts(list(changes.changed_spaces)))
    parts[0] = flags.to_bytes(1, "little")
    return b"".join(parts)


def unpack_changes(body: bytes, place: int) -> WriteSet:
    """Return the write set at a place of a body.

    Raises
    ------
    ValueError, IndexError, struct.error
        If there is none.
    """
    flags = body[place]
    if flags == _ROWS_OF_ONE_TABLE:
        writes, end = unpack_map(body, place + _ROWS_PLACE)
        _require_end(body, end)
        space = body[place + 1 : place + _ROWS_PLACE]
        return WriteSet(writes, {}, {}, None, {space}, set())  # the defaults take longer
    place += 1
    changes = WriteSet()
    if flags & _WRITES:
        changes.writes, place = unpack_map(body, place)
    if flags & _DERIVED:
        changes.derived, place = unpack_map(body, place)
    if flags & _INCREMENTS:
        changes.increments, place = _unpack_increments(body, place)
    if flags & _READS:
        keys, place = unpack_present(body, place)
        bounds, place = unpack_present(body, place)
        changes.reads = ReadSet(set(keys), list(zip(bounds[::2], bounds[1::2], strict=True)))
    if flags & _SPACES:
        spaces, place = unpack_present(body, place)
        changes.spaces = set(spaces)
    if flags & _CHANGED:
        spaces, place = unpack_present(body, place)
        changes.changed_spaces = set(spaces)
    _require_end(body, place)
    return changes


def _require_end(body: bytes, place: int) -> None:
    if place != len(body):
        raise ValueError(f"{len(body) - place} bytes behind a write set")


def _pack_increments(increments: Mapping[bytes, Iterable[Increment]]) -> bytes:
    flat: list[bytes] = []
    for key, steps in increments.items():
        for step in steps:
            flat += (key, step.schema, step.field.encode(), b"%d" % step.amount)
    return pack_texts(flat)


def _unpack_increments(body: bytes, place: int) -> tuple[dict[bytes, tuple[Increment, ...]], int]:
    flat, place = unpack_present(body, place)
    steps: dict[bytes, list[Increment]] = {}
    for start in range(0, len(flat), 4):
        key, schema, field, amount = flat[start : start + 4]
        steps.setdefault(key, []).append(Increment(schema, field.decode(), int(amount)))
    return {key: tuple(found) for key, found in steps.items()}, place
