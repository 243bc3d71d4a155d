"""Lookup of many keys in a snapshot, by a scan if that is cheaper."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator
from itertools import islice

from structable.backends.ordered.engine import EngineSnapshot

__all__ = ["values_of"]

_FIRST_STEPS = 16


def values_of(snapshot: EngineSnapshot, raw_keys: list[bytes]) -> list[bytes | None]:
    """Return the raw values of sorted raw keys."""
    if snapshot.scan_from is None or len(raw_keys) < snapshot.scan_from:
        return snapshot.get_many(raw_keys)
    # A step of a scan costs a fraction of a lookup, unless unrequested rows lie between the requested ones: the scan
    # goes on while at least half of its rows were requested.
    found: dict[bytes, bytes] = {}
    pairs = snapshot.scan(raw_keys[0], raw_keys[-1] + b"\0")
    steps, beyond = _FIRST_STEPS, 0
    while beyond < len(raw_keys):
        some = dict(islice(pairs, steps))
        found.update(some)
        if len(some) < steps:
            beyond = len(raw_keys)
            break
        before, beyond = beyond, bisect_right(raw_keys, next(reversed(some)))
        if sum(map(some.__contains__, raw_keys[before:beyond])) < steps // 2:
            break
        steps = min(2 * steps, len(raw_keys))
    if isinstance(pairs, Generator):
        pairs.close()
    values = [found.get(raw_key) for raw_key in raw_keys[:beyond]]
    return values + snapshot.get_many(raw_keys[beyond:]) if beyond < len(raw_keys) else values
