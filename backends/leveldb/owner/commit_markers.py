"""Commit markers: written with each commit of a client, so that the client can look up a commit whose answer was lost.

A marker holds the number of the newest commit on one connection of a client, which has one commit at a time under way.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable

from structable.backends.leveldb.native.database import FIRST_KEY
from structable.backends.ordered.engine import WriteSet

from .store import LocalStore

_PREFIX = FIRST_KEY + b"\x03"
_END = FIRST_KEY + b"\x04"
_VALUE = struct.Struct("<QQ")
_KEPT = 24 * 3600.0


def marker_key(client: bytes, connection: int) -> bytes:
    """Return the key of a connection's marker; a client's id has 16 bytes."""
    return _PREFIX + client + connection.to_bytes(4, "big")


def marker_value(sequence: int) -> bytes:
    """Return the marker of a connection's newest commit, with the time for `sweep_markers`."""
    return _VALUE.pack(sequence, int(time.time()))


def has_committed(store: LocalStore, client: bytes, connection: int, sequence: int) -> bool:
    """Return whether a commit of a client was applied, or a later one on its connection."""
    marker = store.get(marker_key(client, connection))
    return marker is not None and _VALUE.unpack_from(marker)[0] >= sequence


def drop_markers(store: LocalStore, client: bytes, connections: Iterable[int]) -> None:
    """Remove the markers of a client that has closed and will not look them up."""
    found: dict[bytes, bytes | None] = {marker_key(client, connection): None for connection in connections}
    if found:
        store.commit(None, WriteSet(derived=found), sync=store.syncs)


def sweep_markers(store: LocalStore) -> None:
    """Remove markers older than a day, left by killed clients; others look them up within their time-out."""
    oldest = time.time() - _KEPT
    snapshot = store.begin(True)
    try:
        stale: dict[bytes, bytes | None] = {
            key: None for key, value in snapshot.scan(_PREFIX, _END) if int.from_bytes(value[8:16], "little") < oldest
        }
    finally:
        snapshot.close()
    if stale:
        store.commit(None, WriteSet(derived=stale), sync=store.syncs)
