"""Division of a range of a feed: into queries that are run one at a time, and into splits.

Some commits at a time are inspected: the number of entries of each, and whether they must be netted. Small commits are
read together, a large commit in parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from structable.backends.postgresql.sql.names import literal

from .entry_queries import FeedEntries, TicketPart
from .feed_source import SourceReader

_FIRST_COMMITS, _MOST_COMMITS = 32, 1_000
"""The minimum and maximum number of commits inspected together; few at first, since a caller may need no more."""
_QUERY_ENTRIES = 4_096
"""The maximum number of entries that a query returns together."""
QUERY_BYTES = 8 << 20
"""The size of the answer to a query of long values, exceeded by one entry at most."""


class TicketSize(NamedTuple):
    """The entries of a ticket: their number, the number of their changes without netting, and their size."""

    ticket: int
    number: int
    changes: int
    again: int
    """The number of the ticket's last statement."""
    bytes: int
    """The bytes of the entries; 0 if not requested."""


class CommitSize(NamedTuple):
    """The entries of a commit."""

    version: int
    tickets: tuple[TicketSize, ...]

    @property
    def number(self) -> int:
        return sum(one.number for one in self.tickets)

    @property
    def changes(self) -> int:
        return sum(one.changes for one in self.tickets)

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.tickets)

    @property
    def has_statements(self) -> bool:
        """Whether several statements wrote the entries."""
        return len(self.tickets) > 1 or self.tickets[0].again > 0


class EntryQuery(NamedTuple):
    """A part of a range: a query of entries after the version `since`."""

    since: int
    query: str
    freely: bool
    """Whether the server must plan its joins freely."""
    is_large: bool
    """Whether the number of rows is unlimited."""


def commit_sizes(
    reader: SourceReader, entries: FeedEntries, since: int, until: int, *, in_bytes: bool = False
) -> Iterator[list[CommitSize]]:
    """Yield the commits with entries of the versions (since, until], in order, some at a time."""
    bytes_ = " + ".join(f"coalesce({size}, 0)" for size in entries.stored_sizes()) if in_bytes else ""
    most = _FIRST_COMMITS
    while since < until:
        limit = most
        most = min(4 * most, _MOST_COMMITS)
        while True:
            found = reader.rows(_sizes(entries, since, until, bytes_, limit), since)
            commits = [
                CommitSize(int(version), tuple(TicketSize(*map(int, row[1:])) for row in rows))
                for version, rows in groupby(found, key=itemgetter(0))
            ]
            if len(found) < limit:
                since = until
                break
            if len(commits) > 1:
                commits.pop()  # perhaps without some of its tickets
                since = commits[-1].version
                break
            limit *= 10
        kept = [one for one in commits if one.number]
        if kept:
            yield kept


def _sizes(entries: FeedEntries, since: int, until: int, bytes_: str, limit: int) -> str:
    pairs = "count(*) + count(*) filter (where f.kind = 'U')" if entries.images else "count(*)"
    return (
        f"select c.version, c.ticket, s.number, s.changes, s.again, s.bytes from "
        f"({entries.commits_between(since, until)} order by version, ticket limit {limit}) as c, "
        f"lateral (select count(*) as number, {pairs} as changes, coalesce(max(f.again), 0) as again, "
        f"{f'coalesce(sum({bytes_}), 0)' if bytes_ else '0'}::bigint as bytes from {entries.table} as f "
        "where f.ticket = c.ticket) as s order by 1, 2"
    )


def has_long_values(reader: SourceReader, entries: FeedEntries) -> bool:
    """Return whether requested values may lie outside the rows, so that chunks have no limit on their size."""
    if not entries.stored_sizes():
        return False
    outside = (
        "select coalesce((select pg_relation_size(reltoastrelid) from pg_class where oid = "
        f"{literal(entries.table)}::regclass and reltoastrelid <> 0), 0)"
    )
    return int(str(reader.ask(outside)[0][0])) > 0


def netted(reader: SourceReader, entries: FeedEntries, commits: list[CommitSize]) -> frozenset[int]:
    """Return the versions of the commits whose entries must be netted."""
    if not entries.nets:
        return frozenset()
    several = [one.version for one in commits if one.has_statements]
    if not several or not entries.images:
        return frozenset(several)
    return frozenset(int(str(row[0])) for row in reader.ask(entries.repeated(several), freely=True))


def queries(reader: SourceReader, entries: FeedEntries, since: int, until: int) -> Iterator[EntryQuery]:
    """Yield the queries of the versions (since, until], in order, of about as many bytes."""
    done = since
    for commits in commit_sizes(reader, entries, since, until, in_bytes=True):
        nets = netted(reader, entries, commits)
        number = size = 0
        last, has_nets = done, False
        for commit in commits:
            is_large = commit.number > _QUERY_ENTRIES or commit.bytes > QUERY_BYTES
            if number and (is_large or number + commit.number > _QUERY_ENTRIES or size + commit.bytes > QUERY_BYTES):
                yield _query(entries, done, last, has_nets)
                done, number, size, has_nets = last, 0, 0, False
            if is_large:
                yield _query_of(entries, commit, commit.version in nets)
                done = commit.version
            else:
                number, size, has_nets = number + commit.number, size + commit.bytes, has_nets or commit.version in nets
            last = commit.version
        if number:
            yield _query(entries, done, last, has_nets)
            done = last


def _query(entries: FeedEntries, since: int, until: int, has_nets: bool) -> EntryQuery:
    query = entries.net_versions(since, until) if has_nets else entries.versions(since, until)
    return EntryQuery(since, query, has_nets, False)


def _query_of(entries: FeedEntries, commit: CommitSize, is_netted: bool) -> EntryQuery:
    """Return the query of a large commit."""
    since = commit.version - 1
    query = entries.net_versions(since, commit.version) if is_netted else entries.versions(since, commit.version)
    return EntryQuery(since, query, is_netted, True)


def parts_of_commit(reader: SourceReader, entries: FeedEntries, commit: CommitSize, size: int) -> list[TicketPart]:
    """Return the parts, of about `size` entries each, of a commit that is not netted, in order."""
    parts = []
    for one in commit.tickets:
        bounds = (
            f"select again, n from (select f.again, f.n, row_number() over (order by f.again, f.n) as place "
            f"from {entries.table} as f where f.ticket = {one.ticket}) as p "
            f"where place % {size} = 0 or place = {one.number} order by again, n"
        )
        after = (-1, 0)
        for again, n in reader.rows(bounds, commit.version - 1):
            upto = (int(again), int(n))
            parts.append(TicketPart(commit.version, one.ticket, after, upto))
            after = upto
    return parts
