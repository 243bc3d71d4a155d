"""The tables of change feeds: the tables that a schema has from its first feed on, and the tables of each feed.

Once:

`_structable_feeds(feed bigint identity primary key, token text, floor bigint, floor_at timestamptz)`
    The feeds of the schema's tables, by the number that the catalog records. `token` names the feed in positions:
    TRUNCATE replaces it. Every change after the version `floor` is kept; at first it is the version of the commit that
    began the feed, and `floor_at` that commit's time.
`_structable_commits(feed bigint, version bigint, ticket bigint, at timestamptz, primary key (feed, version, ticket))`
    One row for each ticket. The entries of a ticket were committed with this version, by a transaction that has one
    version in all feeds; it may have several tickets in one feed, in the order of its calls. A commit need not
    have an entry: nothing changed, or a feed began. There is an index on `version`, and a BRIN index on `at`.
`_structable_marks(feed bigint, version bigint, at timestamptz, primary key (feed, version))`
    The marks of feeds with full-compaction, without the first, which is the floor.
`_structable_gate()`
    A transaction that draws a version holds a ROW EXCLUSIVE lock on it until its end. A reader that holds SHARE for
    a moment knows that no version is drawn and not yet visible.
`_structable_touched`, `_structable_tickets`, `_structable_versions`
    The feeds that open transactions have changed, and the sequences.

The newest version is the highest of `_structable_commits` and of all floors, as commits expire.

Each feed has a table `_feed_N`, N in hexadecimal, with an index on (ticket, again, n). `again` is the number of the
statement in the ticket, `n` the number of the entry in the statement, both from 0. The rest depends on the table:

images (`keeps_images`: lookup and full-compaction, of a table with a key)
    `ticket bigint, again integer, n integer, kind "char", k_KEY..., b_FIELD..., a_FIELD...`: kind I, U or D, the key,
    and the other fields before and after. A ticket whose entries all have `again` 0 has each key once. Otherwise the
    entries of one key are in no order: the change of a row by a commit is the images that are left when befores are
    taken from afters, an absent row being an image too.
records (input, and any producer of a table without a key)
    `ticket bigint, again integer, n integer, kind "char", a_FIELD...`: kind I, B (-U), U (+U) or D, and one row, with
    its key. Calls are in the order of (ticket, again, n). Under lookup, where kinds are I and D, also
    `k__id bytea`, which begins with the digest of the row; a reader cancels the equal rows of a commit unless `again`
    is 0 in all its entries, which then have rows of one kind.
    In a log `again` is 0, and `n` is the number of the record in the ticket.
"""

from __future__ import annotations

from structable.backends.postgresql.sql.names import HIDDEN_KEY, column_name
from structable.spi import ChangelogProducer, RowKind, TableSpecification

FEEDS = "_structable_feeds"
COMMITS = "_structable_commits"
MARKS = "_structable_marks"
GATE = "_structable_gate"
TOUCHED = "_structable_touched"
TICKETS = "_structable_tickets"
VERSIONS = "_structable_versions"

_KINDS = {RowKind.INSERT: "I", RowKind.UPDATE_BEFORE: "B", RowKind.UPDATE_AFTER: "U", RowKind.DELETE: "D"}


def feed_table(number: int) -> str:
    """Return the name of the table of a feed's entries."""
    return f"_feed_{number:x}"


def feed_trigger(number: int, verb: str) -> str:
    """Return the name of a trigger of a feed, and of its function."""
    return f"{feed_table(number)}_{verb}"


def has_feed(spec: TableSpecification) -> bool:
    """Return whether a table has a change feed."""
    return spec.table_options.changelog_producer is not ChangelogProducer.NONE


def takes_input(spec: TableSpecification) -> bool:
    """Return whether the feed of a table holds the rows that its writers give."""
    return spec.table_options.changelog_producer is ChangelogProducer.INPUT


def keeps_images(spec: TableSpecification) -> bool:
    """Return whether the entries of a table's feed have images before and after; otherwise they are records."""
    return has_feed(spec) and not spec.keyless and not takes_input(spec)


def record_kind(kind: RowKind) -> str:
    """Return the letter of a row kind in records."""
    return _KINDS[kind]


def key_column(field: str) -> str:
    """Return the column of a key field in images."""
    return f"k_{column_name(field)}"


def before_column(field: str) -> str:
    """Return the column of a field outside the key, as it was before."""
    return f"b_{column_name(field)}"


def after_column(field: str) -> str:
    """Return the column with a field outside the key after the change; in records, with any field."""
    return f"a_{column_name(field)}"


def hidden_key_column() -> str:
    """Return the column of the hidden key in records of a table without a key."""
    return f"k_{HIDDEN_KEY}"
