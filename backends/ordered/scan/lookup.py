"""Lookup of many keys in a snapshot, by a scan if that is cheaper."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator
from itertools import islice

from structable.backends.ordered.engine import EngineSnapshot

__all__ = ["values_of"]


def values_of(snapshot: EngineSnapshot, raw_keys: list[bytes]) -> list[bytes | None]:
    """Return the raw values of sorted raw keys."""
    if len(raw_keys) < snapshot.scan_from:
        return snapshot.get_many(raw_keys)
    # A step of a scan costs a fraction of a lookup. As many steps as there are keys reveal whether unrequested rows lie
    # between them.
    pairs = snapshot.scan(raw_keys[0], raw_keys[-1] + b"\0")
    found = dict(islice(pairs, len(raw_keys)))
    last = next(reversed(found), b"")
    beyond = len(raw_keys) if len(found) < len(raw_keys) else bisect_right(raw_keys, last)
    if isinstance(pairs, Generator):
        pairs.close()
    values = [found.get(raw_key) for raw_key in raw_keys[:beyond]]
    return values + snapshot.get_many(raw_keys[beyond:]) if beyond < len(raw_keys) else values
