"""The version and the time of the newest commit to change feeds, under a key of their own."""

from __future__ import annotations

import struct

__all__ = ["VERSION_KEY", "pack_stamp", "unpack_stamp"]

VERSION_KEY = bytes(5) + b"\x04version"
"""Written by each commit to a feed, among the engine's own records."""

_STAMP = struct.Struct(">QQ")


def pack_stamp(version: int, time: int) -> bytes:
    """Return the version and the time of a commit in stored form."""
    return _STAMP.pack(version, time)


def unpack_stamp(stored: bytes | None) -> tuple[int, int]:
    """Return the version and the time of a commit; zeros if there was none yet."""
    if stored is None:
        return 0, 0
    version, time = _STAMP.unpack(stored)
    return version, time
