"""The numbers of records in their commit, as feeds of the producer `input` have them: from 0, in their order."""

from __future__ import annotations

from collections.abc import Iterator

from .entry_queries import FeedEntries, TicketPart
from .feed_source import SourceReader

__all__ = ["RecordNumbers", "rest_of_commit"]


class RecordNumbers:
    """Numbers the records of a reader: in the first version from a given number, in each later version from 0."""

    def __init__(self, version: int, number: int) -> None:
        self._version = version
        self._next = number

    def number(self, version: int) -> int:
        """Return the number of the next record, which is of a version."""
        if version != self._version:
            self._version, self._next = version, 0
        number = self._next
        self._next += 1
        return number


def rest_of_commit(reader: SourceReader, entries: FeedEntries, version: int, number: int) -> Iterator[TicketPart]:
    """Yield the parts of a commit that hold the records after the one of a number."""
    rows = reader.rows(_place(entries, version, number), version - 1)
    for ticket, again, n in rows:
        yield TicketPart(version, int(ticket), (-1, 0) if again is None else (int(again), int(n)), None)


def _place(entries: FeedEntries, version: int, number: int) -> str:
    """Return the query of ticket, again and n of the record of a number, and of the later tickets with nulls.

    It has no rows if there is no such record.
    """
    commits = entries.commits_between(version - 1, version)
    # The first statement of the first ticket, which nearly always is the only one, numbers its records from 0.
    first = (
        f"select f.ticket, f.again, f.n from {entries.table} as f where f.again = 0 and f.n = {number} "
        f"and f.ticket = (select min(c.ticket) from ({commits}) as c)"
    )
    any_place = (
        f"select f.ticket, f.again, f.n from ({commits}) as c join {entries.table} as f on f.ticket = c.ticket "
        f"where not exists (select from p) order by 1, 2, 3 offset {number} limit 1"
    )
    return (
        f"with p as materialized ({first}), q as (select * from p union all ({any_place})) "
        f"select ticket, again, n from q union all select c.ticket, null, null from ({commits}) as c "
        "where c.ticket > (select ticket from q) order by 1"
    )
