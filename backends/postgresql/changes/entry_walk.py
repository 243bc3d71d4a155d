"""The entries of a range, a chunk at a time, in their order.

A chunk ends with a commit, or is a part of a large one. Commits whose entries must be netted are left to a separate
query; only commits of several statements may need that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar

from .commit_sizes import QUERY_BYTES, EntryQuery, has_long_values, queries
from .entry_queries import FeedEntries, TicketPart
from .feed_source import SourceReader

FIRST_ENTRIES = 256
"""The maximum number of entries of the first chunk of records; the reader may need only a few."""
MOST_ENTRIES = 8_192
"""The maximum number of entries of any chunk."""

Content = TypeVar("Content")
Content_co = TypeVar("Content_co", covariant=True)


class EntryChunk(Protocol[Content_co]):
    """Some entries in their order."""

    count: int
    is_full: bool
    """Whether entries may follow."""
    has_statements: bool
    """Whether a commit among them may have been made by several statements."""
    is_long: bool
    """Whether values are too long for a chunk, which is then useless."""
    last: tuple[int, int]
    """The (again, n) of the last entry, in a part of a commit."""

    def version(self, place: int) -> int:
        """Return the version of an entry."""

    def begins_last(self) -> int:
        """Return the place of the first entry of the last version."""

    def repeats(self, count: int) -> bool | None:
        """Return whether a key has several of the first entries of one version; None if the keys were not read."""

    def head(self, count: int) -> Content_co:
        """Return the first entries."""


class ChunkReader(Protocol[Content_co]):
    """Reads chunks of at most `MOST_ENTRIES` entries."""

    def versions(self, since: int, until: int) -> EntryChunk[Content_co]:
        """Return the first entries of the versions (since, until]."""

    def part(self, part: TicketPart) -> EntryChunk[Content_co]:
        """Return the first entries of a part of a commit."""


def walk_versions(
    reader: SourceReader, entries: FeedEntries, chunks: ChunkReader[Content] | None, since: int, until: int
) -> Iterator[Content | EntryQuery]:
    """Yield the entries of the versions (since, until]: chunks, and queries where there are none."""
    if chunks is None or has_long_values(reader, entries):
        yield from queries(reader, entries, since, until)
        return
    while since < until:
        chunk = chunks.versions(since, until)
        if not chunk.count:
            return
        if chunk.is_long:
            yield from queries(reader, entries, since, until)
            return
        count, end = chunk.count, until
        if chunk.is_full:
            count = chunk.begins_last()
            if not count:
                version = chunk.version(0)
                yield from _walk_commit(reader, entries, chunks, version)
                since = version
                continue
            end = chunk.version(count - 1)
        if chunk.has_statements and _has_repeats(reader, entries, chunk, count, since, end):
            yield EntryQuery(since, entries.net_versions(since, end), True, True)
        else:
            yield chunk.head(count)
        since = end


def _has_repeats(
    reader: SourceReader, entries: FeedEntries, chunk: EntryChunk[Content], count: int, since: int, until: int
) -> bool:
    """Return whether commits of several statements among the first entries of a chunk must be netted."""
    known = chunk.repeats(count) if entries.nets and entries.images else None
    return _is_netted(reader, entries, since, until) if known is None else known


def _is_netted(reader: SourceReader, entries: FeedEntries, since: int, until: int) -> bool:
    """Return whether commits of several statements among (since, until] must be netted."""
    if not entries.nets or not entries.images:
        return entries.nets
    return bool(reader.rows(f"{entries.repeated_between(since, until)} limit 1", since, freely=True))


def _walk_commit(
    reader: SourceReader, entries: FeedEntries, chunks: ChunkReader[Content], version: int
) -> Iterator[Content | EntryQuery]:
    commits = entries.commits_between(version - 1, version)
    again = (
        f"select f.again from {entries.table} as f where f.ticket = c.ticket order by ticket desc, again desc limit 1"
    )
    found = reader.rows(f"select c.ticket, ({again}) from ({commits}) as c order by 1", version - 1)
    tickets = [int(ticket) for ticket, last in found if last is not None]
    several = len(tickets) > 1 or any(last for _, last in found)
    if several and _is_netted(reader, entries, version - 1, version):
        yield EntryQuery(version - 1, entries.net_versions(version - 1, version), True, True)
        return
    for ticket in tickets:
        yield from walk_part(reader, entries, chunks, TicketPart(version, ticket, (-1, 0), None))


def walk_part(
    reader: SourceReader, entries: FeedEntries, chunks: ChunkReader[Content] | None, part: TicketPart
) -> Iterator[Content | EntryQuery]:
    """Yield the entries of a part of a commit that is not netted."""
    if chunks is None or has_long_values(reader, entries):
        yield from _queries_of_part(reader, entries, part)
        return
    while True:
        chunk = chunks.part(part)
        if chunk.is_long:
            yield from _queries_of_part(reader, entries, part)
            return
        if chunk.count:
            yield chunk.head(chunk.count)
        if not chunk.is_full:
            return
        part = part._replace(after=chunk.last)


def _queries_of_part(reader: SourceReader, entries: FeedEntries, part: TicketPart) -> Iterator[EntryQuery]:
    """Yield the queries of a part of a commit with long values."""
    if entries.nets:
        yield EntryQuery(part.version - 1, entries.part(part), False, True)
        return
    # A reader of a few of many records must not make the server collect all of them.
    most = FIRST_ENTRIES
    while True:
        found = [tuple(map(int, row)) for row in reader.rows(entries.sizes_of_part(part, most), part.version - 1)]
        size = 0
        for count, (again, n, size_of_one) in enumerate(found, 1):
            size += size_of_one
            if size >= QUERY_BYTES or count == len(found):
                yield EntryQuery(part.version - 1, entries.part(part._replace(upto=(again, n))), False, False)
                part = part._replace(after=(again, n))
                break
        if len(found) < most and (not found or count == len(found)):
            return
        most = min(4 * most, MOST_ENTRIES)
