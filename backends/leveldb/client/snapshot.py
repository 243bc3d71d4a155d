"""`RemoteSnapshot`: a snapshot in the process that owns the database, as a client sees it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from structable.backends.leveldb.protocol import messages
from structable.backends.leveldb.protocol.channel import PeerLostError, TimedOutError
from structable.backends.leveldb.route import OWNER_ENDED, VERSION_KEY, unpack_stamp
from structable.backends.ordered.engine import EngineSnapshot, Pair
from structable.spi import StructableError, TransactionClosedError, TransactionConflictError

from .pool import OwnerConnection, SnapshotRef
from .requests import OwnerRequests

_REQUEST_BYTES = 1 << 16
_OPEN_REQUESTS = 2
_MOST_PAIRS = 1 << 40


class RemoteSnapshot(EngineSnapshot):
    """A snapshot in the owning process; losing it is a conflict.

    The owner takes it with the first read, or never if nothing is read. `base` is the number of the newest commit when
    the transaction began:

    - If the first operation is a read, the owner's snapshot is the transaction's, and conflicts count from it.
    - If it is a write, `pin` is called, and conflicts count from `base`. A later read makes the owner take a snapshot
      pinned to `base`: reading anything that has changed since then is a conflict.
    - If nothing is read, conflicts count from `base`.

    The owner knows the numbers of its newest commits only; any other `base` is a conflict. `number` is the client's
    number of the snapshot, `epoch` the schema epoch that the snapshot must have.
    """

    scan_from = None

    __slots__ = ("_ended", "_held", "base", "epoch", "flags", "number", "requests")

    def __init__(self, requests: OwnerRequests, number: int, base: int, epoch: int, flags: int) -> None:
        self.requests = requests
        self.number = number
        self.base = base
        self.epoch = epoch
        self.flags = flags | messages.BEGIN
        self._held: SnapshotRef | None = None
        self._ended = False

    def commit_flags(self) -> int:
        """Return the flags of a commit, which frees the snapshot; call `end` after the answer."""
        self._require_open()
        return self.flags

    def end(self) -> None:
        """Record that the owner has freed the snapshot."""
        self._ended = True
        self._held = None

    def pin(self) -> None:
        if self.flags & messages.BEGIN:
            self.flags |= messages.PINNED

    def _require_open(self) -> None:
        if self._ended:
            raise TransactionClosedError("the snapshot was closed")

    def _reference(self, flags: int = 0) -> bytes:
        self._require_open()
        if self._held is None:
            self._held = SnapshotRef(self, self.requests.pool.lost.append)
            self._held.number = self.number
        return messages.REFERENCE.pack(self.number, self.flags | flags, self.epoch, self.base)

    def _begun(self) -> None:
        self.flags &= ~messages.BEGIN

    def _failed(self, connection: OwnerConnection | None, error: Exception) -> StructableError:
        """Discard the connection, and return the error; if the owner has ended, find the next one for the retry."""
        self.requests.pool.discard(connection)
        if isinstance(error, TimedOutError):
            return self.requests.silent()
        self.requests.find_next_owner()
        return TransactionConflictError(OWNER_ENDED)

    def get(self, key: bytes) -> bytes | None:
        requests = self.requests
        try:
            frame = requests.ask(messages.READ, self._reference() + key)
        except PeerLostError as error:
            raise self._failed(None, error) from None
        message = frame[0]
        if message == messages.VALUE:
            self._begun()
            return frame[1:]
        if message == messages.ABSENT:
            self._begun()
            return None
        return requests.refuse(frame)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if not keys:
            return []
        found: list[bytes | None] = []
        pool = self.requests.pool
        connection: OwnerConnection | None = None
        try:
            connection = pool.take()
            open_requests = 0
            for part in _parts(keys):
                connection.channel.send(messages.READ_MANY, self._reference() + messages.pack_texts(part))
                self._begun()
                open_requests += 1
                if open_requests == _OPEN_REQUESTS:
                    open_requests -= 1
                    found += self._values(connection.receive())
            # The others are answered together.
            found += self._values(connection.receive())
            for _ in range(open_requests - 1):
                found += self._values(connection.channel.receive())
        except (TimedOutError, PeerLostError) as error:
            raise self._failed(connection, error) from None
        except BaseException:
            pool.discard(connection)
            raise
        pool.give_back(connection)
        return found

    def _values(self, frame: bytes) -> list[bytes | None]:
        if frame[0] != messages.VALUES:
            self.requests.refuse(frame)
        return messages.unpack_texts(frame, 1)[0]

    def scan(self, begin: bytes, end: bytes, *, reverse: bool = False) -> Iterator[Pair]:
        return self.scan_intervals([(begin, end)], reverse=reverse)

    def scan_intervals(
        self,
        intervals: Sequence[tuple[bytes, bytes]],
        *,
        reverse: bool = False,
        limit: int | None = None,
        limit_each: int | None = None,
    ) -> Iterator[Pair]:
        # The first request is sent here, not with the first pair: the snapshot may begin with it.
        bounds = [bound for interval in intervals if interval[0] < interval[1] for bound in interval]
        if not bounds:
            return _no_pairs()
        limits = messages.LIMITS.pack(*(-1 if most is None else min(most, _MOST_PAIRS) for most in (limit, limit_each)))
        requests = self.requests
        pool = requests.pool
        connection: OwnerConnection | None = None
        try:
            connection = pool.take()
            flags = messages.REVERSE if reverse else 0
            frame = connection.call(messages.SCAN, self._reference(flags) + limits + messages.pack_texts(bounds))
        except (TimedOutError, PeerLostError) as error:
            raise self._failed(connection, error) from None
        except BaseException:
            pool.discard(connection)
            raise
        if frame[0] == messages.PAIRS:
            self._begun()
            pairs = self._more_pairs(connection, frame)
            next(pairs)  # a generator never advanced would not give the connection back when dropped
            return pairs
        pool.give_back(connection)
        if frame[0] != messages.LAST_PAIRS:
            requests.refuse(frame)
        self._begun()
        return _pairs(frame)

    def _more_pairs(self, connection: OwnerConnection, frame: bytes) -> Iterator[Pair]:
        requests, channel = self.requests, connection.channel
        pool = requests.pool
        try:
            yield b"", b""
            # The first pairs are often enough. From here on the next ones are requested while these are used.
            yield from _pairs(frame)
            channel.send(messages.SCAN_MORE)
            frame = connection.receive()
            while frame[0] == messages.PAIRS:
                channel.send(messages.SCAN_MORE)
                try:
                    yield from _pairs(frame)
                except GeneratorExit:
                    self._leave(connection, asked=True)
                    return
                frame = connection.receive()
        except GeneratorExit:
            self._leave(connection)
            return
        except (TimedOutError, PeerLostError) as error:
            raise self._failed(connection, error) from None
        except BaseException:
            pool.discard(connection)
            raise
        pool.give_back(connection)
        if frame[0] != messages.LAST_PAIRS:
            requests.refuse(frame)
        yield from _pairs(frame)

    def _leave(self, connection: OwnerConnection, *, asked: bool = False) -> None:
        try:
            if asked:
                connection.receive()
            connection.channel.send(messages.SCAN_END)
        except (TimedOutError, PeerLostError):
            self.requests.pool.discard(connection)  # closing a scan raises nothing
        else:
            self.requests.pool.give_back(connection)

    def settled_version(self, feed: bytes) -> int:
        return unpack_stamp(self.get(VERSION_KEY))[0]

    def close(self) -> None:
        if self._ended:
            return
        if self._held is not None:  # even if no answer arrived: the wait for it may have been interrupted
            self.requests.pool.release(self.number)
        self.end()


def _no_pairs() -> Iterator[Pair]:
    yield from ()


def _pairs(frame: bytes) -> Iterator[Pair]:
    pairs, _ = messages.unpack_map(frame, 1)
    for key, value in pairs.items():
        if value is not None:
            yield key, value


def _parts(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    start = size = 0
    for index, key in enumerate(keys):
        size += len(key) + 4
        if size > _REQUEST_BYTES:
            yield keys[start : index + 1]
            start, size = index + 1, 0
    if start < len(keys):
        yield keys[start:]
