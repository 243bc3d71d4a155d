"""`ServedConnection`: the owner's side of one connection of a client."""

from __future__ import annotations

import contextlib
import logging
import struct
import threading
import time
from collections.abc import Callable, Generator, Iterator
from itertools import islice

from structable.backends.leveldb.protocol import messages
from structable.backends.leveldb.protocol.channel import Channel, PeerLostError, TimedOutError
from structable.backends.leveldb.protocol.error_codec import pack_error
from structable.backends.ordered.engine import EngineSnapshot, Pair
from structable.backends.ordered.scan.lookup import values_of
from structable.spi import StructableError, TransactionConflictError, UnsupportedOperationError

from .commit_markers import drop_markers, has_committed, marker_key, marker_value
from .history import SnapshotLostError
from .service import ClientSession, Service
from .snapshot import LocalSnapshot

_BODY = 1 + messages.REFERENCE.size
_READS = frozenset({messages.READ, messages.READ_MANY, messages.SCAN})
_FIRST_CHUNK = 32
_CHUNK = 1024
_CHUNK_BYTES = 1 << 17
_LOOK_UP_SECONDS = 30.0
_log = logging.getLogger("structable.leveldb")


class _EpochChangedError(Exception):
    """The client has not seen the newest schema change."""


class ServedConnection:
    """Answers the requests of one connection, in a thread of its own."""

    def __init__(self, service: Service, channel: Channel) -> None:
        self._service = service
        self._store = service.store
        self._channel = channel
        self._session = ClientSession(b"")
        self._number = 0
        self._marker_key = b""
        self._scan: Iterator[Pair] | None = None
        self._unsent = -1
        """The number of pairs of the scan that are yet to be sent; negative for all."""
        self._sending = threading.Lock()
        self._closing = threading.Lock()
        self._working = False
        self._delegated = False

    def serve(self) -> None:
        try:
            self._greet()
            try:
                while True:
                    frame = self._channel.receive()
                    if not self._service.stopping:
                        self._answer(frame)
                    elif frame[0] not in messages.UNANSWERED:
                        self._channel.send(messages.ENDING)
            finally:
                self._end_scan()
                self._service.detach(self._session, self._number, self)
        except (PeerLostError, TimedOutError, OSError):
            pass  # the client is gone; it looks the commit up on another connection
        except (ValueError, IndexError, struct.error) as error:
            _log.warning("closed a connection that does not speak the protocol: %s", error)
        finally:
            with self._closing:
                self._channel.close()

    def stop(self) -> None:
        """End the thread after its current request; requests that have arrived are turned away."""
        # Under the lock: after a close, the descriptor could belong to another connection.
        with self._closing, contextlib.suppress(OSError):
            self._channel.stop_receiving()

    def turn_away(self) -> None:
        """Tell a new client that the owner is closing."""
        try:
            self._channel.send(messages.ENDING)
        except (PeerLostError, TimedOutError):
            pass  # the client finds the connection closed
        finally:
            self._channel.close()

    def abandon(self) -> None:
        self._channel.close()

    def pulse(self) -> None:
        """Tell a client that waits for a long request that the owner is at work on it."""
        if self._working and (self._delegated or self._store.busy_with_bulk):
            with self._sending, self._closing:
                if self._working:
                    with contextlib.suppress(PeerLostError, TimedOutError):  # the thread finds out
                        self._channel.send(messages.KEEP_ALIVE)

    def _greet(self) -> None:
        frame = self._channel.receive()
        if frame[0] != messages.HELLO:
            raise ValueError("no greeting")
        version, client, number = messages.HELLO_BODY.unpack_from(frame, 1)
        if version != messages.VERSION:
            error = UnsupportedOperationError(
                f"the process that owns the database speaks version {messages.VERSION} of the protocol, not {version}; "
                "use one version of structable on a database"
            )
            self._channel.send(messages.ERROR, pack_error(error))
            raise ValueError(str(error))
        if self._service.stopping:
            self._channel.send(messages.ENDING)
            raise PeerLostError("the owner is closing")
        self._number = number
        self._session = self._service.attach(client, number, self)
        self._session.numbers.add(number)
        self._marker_key = marker_key(client, number)
        self._channel.send(messages.DONE)

    def _answer(self, frame: bytes) -> None:
        message = frame[0]
        send = self._channel.send
        self._session.pace.count_request()
        try:
            if message == messages.GET:
                self._session.pace.end_transaction()
                if int.from_bytes(frame[1:9], "little") != self._store.epoch:
                    raise _EpochChangedError
                value = self._store.get(frame[9:])
                if value is None:
                    send(messages.ABSENT)
                else:
                    send(messages.VALUE, value)
            elif message == messages.READ:
                value = self.snapshot(frame).get(frame[_BODY:])
                if value is None:
                    send(messages.ABSENT)
                else:
                    send(messages.VALUE, value)
            elif message == messages.COMMIT:
                self._working = True
                try:
                    self.commit(frame)
                finally:
                    self._working = False
                send(messages.DONE)
            elif message == messages.RELEASE:
                self._session.pace.end_transaction()
                self._release(int.from_bytes(frame[1:5], "little"))
            elif message == messages.READ_MANY:
                keys, _ = messages.unpack_present(frame, _BODY)
                send(messages.VALUES, messages.pack_texts(_values_of(self.snapshot(frame), keys)))
            elif message == messages.SCAN:
                self._begin_scan(frame)
            elif message == messages.SCAN_MORE:
                self._send_pairs(_CHUNK)
            elif message == messages.SCAN_END:
                self._end_scan()
            elif message == messages.DELEGATE:
                self._work(self._delegate, frame)
            elif message == messages.LOOK_UP:
                self._work(self._look_up, frame)
            elif message == messages.CHECKPOINT:
                self._work(self._checkpoint, frame)
            elif message == messages.COMPACT:
                self._work(self._compact, frame)
            elif message == messages.GOODBYE:
                self._goodbye()
            else:
                raise PeerLostError(f"unknown message {message}")
        except _EpochChangedError:
            send(messages.EPOCH)
        except SnapshotLostError as error:
            send(messages.LOST, str(error).encode())
        except (PeerLostError, TimedOutError):
            self._forget_unanswered(frame)
            raise
        except (struct.error, IndexError):
            raise
        except Exception as error:
            send(messages.ERROR, pack_error(error))

    def _forget_unanswered(self, frame: bytes) -> None:
        """Free a snapshot that was taken by a request whose answer did not arrive.

        The interrupted client frees the snapshot by another connection, perhaps before it is taken.
        """
        if frame[0] in _READS:
            number, flags, _, _ = messages.REFERENCE.unpack_from(frame, 1)
            if flags & messages.BEGIN:
                self._release(number)

    def _release(self, number: int) -> None:
        snapshot = self._session.snapshots.pop(number, None)
        if snapshot is not None:
            snapshot.close()

    def _work(self, request: Callable[[bytes], tuple[int, bytes]], frame: bytes) -> None:
        """Run a request that may take long, and answer it; until then `pulse` keeps the client waiting.

        A commit needs no lock: its answer is too short to be interleaved with a frame of `pulse`.
        """
        self._working = True
        try:
            message, body = request(frame)
        except (PeerLostError, TimedOutError, struct.error, IndexError):
            raise
        except _EpochChangedError:
            message, body = messages.EPOCH, b""
        except Exception as error:
            message, body = messages.ERROR, pack_error(error)
        finally:
            with self._sending:
                self._working = self._delegated = False
        self._channel.send(message, body)

    def snapshot(self, frame: bytes) -> LocalSnapshot:
        number, flags, epoch, base = messages.REFERENCE.unpack_from(frame, 1)
        if not flags & messages.BEGIN:
            try:
                return self._session.snapshots[number]
            except KeyError:
                raise TransactionConflictError("the transaction's snapshot is gone") from None
        snapshot = (
            self._begin_pinned(base) if flags & messages.PINNED else self._store.begin(bool(flags & messages.READ_ONLY))
        )
        if snapshot.epoch != epoch:
            snapshot.close()
            raise _EpochChangedError
        self._session.snapshots[number] = snapshot
        return snapshot

    def _begin_pinned(self, base: int) -> LocalSnapshot:
        self._working = True  # like a commit, this waits for a bulk commit
        try:
            return self._store.begin_pinned(base)
        finally:
            with self._sending:
                self._working = False

    def commit(self, frame: bytes) -> None:
        number, flags, epoch, base, sequence = messages.COMMIT_HEAD.unpack_from(frame, 1)
        changes = messages.unpack_changes(frame, 1 + messages.COMMIT_HEAD.size)
        store = self._store
        snapshot: LocalSnapshot | None = None
        if flags & (messages.BEGIN | messages.READ_ONLY) == messages.BEGIN:
            # The transaction read nothing and is about to end: its snapshot is never read.
            snapshot = store.begin_unread(base)
            if snapshot.epoch != epoch:
                raise _EpochChangedError
        elif not flags & messages.UNCHECKED:
            snapshot = self.snapshot(frame)
            if self._session.snapshots.pop(number, None) is None:
                raise TransactionConflictError("the transaction's snapshot was freed")
        try:
            store.commit(snapshot, changes, bool(flags & messages.SYNC), {self._marker_key: marker_value(sequence)})
        finally:
            self._session.pace.end_transaction()
            if snapshot is not None:
                snapshot.close()

    def _begin_scan(self, frame: bytes) -> None:
        _, flags, _, _ = messages.REFERENCE.unpack_from(frame, 1)
        limit, limit_each = messages.LIMITS.unpack_from(frame, _BODY)
        bounds, _ = messages.unpack_present(frame, _BODY + messages.LIMITS.size)
        self._end_scan()
        intervals = list(zip(bounds[::2], bounds[1::2], strict=True))
        self._scan = self.snapshot(frame).scan_intervals(
            intervals, reverse=bool(flags & messages.REVERSE), limit_each=limit_each if limit_each >= 0 else None
        )
        limits = [most for most in (limit, limit_each * len(intervals)) if most >= 0]
        self._unsent = min(limits, default=-1)
        self._send_pairs(min(limits, default=_FIRST_CHUNK * len(intervals)))

    def _send_pairs(self, most: int) -> None:
        if self._scan is None:
            raise PeerLostError("no scan is open")
        keys: list[bytes] = []
        values: list[bytes] = []
        size = 0
        most = min(most, _CHUNK) if self._unsent < 0 else min(most, _CHUNK, self._unsent)
        for key, value in islice(self._scan, most):
            keys.append(key)
            values.append(value)
            size += len(value)
            if size >= _CHUNK_BYTES:
                most = len(keys)
                break
        self._unsent -= len(keys)
        if len(keys) < most or self._unsent == 0:
            self._end_scan()
            self._channel.send(messages.LAST_PAIRS, messages.pack_pairs(keys, values))
        else:
            self._channel.send(messages.PAIRS, messages.pack_pairs(keys, values))

    def _end_scan(self) -> None:
        scan, self._scan = self._scan, None
        if isinstance(scan, Generator):
            scan.close()

    def _delegate(self, frame: bytes) -> tuple[int, bytes]:
        self._delegated = True
        [procedure], end = messages.unpack_present(frame, 1)
        return messages.VALUE, self._service.run(procedure.decode(), frame[end:])

    def _look_up(self, frame: bytes) -> tuple[int, bytes]:
        client, number, sequence = messages.LOOK_UP_BODY.unpack_from(frame, 1)
        # The commit may still be under way on its old connection.
        deadline = time.monotonic() + _LOOK_UP_SECONDS
        while self._service.is_connected(client, number):
            if time.monotonic() > deadline:
                raise TimedOutError
            time.sleep(0.005)
        arrived = has_committed(self._store, client, number, sequence)
        return (messages.VALUE if arrived else messages.ABSENT), b""

    def _checkpoint(self, frame: bytes) -> tuple[int, bytes]:
        self._store.copy_to(self._service.folder.checkpoint(frame[1:].decode()))
        return messages.DONE, b""

    def _compact(self, frame: bytes) -> tuple[int, bytes]:
        self._delegated = True
        [compression, *keys], _ = messages.unpack_present(frame, 1)
        changed = self._store.compact(compression.decode() or None, keys)
        return (messages.VALUE if changed else messages.ABSENT), b""

    def _goodbye(self) -> None:
        with contextlib.suppress(StructableError):  # markers left behind are swept after a day
            drop_markers(self._store, self._session.client, self._session.numbers)
        self._session.said_goodbye = True
        self._channel.send(messages.DONE)


def _values_of(snapshot: EngineSnapshot, keys: list[bytes]) -> list[bytes | None]:
    return values_of(snapshot, keys) if sorted(keys) == keys else snapshot.get_many(keys)
