"""A connection between two processes: frames, and how long it polls for them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from itertools import accumulate

import pytest

from structable.backends.leveldb.protocol import channel, messages
from structable.backends.leveldb.protocol.channel import Channel, PeerLostError, TimedOutError
from structable.backends.ordered.engine import Increment, Operand, ReadSet, WriteSet

FRAME = b"\x01\x00\x00\x00%c" % messages.DONE


@pytest.mark.parametrize(
    "changes",
    [
        WriteSet(),
        WriteSet({b"key": b"value"}),
        WriteSet({b"key": b"value"}, spaces={b"abcd"}),
        WriteSet({b"key": None}, spaces={b"abcd"}),
        WriteSet({b"key": b"value", b"gone": None}, spaces={b"abcd"}),
        WriteSet(spaces={b"abcd"}),
        WriteSet({b"key": b"value"}, spaces={b"abcd", b"efgh"}),
        WriteSet({b"key": b"value"}, spaces={b"abcd"}, reads=ReadSet()),
        WriteSet({b"key": b"value"}, spaces={b"abcd"}, derived={b"entry": b"\x00"}),
        WriteSet(increments={b"key": (Increment(b"schema", "n", -1),)}, spaces={b"abcd"}, changed_spaces={b"abcd"}),
        WriteSet(increments={b"a": (Operand(b"s", b"1"), Operand(b"t", b"")), b"b": (Increment(b"s", "n", 2),)}),
        WriteSet({b"key": b"value"}, spaces={b"abcd"}, appends={b"feed": [b"one", b"two"], b"described": []}),
        WriteSet(appends={b"feed": [b"one"]}),
        WriteSet({b"k": b"v"}, {b"a": (Operand(b"s", b"1"),), b"b": (Operand(b"s", b"\0"),)}, spaces={b"abcd"}),
    ],
)
def test_write_set_travels_whole(changes: WriteSet) -> None:
    body = messages.pack_changes(changes)
    assert messages.unpack_changes(b"head" + body, 4) == changes
    with pytest.raises(ValueError, match="1 bytes after"):
        messages.unpack_changes(body + b"x", 0)


class Clock:
    """A clock that advances by 10 us at each look, however busy the machine is."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 10e-6
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(channel, "perf_counter", clock)
    return clock


class Tapped(socket.socket):
    """A socket whose `recv` a test can replace."""

    def __init__(self, end: socket.socket) -> None:
        super().__init__(fileno=end.detach())
        self.receive: Callable[[int, int], bytes] = super().recv

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        return self.receive(size, flags)


class Waiting:
    """Replaces a socket's `recv`: a frame arrives only for a call that waits for it."""

    def __init__(self, channel: Channel) -> None:
        self.looks: list[int] = []
        self.waits = 0
        tapped(channel).receive = self.receive

    def receive(self, size: int, flags: int = 0) -> bytes:
        if flags & socket.MSG_DONTWAIT:
            self.looks.append(self.waits)
            raise BlockingIOError
        self.waits += 1
        return FRAME


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    sockets = socket.socketpair()
    here, there = (Channel(Tapped(end), receive_seconds=0.2, send_seconds=0.2) for end in sockets)
    yield here, there
    here.close()
    there.close()


def tapped(channel: Channel) -> Tapped:
    assert isinstance(channel.connection, Tapped)
    return channel.connection


def test_frames_come_whole_and_in_order(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    bodies = [b"", b"x", b"y" * 5_000, b"z"]
    for body in bodies:
        there.send(messages.VALUE, body)
        there.send(messages.KEEP_ALIVE)
    assert [here.receive() for _ in bodies] == [bytes([messages.VALUE]) + body for body in bodies]


def test_silence_times_out_and_a_closed_connection_is_lost(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    for _ in range(2):  # after polling, and without it
        with pytest.raises(TimedOutError):
            here.receive()
    there.close()
    with pytest.raises(PeerLostError):
        here.receive()


@pytest.mark.usefixtures("clock")
def test_frame_that_is_there_is_found_by_polling(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    there.send(messages.DONE)
    receive, flags = tapped(here).receive, []

    def watched(size: int, how: int = 0) -> bytes:
        flags.append(how)
        return receive(size, how)

    tapped(here).receive = watched
    assert here.receive() == bytes([messages.DONE])
    assert flags == [socket.MSG_DONTWAIT]


@pytest.mark.usefixtures("clock")
def test_polling_in_vain_ends(ends: tuple[Channel, Channel]) -> None:
    """A connection whose frames come late sleeps, except for one wait in 256."""
    waiting = Waiting(ends[0])
    for _ in range(2_000):
        ends[0].receive()
    assert waiting.waits == 2_000
    between = [2, 3, 5, 9, 17, 33, 65, 129, *[257] * 6]
    assert sorted(set(waiting.looks)) == list(accumulate(between, initial=0))


@pytest.mark.usefixtures("clock")
def test_one_thread_polls_at_a_time(ends: tuple[Channel, Channel]) -> None:
    """A process with many connections must not burn a core, or pass the interpreter's lock round, for each of them."""
    waiting = Waiting(ends[0])
    channel.polled_until[0] = float("inf")
    ends[0].receive()
    assert not waiting.looks
    channel.polled_until[0] = 0.0
    ends[0].receive()
    assert waiting.looks


def test_polling_stops_on_a_busy_core(ends: tuple[Channel, Channel], clock: Clock) -> None:
    """A polling thread yields its core, and gets it back milliseconds later; a sleeping one is woken at once."""
    waiting = Waiting(ends[0])

    def look(size: int, flags: int = 0) -> bytes:
        if flags:
            clock.now += 0.003
        return waiting.receive(size, flags)

    tapped(ends[0]).receive = look
    for _ in range(300):
        ends[0].receive()
    assert waiting.looks == [0, 257]
