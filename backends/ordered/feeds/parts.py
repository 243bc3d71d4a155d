"""`Part`: a part of a request, and its records: as they were written, or netted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from structable.backends.base.change_feed import FeedRequest
from structable.backends.base.feed_marks import Mark
from structable.backends.ordered.codec.change_records import unpack_records
from structable.backends.ordered.schema.binding import TableBinding
from structable.spi import Change

from .floors import moment
from .net import Stamped, net_records
from .source import Bound, FeedSource

__all__ = ["Part", "changes_of", "parts_of", "net_records_of"]


@dataclass(frozen=True, slots=True)
class Part:
    """The changes between two bounds.

    Attributes
    ----------
    begin, end : Bound
        The bounds.
    netted : bool
        Whether the changes are netted; then `stamps` are the marks whose version and time they have, if there are any,
        and only those of keys whose hash is in `share` of `shares` are in the part.
    """

    begin: Bound
    end: Bound
    netted: bool = False
    stamps: tuple[Mark, ...] = ()
    share: int = 0
    shares: int = 1


def parts_of(request: FeedRequest) -> list[Part]:
    """Return the parts of a whole request, in order."""
    parts = []
    for segment in request.segments:
        begin, end = Bound(segment.since + 1), Bound(segment.until + 1)
        stamps = request.stamps if segment.mark is None else (segment.mark,)
        parts.append(Part(begin, end, request.net or segment.mark is not None, stamps))
    return parts


def net_records_of(source: FeedSource, binding: TableBinding, part: Part) -> Iterator[Stamped]:
    """Yield the net changes of a part; a generator, to be closed early."""
    entries = chain.from_iterable(source.pages(part.begin, part.end))
    return net_records(binding, entries, part.stamps, part.share, part.shares)


def changes_of(source: FeedSource, binding: TableBinding, request: FeedRequest) -> Iterator[Change]:
    """Yield the changes of a request."""
    decode = binding.row_decoder(request.columns)
    space = binding.schema.space
    for part in parts_of(request):
        if part.netted:
            for (kind, raw_key, raw), version, time in net_records_of(source, binding, part):
                yield Change(kind, decode(raw_key, raw), version, moment(time))
            continue
        for version, _, time, payload in chain.from_iterable(source.pages(part.begin, part.end)):
            at = moment(time)
            for kind, raw_key, raw in unpack_records(space, payload):
                yield Change(kind, decode(raw_key, raw), version, at)
