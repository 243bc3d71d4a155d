"""Divides an interval of keys by the sizes of table files."""

from __future__ import annotations

from .native.database import Database

_BISECTED_BYTES = 32
_EXACT_ENOUGH = 0.02
_LEAST_SPLIT = 1 << 15


def split_points(database: Database, begin: bytes, end: bytes, count: int) -> list[bytes]:
    """Return up to `count` - 1 keys that divide an interval into parts of about equal sizes."""
    ends = _first_and_last(database, begin, end)
    if count < 2 or ends is None:
        return []
    first, last = ends
    total = database.sizes([(first, end)])[0]
    count = min(count, max(1, total // _LEAST_SPLIT))
    shared = _shared(first, last)
    points: list[bytes] = []
    for part in range(1, count):
        point = _bisect(database, first, last, shared, total * part / count, total / count * _EXACT_ENOUGH)
        if begin < point < end and (not points or point > points[-1]):
            points.append(point)
    return points


def _first_and_last(database: Database, begin: bytes, end: bytes) -> tuple[bytes, bytes] | None:
    for first, _ in database.scan(begin, end, fill_cache=False):
        for last, _ in database.scan(begin, end, fill_cache=False, reverse=True):
            return first, last
    return None


def _bisect(database: Database, first: bytes, last: bytes, shared: bytes, wanted: float, tolerance: float) -> bytes:
    """Return a key about `wanted` bytes after the first key."""
    low = _number(first, shared)
    high = _number(last, shared) + 1
    middle = low
    while high - low > 1:
        middle = (low + high) // 2
        size = database.sizes([(first, _key(middle, shared))])[0]
        if abs(size - wanted) <= tolerance:
            break
        if size < wanted:
            low = middle
        else:
            high = middle
    return _key(middle, shared)


def _shared(first: bytes, last: bytes) -> bytes:
    for length, (one, other) in enumerate(zip(first, last, strict=False)):
        if one != other:
            return first[:length]
    return first


def _number(key: bytes, shared: bytes) -> int:
    return int.from_bytes(key[len(shared) : len(shared) + _BISECTED_BYTES].ljust(_BISECTED_BYTES, b"\x00"), "big")


def _key(number: int, shared: bytes) -> bytes:
    return shared + number.to_bytes(_BISECTED_BYTES + 1, "big")[1:].rstrip(b"\x00")
