"""`PostgreSQLFeedView`: positions, marks and expiry of a feed.

A commit raises the floor of a feed, then the entries below it are deleted, some at a time.
"""

from __future__ import annotations

import datetime as dt
import pickle
import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from structable.backends.base.change_feed import FeedView
from structable.backends.base.feed_marks import FeedRequest, Mark, Segment
from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.errors import INSUFFICIENT_PRIVILEGE, StatementRefusedError
from structable.backends.postgresql.driver.statement import BEGIN_WRITING, command
from structable.backends.postgresql.feeds.gate import VersionGate
from structable.backends.postgresql.feeds.layout import COMMITS, FEEDS, MARKS, TICKETS, feed_table
from structable.backends.postgresql.feeds.shared_objects import TOUCH
from structable.backends.postgresql.sql.names import literal, qualified
from structable.spi import TableSpecification

from .change_splits import plan_splits
from .commit_sizes import commit_sizes, netted
from .entry_queries import FeedEntries
from .feed_source import FeedSource, LostEntriesError, SourceReader, query_call

_COMMIT = command("commit")
_MOST_ENTRIES = 10_000
"""Entries deleted in one transaction."""
_MOST_COMMITS = 1_000


class PostgreSQLFeedView(FeedView):
    """A feed as it was found, examined over one connection."""

    def __init__(
        self,
        connection: ServerConnection,
        reader: SourceReader,
        gate: VersionGate,
        spec: TableSpecification,
        floor: Mark,
        stopped: Callable[[], bool],
    ) -> None:
        self.spec = spec
        self.feed = reader.source.token
        self.floor = floor.version
        self._floor = floor
        self._stopped = stopped
        self._connection = connection
        self._reader = reader
        self._gate = gate
        self._source: FeedSource = reader.source
        self.state = pickle.dumps(self._source)
        self._entries = FeedEntries(self._source.schema, self._source.number, spec, ())

    @cached_property
    def _newest(self) -> tuple[int, bool]:
        version, is_exact = self._gate.newest(self._connection, self.floor)
        if not is_exact:
            version = max([version, *(mark.version for mark in self.marks())])
        return max(version, self.floor), is_exact

    @property
    def newest(self) -> int:
        return self._newest[0]

    def reached(self, version: int) -> bool:
        newest, is_exact = self._newest
        if version <= newest or is_exact:
            return version <= newest
        return version <= self._gate.reach(self._connection, version)

    def counts(self, since: int) -> Iterator[tuple[int, int]]:
        return self._counts(since, self.newest)

    def _counts(self, since: int, until: int) -> Iterator[tuple[int, int]]:
        for commits in commit_sizes(self._reader, self._entries, since, until):
            nets = netted(self._reader, self._entries, commits)
            for commit in commits:
                number = commit.changes
                if commit.version in nets:
                    net = self._entries.net_versions(commit.version - 1, commit.version)
                    number = self._count(net, commit.version - 1)
                if number:
                    yield commit.version, number

    def _count(self, query: str, since: int) -> int:
        changes = "had::integer + has::integer" if self._entries.images else "1"
        rows = self._reader.rows(f"select coalesce(sum({changes}), 0)::bigint from ({query}) as c", since, freely=True)
        return int(str(rows[0][0]))

    def now(self) -> dt.datetime:
        found = self._connection.ask(query_call("select clock_timestamp()"))[0][0]
        assert isinstance(found, dt.datetime)
        return found

    def first_not_before(self, moment: dt.datetime) -> int | None:
        since = self.floor
        while True:
            commits = self._entries.commits_between(since, self.newest)
            first = f"{commits} and at >= {literal(moment.isoformat())}::timestamptz order by feed, version limit 1"
            found = self._reader.rows(first, since)
            if not found:
                return None
            since = int(str(found[0][0]))
            if next(self._counts(since - 1, since), None):  # a commit may have changed nothing
                return since

    def count_net(self, segment: Segment) -> int:
        found = self._reader.rows(
            self._entries.repeated_between(segment.since, segment.until), segment.since, freely=True
        )
        repeated = [int(str(row[0])) for row in found]
        return self._count(self._entries.net_range([(segment.since, segment.until)], repeated), segment.since)

    def marks(self) -> Sequence[Mark]:
        table = qualified(self._source.schema, MARKS)
        query = (
            f"select version, at from {table} where feed = {self._source.number} and version > {self.floor} order by 1"
        )
        found = self._connection.ask(query_call(query))
        return [self._floor, *(Mark(int(str(version)), time) for version, time in found)]

    def add_mark(self, last: Mark) -> Mark:
        schema, number, newest = self._source.schema, self._source.number, self.newest
        marks = qualified(schema, MARKS)
        lock = f"select from {qualified(schema, FEEDS)} where feed = {number} for update"
        insert = (
            f"insert into {marks} select {number}, {newest}, clock_timestamp() where not exists "
            f"(select from {marks} where feed = {number} and version > {last.version}) and {newest} > {last.version}"
        )
        try:
            self._connection.pipeline((BEGIN_WRITING, query_call(lock), query_call(insert), command("commit")))
        except StatementRefusedError as error:
            if error.state != INSUFFICIENT_PRIVILEGE:
                raise
            # A role that may only read uses marks set by others.
        finally:
            self._connection.roll_back()
        return self.marks()[-1]

    def raise_floor(self, version: int) -> int:
        floor = _delete_expired(self._connection, self._source, version, self._stopped)
        self.floor = floor
        return floor

    def restart(self) -> None:
        schema, number = self._source.schema, self._source.number
        token = literal(secrets.token_hex(8))
        renewed = f"update {qualified(schema, FEEDS)} set token = {token} where feed = {number}"
        touched = f"select {qualified(schema, TOUCH)}({number}, nextval({literal(qualified(schema, TICKETS))}), true)"
        calls = (BEGIN_WRITING, query_call(renewed), query_call(touched), command("commit"))
        try:
            self._connection.pipeline(calls)
        finally:
            self._connection.roll_back()
        # A commit in progress may have a lower version, and be in the ended feed: wait until none is left.
        self._gate.reach(self._connection, self.floor)

    def states(self, request: FeedRequest, splits: int) -> list[bytes]:
        entries = FeedEntries(self._source.schema, self._source.number, request.spec, request.columns)
        return plan_splits(self._reader, entries, request, splits)


