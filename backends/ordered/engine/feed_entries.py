"""The entries of change feeds as pairs, for an engine that gives its commits versions.

An entry has the key `space 01 version chunk`; its value is its time, followed by the appended value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_MARK = b"\x01"
_NUMBER = 8
_CHUNK = 4
_FIRST_CHUNK = bytes(_CHUNK)


class FeedEntry(NamedTuple):
    """One entry of a feed: number `chunk`, from 0, of the entries that the commit of a version appended."""

    version: int
    chunk: int
    time: int
    """The time of the commit, in microseconds since 1970."""
    payload: bytes


def entries_begin(space: bytes, after: int) -> bytes:
    """Return the bound above the keys of all entries up to a version, and below the keys of all later ones."""
    return space + _MARK + (after + 1).to_bytes(_NUMBER)


def entry_key(space: bytes, version: int, chunk: int) -> bytes:
    """Return the key of an entry."""
    return space + _MARK + version.to_bytes(_NUMBER) + chunk.to_bytes(_CHUNK)


def stamped(time: int, payload: bytes) -> bytes:
    """Return the value of an entry."""
    return time.to_bytes(_NUMBER) + payload


def entry_pairs(
    space: bytes, version: int, time: int, payloads: Sequence[bytes], first: int = 0
) -> dict[bytes, bytes | None]:
    """Return the pairs of the entries that one commit appends; `first` is the number of the first chunk."""
    head, stamp = space + _MARK + version.to_bytes(_NUMBER), time.to_bytes(_NUMBER)
    if len(payloads) == 1 and first == 0:
        return {head + _FIRST_CHUNK: stamp + payloads[0]}  # the most common case
    return {head + chunk.to_bytes(_CHUNK): stamp + payload for chunk, payload in enumerate(payloads, first)}


def entry_of(pair: tuple[bytes, bytes]) -> FeedEntry:
    """Return the entry of a pair."""
    key, value = pair
    version, chunk = key[-_NUMBER - _CHUNK : -_CHUNK], key[-_CHUNK:]
    return FeedEntry(int.from_bytes(version), int.from_bytes(chunk), int.from_bytes(value[:_NUMBER]), value[_NUMBER:])
