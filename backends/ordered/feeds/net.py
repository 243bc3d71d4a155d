"""Net changes: per key the row at the beginning of a range against the row at its end."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple
from zlib import crc32

from structable.backends.base.feed_marks import Mark
from structable.backends.ordered.codec.change_records import Record, unpack_records
from structable.backends.ordered.engine import FeedEntry
from structable.backends.ordered.scan.sorting import sort_records
from structable.backends.ordered.schema.binding import TableBinding

from .floors import microseconds

__all__ = ["Stamped", "count_net_records", "net_records"]

_PLACE = struct.Struct(">QII")
_HEAD = struct.Struct(">2sQ")


class Stamped(NamedTuple):
    """A record with version and time, in microseconds since 1970."""

    record: Record
    version: int
    time: int


def net_records(
    binding: TableBinding,
    entries: Iterable[FeedEntry],
    stamps: tuple[Mark, ...],
    part: int = 0,
    parts: int = 1,
) -> Iterator[Stamped]:
    """Yield the net changes that entries make together, by key; a generator, to be closed early.

    Yields only keys whose hash falls into number `part` of `parts`. Keeps some 32 MiB in memory, the rest in temporary
    files.
    """
    ordered = sort_records(_sortable(binding.schema.space, entries, part, parts))
    for raw_key, group in groupby(ordered, lambda one: one[0][: -_PLACE.size]):
        first: tuple[bytes, bytes, bytes] | None = None
        for last in group:
            first = first or last
        assert first is not None, "a group is never empty"
        before = None if _HEAD.unpack(first[1])[0] == b"+I" else first[2]
        kind, time = _HEAD.unpack(last[1])
        after = None if kind == b"-D" else last[2]
        version = _PLACE.unpack(last[0][-_PLACE.size :])[0]
        mark = next((mark for mark in stamps if mark.version >= version), None)
        if mark is not None:
            version, time = mark.version, microseconds(mark.time)
        for record in binding.images({raw_key: after}, {raw_key: before}):
            yield Stamped(record, version, time)


def count_net_records(binding: TableBinding, entries: Iterable[FeedEntry]) -> int:
    """Return the number of net changes that entries make together."""
    return sum(1 for _ in net_records(binding, entries, ()))


def _sortable(
    space: bytes, entries: Iterable[FeedEntry], part: int, parts: int
) -> Iterator[tuple[bytes, bytes, bytes]]:
    for version, chunk, time, payload in entries:
        for number, (kind, raw_key, raw) in enumerate(unpack_records(space, payload)):
            if parts == 1 or crc32(raw_key) % parts == part:
                yield raw_key + _PLACE.pack(version, chunk, number), _HEAD.pack(kind.encode(), time), raw
