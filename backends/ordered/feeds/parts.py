"""`FeedPart`: a part of a request with its records, either as written or net.

Net changes compare the row of each key at the beginning of a range with the row at its end.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from typing import NamedTuple
from zlib import crc32

from structable.backends.base.feed_marks import FeedRequest, Mark
from structable.backends.ordered.codec.change_records import EncodedChange, count_records, first_number, unpack_records
from structable.backends.ordered.engine import FeedEntry
from structable.backends.ordered.scan.sorting import sort_records
from structable.backends.ordered.schema.binding import TableBinding
from structable.spi import Change, Row

from .floors import microseconds, moment
from .source import FeedBound, FeedSource

_PLACE = struct.Struct(">QII")
_HEAD = struct.Struct(">2sQ")


@dataclass(frozen=True, slots=True)
class FeedPart:
    """The changes between two bounds.

    Attributes
    ----------
    begin, end : FeedBound
        The bounds.
    netted : bool
        Whether the changes are netted.
    stamps : tuple of Mark
        The marks that give netted changes their version and time; empty if they have neither.
    share, shares : int
        A netted part has only the keys whose hash falls into share number `share` of `shares`.
    """

    begin: FeedBound
    end: FeedBound
    netted: bool = False
    stamps: tuple[Mark, ...] = ()
    share: int = 0
    shares: int = 1


def parts_of(request: FeedRequest) -> list[FeedPart]:
    """Return the parts of a whole request, in order."""
    parts = []
    for segment in request.segments:
        begin, end = FeedBound(segment.since + 1), FeedBound(segment.until + 1)
        stamps = request.stamps if segment.mark is None else (segment.mark,)
        parts.append(FeedPart(begin, end, request.net or segment.mark is not None, stamps))
    return parts


def net_records_of(source: FeedSource, binding: TableBinding, part: FeedPart) -> Iterator[Stamped]:
    """Yield the net changes of a part; a generator, to be closed early."""
    entries = chain.from_iterable(source.pages(part.begin, part.end))
    return _net_records(binding, entries, part.stamps, part.share, part.shares)


def changes_of(source: FeedSource, binding: TableBinding, request: FeedRequest) -> Iterator[Change]:
    """Yield the changes of a request."""
    decode = binding.row_decoder(request.columns)
    space = binding.schema.space
    for part in parts_of(request):
        if binding.feeds_input:
            yield from _numbered(source, space, decode, part, request.after)
            continue
        if part.netted:
            for (kind, raw_key, raw), version, time in net_records_of(source, binding, part):
                yield Change(kind, decode(raw_key, raw), version, moment(time))
            continue
        for version, _, time, payload in chain.from_iterable(source.pages(part.begin, part.end)):
            at = moment(time)
            for kind, raw_key, raw in unpack_records(space, payload):
                yield Change(kind, decode(raw_key, raw), version, at)


def _numbered(
    source: FeedSource, space: bytes, decode: Callable[[bytes, bytes], Row], part: FeedPart, after: int | None
) -> Iterator[Change]:
    """Yield the changes of a part with their numbers; in its first version, only changes after number `after`."""
    begin, end, number = part.begin, part.end, 0
    version = begin.version
    bound = begin if after is None else source.bound_of(version, after)
    for entry in chain.from_iterable(source.pages_on_demand(bound, end)):
        if entry.version != version:
            version, number = entry.version, 0
        payload, at = entry.payload, moment(entry.time)
        first = first_number(payload)
        if first is not None:
            number = first
        skipped = max(0, after + 1 - number) if after is not None and version == begin.version else 0
        for place, (kind, raw_key, raw) in enumerate(unpack_records(space, payload, skipped), number + skipped):
            yield Change(kind, decode(raw_key, raw), version, at, place)
        number += count_records(payload)


class Stamped(NamedTuple):
    """A record with its commit's version and time, in microseconds since 1970."""

    record: EncodedChange
    version: int
    time: int


def _net_records(
    binding: TableBinding,
    entries: Iterable[FeedEntry],
    stamps: tuple[Mark, ...],
    part: int = 0,
    parts: int = 1,
) -> Iterator[Stamped]:
    """Yield the net changes of entries, in key order; a generator, to be closed early.

    Yields only keys whose hash falls into number `part` of `parts`. Keeps about 32 MiB in memory, the rest in temporary
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
    """Return the number of net changes of entries."""
    return sum(1 for _ in _net_records(binding, entries, ()))


def _sortable(
    space: bytes, entries: Iterable[FeedEntry], part: int, parts: int
) -> Iterator[tuple[bytes, bytes, bytes]]:
    for version, chunk, time, payload in entries:
        for number, (kind, raw_key, raw) in enumerate(unpack_records(space, payload)):
            if parts == 1 or crc32(raw_key) % parts == part:
                yield raw_key + _PLACE.pack(version, chunk, number), _HEAD.pack(kind.encode(), time), raw
