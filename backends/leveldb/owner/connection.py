"""The owner's side of one connection, and of one client with all its connections."""

from __future__ import annotations

import contextlib
import struct
import threading
import time
from collections.abc import Iterator
from typing import Protocol

from structable.backends.leveldb.folder import Folder
from structable.backends.leveldb.native.checkpoint import copy_checkpoint
from structable.backends.leveldb.native.database import LocalSnapshot
from structable.backends.leveldb.protocol import wire
from structable.backends.leveldb.protocol.error_codec import pack_error
from structable.backends.leveldb.protocol.wire import Channel, ConnectionLostError, TimedOutError
from structable.backends.ordered.engine import Pair
from structable.spi.errors import StructableError, TransactionConflictError, UnsupportedOperationError

from .commit_markers import drop_markers, marker_key, marker_value
from .commit_numbers import PlaceLostError
from .store import LocalStore

__all__ = ["Owner", "ServedConnection", "Session"]

_BODY = 1 + wire.REFERENCE.size
_READS = frozenset({wire.READ, wire.READ_MANY, wire.SCAN})
_FIRST_CHUNK = 32
_CHUNK = 1024
_CHUNK_BYTES = 1 << 17
_LOOK_UP_SECONDS = 30.0


class Session:
    """A client process: its snapshots, which all its connections share.

    Parameters
    ----------
    client : bytes
        Its id.
    """

    def __init__(self, client: bytes) -> None:
        self.client = client
        self.snapshots: dict[int, LocalSnapshot] = {}
        self.connections: dict[int, ServedConnection] = {}
        self.numbers: set[int] = set()
        """All connections that it has had."""

    def end(self) -> None:
        """Free its snapshots."""
        while self.snapshots:
            self.snapshots.popitem()[1].close()


class Owner(Protocol):
    """What a connection needs of the server."""

    folder: Folder
    store: LocalStore
    stopping: bool

    def attach(self, client: bytes, number: int, connection: ServedConnection) -> Session:
        """Return the session of a client."""

    def detach(self, session: Session, number: int, connection: ServedConnection) -> None:
        """Forget a connection, and the session with its last one."""

    def is_connected(self, client: bytes, number: int) -> bool:
        """Tell whether a connection of a client is still being served."""

    def run(self, procedure: str, argument: bytes) -> bytes:
        """Run a procedure of the layer above."""


class _EpochChangedError(Exception):
    """The client does not know of the newest schema change."""


