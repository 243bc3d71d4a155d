"""Markers: what the owner writes along with a client's commit, so that a lost answer can be looked up.

Each connection of a client has one marker, the number of its newest commit; a client has one commit under way on a
connection.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable

from structable.backends.leveldb.native.database import FIRST_KEY
from structable.backends.ordered.engine import WriteSet

from .store import LocalStore

__all__ = ["drop_markers", "marker_key", "marker_value", "sweep_markers"]

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


def drop_markers(store: LocalStore, client: bytes, connections: Iterable[int]) -> None:
    """Remove the markers of a client that has ended and will not ask."""
    found: dict[bytes, bytes | None] = {marker_key(client, connection): None for connection in connections}
    if found:
        store.commit(None, WriteSet(derived=found), sync=store.syncs)


def sweep_markers(store: LocalStore) -> None:
    """Remove markers that are a day old: of clients that were killed, for others ask within their time-out."""
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