def _delete_expired(connection: ServerConnection, source: FeedSource, version: int, stopped: Callable[[], bool]) -> int:
    """Raise the floor of a feed to at least a version, delete the entries up to the floor, and return it.

    Every step is a separate READ COMMITTED transaction; processes that delete take turns. Once `stopped`, the rest is
    left to the next call. Raises LostEntriesError if the feed has ended.
    """
    feeds, commits, marks = (qualified(source.schema, name) for name in (FEEDS, COMMITS, MARKS))
    entries = qualified(source.schema, feed_table(source.number))
    of_feed = f"feed = {source.number}"
    time = (
        f"coalesce((select at from {marks} where {of_feed} and version = {version}), (select at from {commits} "
        f"where {of_feed} and version <= {version} order by feed desc, version desc limit 1), floor_at)"
    )
    raised = f"update {feeds} set floor = {version}, floor_at = {time} where {of_feed} and floor < {version}"
    floor = f"(select floor from {feeds} where {of_feed})"
    unmarked = f"delete from {marks} where {of_feed} and version <= {floor}"
    try:
        calls = (BEGIN_WRITING, query_call(raised), query_call(unmarked), query_call(floor), _COMMIT)
        found = connection.rows(connection.pipeline(calls)[3])
        if not found:
            raise LostEntriesError(None)
        reached = int(str(found[0][0]))
        # The newest version of the store stays, whatever its feed: no position may be beyond it.
        old = f"{of_feed} and version <= {reached} and version < (select max(version) from {commits})"
        while not stopped():
            some = f"select ctid, ticket from {commits} where {old} order by feed, version limit {_MOST_COMMITS}"
            deleted, left = _step(connection, source, _entries(entries, some), f"select count(*) from ({some}) as c")
            if deleted == _MOST_ENTRIES:
                continue
            if not left:
                break
            _step(connection, source, f"delete from {commits} where ctid = any(array(select ctid from ({some}) as c))")
        rest = f"select ticket from {commits} where {of_feed} and version <= {reached}"
        while not stopped() and _step(connection, source, _entries(entries, rest))[0] == _MOST_ENTRIES:
            continue
        return reached
    finally:
        connection.roll_back()


def _entries(entries: str, commits: str) -> str:
    return (
        f"delete from {entries} where ctid = any(array(select f.ctid from ({commits}) as c "
        f"join {entries} as f on f.ticket = c.ticket limit {_MOST_ENTRIES}))"
    )


def _step(connection: ServerConnection, source: FeedSource, delete: str, count: str = "select 0") -> tuple[int, int]:
    """Delete in a transaction that excludes other processes' deletions; return the number of rows, and a count."""
    turn = query_call(f"select from {qualified(source.schema, FEEDS)} where feed = {source.number} for no key update")
    results = connection.pipeline((BEGIN_WRITING, turn, query_call(delete), query_call(count), _COMMIT))
    return results[2].command_tuples or 0, int(str(connection.rows(results[3])[0][0]))