class ServedConnection:
    """Answers the requests that come by one connection, in a thread of its own.

    Parameters
    ----------
    owner : Owner
        The server.
    channel : Channel
        The connection.
    """

    def __init__(self, owner: Owner, channel: Channel) -> None:
        self._owner = owner
        self._store = owner.store
        self._channel = channel
        self._session = Session(b"")
        self._number = 0
        self._marker_key = b""
        self._scan: Iterator[Pair] | None = None
        self._sending = threading.Lock()
        self._closing = threading.Lock()
        self._working = False
        self._delegated = False

    def serve(self) -> None:
        """Answer until the client or the owner ends."""
        try:
            self._greet()
            try:
                while True:
                    frame = self._channel.receive()
                    if self._owner.stopping:
                        self._turn_away(frame)
                    else:
                        self._answer(frame)
            finally:
                self._end_scan()
                self._owner.detach(self._session, self._number, self)
        except (ConnectionLostError, TimedOutError, OSError):
            pass  # the client is gone, and what it wants to know it asks elsewhere
        except (ValueError, IndexError, struct.error):
            pass  # it does not speak this protocol: the connection ends
        finally:
            self._end()

    def _end(self) -> None:
        with self._closing:
            self._channel.close()

    def stop(self) -> None:
        """Let the thread end after the request that it is at; requests that have arrived are turned away."""
        # The lock: a descriptor that is closed meanwhile may be another connection's by the time of the call.
        with self._closing, contextlib.suppress(OSError):
            self._channel.stop_receiving()

    def turn_away(self) -> None:
        """Answer a new connection that the owner is ending."""
        try:
            self._channel.send(wire.ENDING)
        except (ConnectionLostError, TimedOutError):
            pass  # its client sees that it is closed
        finally:
            self._channel.close()

    def _turn_away(self, frame: bytes) -> None:
        if frame[0] not in wire.UNANSWERED:
            self._channel.send(wire.ENDING)

    def abandon(self) -> None:
        """Close the copy of the connection in a forked process."""
        self._channel.close()

    def pulse(self) -> None:
        """Tell a client that waits for something long that it is being worked at."""
        if self._working and (self._delegated or self._store.busy_with_bulk):
            with self._sending, self._closing:
                if self._working:
                    with contextlib.suppress(ConnectionLostError, TimedOutError):  # the thread will notice
                        self._channel.send(wire.KEEP_ALIVE)

    def _greet(self) -> None:
        frame = self._channel.receive()
        if frame[0] != wire.HELLO:
            raise ValueError("no greeting")
        version, client, number = wire.HELLO_BODY.unpack_from(frame, 1)
        if version != wire.VERSION:
            error = UnsupportedOperationError(
                f"the process that owns the database speaks version {wire.VERSION} of the protocol, not {version}; "
                "use one version of structable on a database"
            )
            self._channel.send(wire.ERROR, pack_error(error))
            raise ValueError(str(error))
        if self._owner.stopping:
            self._channel.send(wire.ENDING)
            raise ConnectionLostError("the owner is ending")
        self._number = number
        self._session = self._owner.attach(client, number, self)
        self._session.numbers.add(number)
        self._marker_key = marker_key(client, number)
        self._channel.send(wire.DONE)

    def _answer(self, frame: bytes) -> None:
        message = frame[0]
        send = self._channel.send
        try:
            if message == wire.GET:
                self._check_epoch(int.from_bytes(frame[1:9], "little"))
                value = self._store.get(frame[9:])
                if value is None:
                    send(wire.ABSENT)
                else:
                    send(wire.VALUE, value)
            elif message == wire.READ:
                value = self._snapshot(frame).get(frame[_BODY:])
                if value is None:
                    send(wire.ABSENT)
                else:
                    send(wire.VALUE, value)
            elif message == wire.COMMIT:
                self._working = True
                try:
                    self._commit(frame)
                finally:
                    self._working = False
                send(wire.DONE)
            elif message == wire.RELEASE:
                self._release(int.from_bytes(frame[1:5], "little"))
            elif message == wire.READ_MANY:
                keys, _ = wire.unpack_present(frame, _BODY)
                send(wire.VALUES, wire.pack_texts(self._snapshot(frame).get_many(keys)))
            elif message == wire.SCAN:
                self._begin_scan(frame)
            elif message == wire.SCAN_MORE:
                self._send_pairs(_CHUNK)
            elif message == wire.SCAN_END:
                self._end_scan()
            elif message == wire.DELEGATE:
                self._work(self._delegate, frame)
            elif message == wire.LOOK_UP:
                self._work(self._look_up, frame)
            elif message == wire.CHECKPOINT:
                self._work(self._checkpoint, frame)
            elif message == wire.GOODBYE:
                self._goodbye()
            else:
                raise ConnectionLostError(f"unknown message {message}")
        except _EpochChangedError:
            send(wire.EPOCH)
        except PlaceLostError as error:
            send(wire.LOST, str(error).encode())
        except (ConnectionLostError, TimedOutError):
            self._forget_unanswered(frame)
            raise
        except (struct.error, IndexError):
            raise
        except Exception as error:
            send(wire.ERROR, pack_error(error))

    def _forget_unanswered(self, frame: bytes) -> None:
        """Free a snapshot that was taken by a request whose answer did not arrive.

        Its client was interrupted: it frees the snapshot by another connection, perhaps before it was taken.
        """
        if frame[0] in _READS:
            number, flags, _, _ = wire.REFERENCE.unpack_from(frame, 1)
            if flags & wire.BEGIN:
                self._release(number)

    def _release(self, number: int) -> None:
        snapshot = self._session.snapshots.pop(number, None)
        if snapshot is not None:
            snapshot.close()

    def _work(self, request: _Request, frame: bytes) -> None:
        """Run a request that may take long, and answer it; the client hears of it meanwhile.

        A commit does without the lock: its answer is too short for a frame of `pulse` to get into it.
        """
        self._working = True
        try:
            message, body = request(frame)
        except (ConnectionLostError, TimedOutError, struct.error, IndexError):
            raise
        except _EpochChangedError:
            message, body = wire.EPOCH, b""
        except Exception as error:
            message, body = wire.ERROR, pack_error(error)
        finally:
            with self._sending:
                self._working = self._delegated = False
        self._channel.send(message, body)

    def _check_epoch(self, epoch: int) -> None:
        if epoch != self._store.epoch:
            raise _EpochChangedError

    def _snapshot(self, frame: bytes) -> LocalSnapshot:
        number, flags, epoch, place = wire.REFERENCE.unpack_from(frame, 1)
        if not flags & wire.BEGIN:
            try:
                return self._session.snapshots[number]
            except KeyError:
                raise TransactionConflictError("the transaction's snapshot is gone") from None
        snapshot = self._begin_late(place) if flags & wire.PINNED else self._store.begin(bool(flags & wire.READ_ONLY))
        if snapshot.epoch != epoch:
            snapshot.close()
            raise _EpochChangedError
        self._session.snapshots[number] = snapshot
        return snapshot

    def _begin_late(self, place: int) -> LocalSnapshot:
        self._working = True  # like a commit, it waits for a bulk commit
        try:
            return self._store.begin_late(place)
        finally:
            with self._sending:
                self._working = False

    def _commit(self, frame: bytes) -> None:
        number, flags, epoch, place, sequence = wire.COMMIT_HEAD.unpack_from(frame, 1)
        changes = wire.unpack_changes(frame, 1 + wire.COMMIT_HEAD.size)
        store = self._store
        snapshot: LocalSnapshot | None = None
        if flags & (wire.BEGIN | wire.READ_ONLY) == wire.BEGIN:
            # Nothing was read: nobody will look at the state.
            snapshot = store.begin_unread(place)
            if snapshot.epoch != epoch:
                raise _EpochChangedError
        elif not flags & wire.UNCHECKED:
            snapshot = self._snapshot(frame)
            if self._session.snapshots.pop(number, None) is None:
                raise TransactionConflictError("the transaction's snapshot was freed")
        try:
            store.commit(snapshot, changes, bool(flags & wire.SYNC), {self._marker_key: marker_value(sequence)})
        finally:
            if snapshot is not None:
                snapshot.close()

    def _begin_scan(self, frame: bytes) -> None:
        _, flags, _, _ = wire.REFERENCE.unpack_from(frame, 1)
        bounds, _ = wire.unpack_present(frame, _BODY)
        self._end_scan()
        begin, end = bounds
        self._scan = self._snapshot(frame).scan(begin, end, reverse=bool(flags & wire.REVERSE))
        self._send_pairs(_FIRST_CHUNK)

    def _send_pairs(self, most: int) -> None:
        if self._scan is None:
            raise ConnectionLostError("no scan is open")
        keys: list[bytes] = []
        values: list[bytes] = []
        size = 0
        for key, value in self._scan:
            keys.append(key)
            values.append(value)
            size += len(value)
            if len(keys) >= most or size >= _CHUNK_BYTES:
                self._channel.send(wire.PAIRS, wire.pack_pairs(keys, values))
                return
        self._end_scan()
        self._channel.send(wire.LAST_PAIRS, wire.pack_pairs(keys, values))

    def _end_scan(self) -> None:
        scan, self._scan = self._scan, None
        if scan is not None:
            scan.close()  # type: ignore[attr-defined]  # a generator

    def _delegate(self, frame: bytes) -> tuple[int, bytes]:
        self._delegated = True
        [procedure], place = wire.unpack_present(frame, 1)
        return wire.VALUE, self._owner.run(procedure.decode(), frame[place:])

    def _look_up(self, frame: bytes) -> tuple[int, bytes]:
        client, number, sequence = wire.LOOK_UP_BODY.unpack_from(frame, 1)
        # The commit that is asked for may still be under way on its old connection.
        deadline = time.monotonic() + _LOOK_UP_SECONDS
        while self._owner.is_connected(client, number):
            if time.monotonic() > deadline:
                raise TimedOutError
            time.sleep(0.005)
        found = self._store.get(marker_key(client, number))
        arrived = found is not None and int.from_bytes(found[:8], "little") >= sequence
        return (wire.VALUE if arrived else wire.ABSENT), b""

    def _checkpoint(self, frame: bytes) -> tuple[int, bytes]:
        target = self._owner.folder.checkpoint(frame[1:].decode())
        with self._store.commits_held():
            copy_checkpoint(self._store.path, target)
        return wire.DONE, b""

    def _goodbye(self) -> None:
        with contextlib.suppress(StructableError):  # what stays is swept a day later
            drop_markers(self._store, self._session.client, self._session.numbers)
        self._channel.send(wire.DONE)


class _Request(Protocol):
    def __call__(self, frame: bytes, /) -> tuple[int, bytes]: ...
