"""Lookup of many keys in a snapshot, by a scan if that is cheaper, and in parts if the caller may need few rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterator
from itertools import islice

from structable.backends.ordered.engine import EngineSnapshot

_FEWEST, _MOST = 16, 1_000
_FIRST_STEPS = 16
"""The first steps of a scan: fewer than the least `EngineSnapshot.scan_from`."""


def values_of(snapshot: EngineSnapshot, raw_keys: list[bytes]) -> list[bytes | None]:
    """Return the raw values of sorted raw keys."""
    if snapshot.scan_from is None or len(raw_keys) < snapshot.scan_from:
        return snapshot.get_many(raw_keys)
    # A step of a scan costs a fraction of a lookup. As many steps as there are keys, or just the first few, show
    # whether unrequested rows lie between the keys.
    pairs = snapshot.scan(raw_keys[0], raw_keys[-1] + b"\0")
    found = dict(islice(pairs, _FIRST_STEPS))
    if sum(map(found.__contains__, raw_keys[:_FIRST_STEPS])) >= len(found) // 2:
        found.update(islice(pairs, len(raw_keys) - _FIRST_STEPS))
        ended = len(found) < len(raw_keys)
    else:
        ended = len(found) < _FIRST_STEPS
    beyond = len(raw_keys) if ended else bisect_right(raw_keys, next(reversed(found)))
    if isinstance(pairs, Generator):
        pairs.close()
    values = [found.get(raw_key) for raw_key in raw_keys[:beyond]]
    return values + snapshot.get_many(raw_keys[beyond:]) if beyond < len(raw_keys) else values


def lookup_parts(raw_keys: list[bytes], limit: int | None, *, reverse: bool) -> Iterator[list[bytes]]:
    """Yield the parts of sorted raw keys to look up one after the other, from the last if `reverse`.

    `limit` is the maximum number of rows that the caller takes: if it is small, so are the first parts.
    """
    size = _MOST if limit is None else min(max(limit, _FEWEST), _MOST)
    while raw_keys:
        if reverse:
            yield raw_keys[-size:]
            raw_keys = raw_keys[:-size]
        else:
            yield raw_keys[:size]
            raw_keys = raw_keys[size:]
        size = min(2 * size, _MOST)
