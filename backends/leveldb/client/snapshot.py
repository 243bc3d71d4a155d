"""`RemoteSnapshot`: a snapshot in the process that owns the database, as a client sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, Protocol
from weakref import ref

from structable.backends.leveldb.protocol import wire
from structable.backends.leveldb.protocol.wire import Channel, ConnectionLostError, TimedOutError
from structable.backends.leveldb.route import OWNER_ENDED
from structable.backends.ordered.engine import EngineSnapshot, Pair
from structable.spi.errors import StorageUnavailableError, TransactionClosedError, TransactionConflictError

__all__ = ["Connection", "HeldSnapshot", "Owner", "RemoteSnapshot"]

_REQUEST_BYTES = 1 << 16
_OPEN_REQUESTS = 2


class Connection:
    """A connection with its number, and the number of its newest commit; closed when it is collected."""

    __slots__ = ("__weakref__", "channel", "number", "sequence", "used")

    def __init__(self, channel: Channel, number: int) -> None:
        self.channel = channel
        self.number = number
        self.sequence = 0
        self.used = True
        """Since the pool has looked for idle ones."""

    def call(self, message: int, body: bytes) -> bytes:
        """Send a request and return the answer: the message byte and the body."""
        self.channel.send(message, body)
        return self.channel.receive()

    def __del__(self) -> None:
        self.channel.close()


class HeldSnapshot(ref["RemoteSnapshot"]):
    """What is left of a snapshot that the owner holds, when an interruption has lost it."""

    __slots__ = ("number",)
    number: int


class Owner(Protocol):
    """The owning process, as a client reaches it."""

    take: Callable[[], Connection]
    """Returns a connection that no other thread uses, to be given back or discarded."""
    give_back: Callable[[Connection], None]
    """Lets others use a connection; nothing may be under way on it."""
    discard: Callable[[Connection | None], None]
    """Closes a connection, if there is one."""
    release: Callable[[int], None]
    """Frees a snapshot; raises nothing, and waits for no lock."""

    lose: Callable[[HeldSnapshot], None]
    """Takes note of a snapshot that was collected unclosed; in C, so that no interruption ends there unseen."""

    def ask(self, message: int, body: bytes) -> bytes:
        """Return the answer to a request that may be repeated."""

    def refuse(self, frame: bytes) -> NoReturn:
        """Raise what an answer says that is not the one hoped for."""

    def silent(self) -> StorageUnavailableError:
        """Return the error for an owner that does not answer."""

    def find_next(self) -> None:
        """Let this process go on with the next owner, or as the owner."""


class RemoteSnapshot(EngineSnapshot):
    """A snapshot in the owning process; one that is lost is a conflict.

    The owner takes it with the first read, or not at all where nothing is read. It has its place in the history all the
    same, the commit that was the newest one when the transaction began:

    - Where the first operation is a read, the owner's snapshot is the transaction's, and conflicts count from it.
    - Where it is a write, `pin` is called, and conflicts count from the place noted. A snapshot that the owner takes
      for a later read comes too late, and serves for what nobody has changed since the place: that is as it was then.
      A read of anything else is a conflict.
    - Where nothing is read, conflicts count from the place noted.

    The owner knows the places of its newest commits; a place that it does not know is a conflict.

    Parameters
    ----------
    client : Owner
        The way to the owner.
    number : int
        Its number, among this client's.
    place : int
        The number of the newest commit when the transaction began.
    epoch : int
        The schema epoch that it must have.
    flags : int
        `wire.READ_ONLY` or 0.
    """

    __slots__ = ("_ended", "_flags", "_held", "client", "epoch", "number", "place")

    def __init__(self, client: Owner, number: int, place: int, epoch: int, flags: int) -> None:
        self.client = client
        self.number = number
        self.place = place
        self.epoch = epoch
        self._flags = flags | wire.BEGIN
        self._held: HeldSnapshot | None = None
        self._ended = False

    def commit_flags(self) -> int:
        """Return the flags that a commit needs, which frees the snapshot; `end` comes when it has answered."""
        self._require_open()
        return self._flags

    def end(self) -> None:
        """Take note that the owner has freed the snapshot."""
        self._ended = True
        self._held = None

    def pin(self) -> None:
        if self._flags & wire.BEGIN:
            self._flags |= wire.PINNED

    def _require_open(self) -> None:
        if self._ended:
            raise TransactionClosedError("the snapshot was closed")

    def _reference(self, flags: int = 0) -> bytes:
        self._require_open()
        if self._held is None:
            self._held = HeldSnapshot(self, self.client.lose)
            self._held.number = self.number
        return wire.REFERENCE.pack(self.number, self._flags | flags, self.epoch, self.place)

    def _begun(self) -> None:
        self._flags &= ~wire.BEGIN

    def _lost(self) -> TransactionConflictError:
        """Find the next owner, for whoever tries again, and return the error."""
        self.client.find_next()
        return TransactionConflictError(OWNER_ENDED)

    def get(self, key: bytes) -> bytes | None:
        client = self.client
        try:
            frame = client.ask(wire.READ, self._reference() + key)
        except ConnectionLostError:
            raise self._lost() from None
        message = frame[0]
        if message == wire.VALUE:
            self._begun()
            return frame[1:]
        if message == wire.ABSENT:
            self._begun()
            return None
        return client.refuse(frame)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if not keys:
            return []
        found: list[bytes | None] = []
        client = self.client
        connection: Connection | None = None
        try:
            connection = client.take()
            open_requests = 0
            for part in _parts(keys):
                connection.channel.send(wire.READ_MANY, self._reference() + wire.pack_texts(part))
                self._begun()
                open_requests += 1
                if open_requests == _OPEN_REQUESTS:
                    open_requests -= 1
                    found += self._values(connection)
            for _ in range(open_requests):
                found += self._values(connection)
        except TimedOutError:
            client.discard(connection)
            raise client.silent() from None
        except ConnectionLostError:
            client.discard(connection)
            raise self._lost() from None
        except BaseException:
            client.discard(connection)
            raise
        client.give_back(connection)
        return found

    def _values(self, connection: Connection) -> list[bytes | None]:
        frame = connection.channel.receive()
        if frame[0] != wire.VALUES:
            self.client.refuse(frame)
        return wire.unpack_texts(frame, 1)[0]

    def scan(self, begin: bytes, end: bytes, *, reverse: bool = False) -> Iterator[Pair]:
        # The first request is sent here and not with the first pair, for a snapshot that begins with it.
        if begin >= end:
            return _no_pairs()
        client = self.client
        connection: Connection | None = None
        try:
            connection = client.take()
            flags = wire.REVERSE if reverse else 0
            frame = connection.call(wire.SCAN, self._reference(flags) + wire.pack_texts([begin, end]))
        except TimedOutError:
            client.discard(connection)
            raise client.silent() from None
        except ConnectionLostError:
            client.discard(connection)
            raise self._lost() from None
        except BaseException:
            client.discard(connection)
            raise
        if frame[0] == wire.PAIRS:
            self._begun()
            pairs = self._more_pairs(connection, frame)
            next(pairs)  # a generator that was not begun would not give the connection back when it is dropped
            return pairs
        client.give_back(connection)
        if frame[0] != wire.LAST_PAIRS:
            client.refuse(frame)
        self._begun()
        return _pairs(frame)

    def _more_pairs(self, connection: Connection, frame: bytes) -> Iterator[Pair]:
        client, channel = self.client, connection.channel
        try:
            yield b"", b""
            # What came first is often enough. From then on the next pairs are on their way while these are used.
            yield from _pairs(frame)
            channel.send(wire.SCAN_MORE)
            frame = channel.receive()
            while frame[0] == wire.PAIRS:
                channel.send(wire.SCAN_MORE)
                try:
                    yield from _pairs(frame)
                except GeneratorExit:
                    self._leave(connection, asked=True)
                    return
                frame = channel.receive()
        except GeneratorExit:
            self._leave(connection)
            return
        except TimedOutError:
            client.discard(connection)
            raise client.silent() from None
        except ConnectionLostError:
            client.discard(connection)
            raise self._lost() from None
        except BaseException:
            client.discard(connection)
            raise
        client.give_back(connection)
        if frame[0] != wire.LAST_PAIRS:
            client.refuse(frame)
        yield from _pairs(frame)

    def _leave(self, connection: Connection, *, asked: bool = False) -> None:
        try:
            if asked:
                connection.channel.receive()
            connection.channel.send(wire.SCAN_END)
        except (TimedOutError, ConnectionLostError):
            self.client.discard(connection)  # closing a scan raises nothing
        else:
            self.client.give_back(connection)

    def close(self) -> None:
        if self._ended:
            return
        if self._held is not None:  # also without an answer: who was waiting for it may have been interrupted
            self.client.release(self.number)
        self.end()


def _no_pairs() -> Iterator[Pair]:
    yield from ()


def _pairs(frame: bytes) -> Iterator[Pair]:
    pairs, _ = wire.unpack_map(frame, 1)
    for key, value in pairs.items():
        if value is not None:
            yield key, value


def _parts(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    start = size = 0
    for place, key in enumerate(keys):
        size += len(key) + 4
        if size > _REQUEST_BYTES:
            yield keys[start : place + 1]
            start, size = place + 1, 0
    if start < len(keys):
        yield keys[start:]
