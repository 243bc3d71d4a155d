"""Expiry: a commit raises the floor of a feed, then the entries below it are deleted, some at a time."""

from __future__ import annotations

from collections.abc import Callable

from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.statement import BEGIN_WRITING, command
from structable.backends.postgresql.feeds.layout import COMMITS, FEEDS, MARKS, feed_table
from structable.backends.postgresql.sql.names import qualified

from .feed_source import FeedSource, LostEntriesError, query_call

__all__ = ["delete_expired"]

_COMMIT = command("commit")
_MOST_ENTRIES = 10_000
"""Entries deleted in one transaction."""
_MOST_COMMITS = 1_000


def delete_expired(connection: ServerConnection, source: FeedSource, version: int, stopped: Callable[[], bool]) -> int:
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
