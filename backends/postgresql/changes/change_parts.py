"""The parts of a range of a feed, and the queries by which each is read.

The producer `input` numbers the records of a commit: from 0, in their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from structable.backends.base.feed_marks import FeedRequest, Mark

from .commit_sizes import EntryQuery
from .entry_queries import FeedEntries, HashPart, TicketPart
from .entry_walk import ChunkReader, walk_part, walk_versions
from .feed_source import SourceReader

Content = TypeVar("Content")


class VersionsPart(NamedTuple):
    """The versions (since, until], or some keys of one."""

    since: int
    until: int
    keys: HashPart | None = None

    def walk(
        self, reader: SourceReader, entries: FeedEntries, chunks: ChunkReader[Content] | None
    ) -> Iterator[Content | EntryQuery]:
        if self.keys is None:
            yield from walk_versions(reader, entries, chunks, self.since, self.until)
        else:
            yield EntryQuery(self.since, entries.net_versions(self.since, self.until, self.keys), True, True)


class CommitPart(NamedTuple):
    """A part of a commit."""

    part: TicketPart

    def walk(
        self, reader: SourceReader, entries: FeedEntries, chunks: ChunkReader[Content] | None
    ) -> Iterator[Content | EntryQuery]:
        yield from walk_part(reader, entries, chunks, self.part)


class NetPart(NamedTuple):
    """The net changes of segments, of all keys or of some."""

    bounds: tuple[tuple[int, int], ...]
    repeated: tuple[int, ...]
    stamps: tuple[Mark, ...]
    keys: HashPart | None = None

    def walk(
        self, reader: SourceReader, entries: FeedEntries, chunks: ChunkReader[Content] | None
    ) -> Iterator[EntryQuery]:
        query = entries.net_range(self.bounds, self.repeated, self.stamps, self.keys)
        yield EntryQuery(self.bounds[0][0], query, True, True)


ChangePart = VersionsPart | CommitPart | NetPart


def whole_parts(reader: SourceReader, entries: FeedEntries, request: FeedRequest) -> Iterator[ChangePart]:
    """Yield the parts of a request, in their order."""
    if request.segments and (request.net or request.segments[0].mark is not None):
        yield net_part(reader, entries, request)
    else:
        for segment in request.segments:
            since = segment.since
            if request.after is not None:
                since += 1
                yield from map(CommitPart, _rest_of_commit(reader, entries, since, request.after))
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


class RecordNumbers:
    """Numbers the records of a reader: in the first version from a given number, in each later version from 0."""

    def __init__(self, version: int, number: int) -> None:
        self._version = version
        self._next = number

    def number(self, version: int) -> int:
        """Return the number of the next record, whose version is given."""
        if version != self._version:
            self._version, self._next = version, 0
        number = self._next
        self._next += 1
        return number


def _rest_of_commit(reader: SourceReader, entries: FeedEntries, version: int, number: int) -> Iterator[TicketPart]:
    """Yield the parts of a commit that hold the records after a number."""
    rows = reader.rows(_entry_query(entries, version, number), version - 1)
    for ticket, again, n in rows:
        yield TicketPart(version, int(ticket), (-1, 0) if again is None else (int(again), int(n)), None)


def _entry_query(entries: FeedEntries, version: int, number: int) -> str:
    """Return the query of ticket, again and n of the record with a number, and of later tickets with nulls.

    It has no rows if there is no such record.
    """
    commits = entries.commits_between(version - 1, version)
    # The first statement of the first ticket, nearly always the only one, numbers its records from 0.
    first = (
        f"select f.ticket, f.again, f.n from {entries.table} as f where f.again = 0 and f.n = {number} "
        f"and f.ticket = (select min(c.ticket) from ({commits}) as c)"
    )
    any_ticket = (
        f"select f.ticket, f.again, f.n from ({commits}) as c join {entries.table} as f on f.ticket = c.ticket "
        f"where not exists (select from p) order by 1, 2, 3 offset {number} limit 1"
    )
    return (
        f"with p as materialized ({first}), q as (select * from p union all ({any_ticket})) "
        f"select ticket, again, n from q union all select c.ticket, null, null from ({commits}) as c "
        "where c.ticket > (select ticket from q) order by 1"
    )
