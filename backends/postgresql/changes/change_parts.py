"""The parts of a range of a feed, and the pages in which each is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from structable.backends.base.change_feed import FeedRequest
from structable.backends.base.feed_marks import Mark

from .commit_windows import Page
from .entry_queries import FeedEntries, HashPart, TicketPart
from .entry_walk import PortionReader, walk_piece, walk_versions
from .feed_source import SourceReader
from .numbered_entries import rest_of_commit

__all__ = ["ChangePart", "NetPart", "PiecePart", "VersionsPart", "net_part", "whole_parts"]

Content = TypeVar("Content")


class VersionsPart(NamedTuple):
    """The versions (since, until], or some keys of one."""

    since: int
    until: int
    keys: HashPart | None = None

    def walk(
        self, reader: SourceReader, entries: FeedEntries, portions: PortionReader[Content] | None
    ) -> Iterator[Content | Page]:
        if self.keys is None:
            yield from walk_versions(reader, entries, portions, self.since, self.until)
        else:
            yield Page(self.since, entries.net_versions(self.since, self.until, self.keys), True, True)


class PiecePart(NamedTuple):
    """A part of a commit."""

    piece: TicketPart

    def walk(
        self, reader: SourceReader, entries: FeedEntries, portions: PortionReader[Content] | None
    ) -> Iterator[Content | Page]:
        yield from walk_piece(reader, entries, portions, self.piece)


class NetPart(NamedTuple):
    """The net changes of segments, or those of some keys."""

    bounds: tuple[tuple[int, int], ...]
    repeated: tuple[int, ...]
    stamps: tuple[Mark, ...]
    keys: HashPart | None = None

    def walk(
        self, reader: SourceReader, entries: FeedEntries, portions: PortionReader[Content] | None
    ) -> Iterator[Page]:
        query = entries.net_range(self.bounds, self.repeated, self.stamps, self.keys)
        yield Page(self.bounds[0][0], query, True, True)


ChangePart = VersionsPart | PiecePart | NetPart


def whole_parts(reader: SourceReader, entries: FeedEntries, request: FeedRequest) -> Iterator[ChangePart]:
    """Yield the parts of a request, in their order."""
    if request.segments and (request.net or request.segments[0].mark is not None):
        yield net_part(reader, entries, request)
    else:
        for segment in request.segments:
            since = segment.since
            if request.after is not None:
                since += 1
                yield from map(PiecePart, rest_of_commit(reader, entries, since, request.after))
            yield VersionsPart(since, segment.until)


def net_part(reader: SourceReader, entries: FeedEntries, request: FeedRequest) -> NetPart:
    """Return all changes of a request whose segments are netted."""
    bounds = tuple((segment.since, segment.until) for segment in request.segments)
    stamps = request.stamps if request.net else tuple(one.mark for one in request.segments if one.mark is not None)
    since, until = bounds[0][0], bounds[-1][1]
    repeated = tuple(
        int(str(row[0])) for row in reader.rows(entries.repeated_between(since, until), since, freely=True)
    )
    return NetPart(bounds, repeated, stamps)
