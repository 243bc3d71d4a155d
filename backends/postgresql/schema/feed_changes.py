"""The steps that begin, change and end a table's change feed, in the transaction that changes the table's record."""

from __future__ import annotations

import secrets
from dataclasses import replace

from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.statement import TEXT, Call, Statement, command
from structable.backends.postgresql.feeds.feed_objects import feed_changes, feed_definitions, feed_end
from structable.backends.postgresql.feeds.layout import FEEDS, has_feed
from structable.backends.postgresql.feeds.shared_objects import shared_definitions
from structable.backends.postgresql.sql.binding import TableVersion
from structable.backends.postgresql.sql.names import literal, qualified
from structable.backends.postgresql.sql.types import stored_type
from structable.spi import TableSpecification
from structable.spi.authors import SchemaChange


def new_feed(connection: ServerConnection, schema: str, spec: TableSpecification) -> int | None:
    """Create the record of a table's new feed and return its number; None if the table has no feed."""
    if not has_feed(spec):
        return None
    feeds = qualified(schema, FEEDS)
    lock = f"select pg_advisory_xact_lock(hashtextextended({literal('structable ' + schema)}, 0))"
    there = command(f"select to_regclass({literal(feeds)}) is not null")
    if not connection.rows(connection.pipeline((command(lock), there))[-1])[0][0]:
        connection.pipeline(map(command, shared_definitions(schema)))
    insert = Statement(f"insert into {feeds} (token) values ($1) returning feed", (TEXT,), prepare=False)
    return int(str(connection.ask(Call(insert, (secrets.token_hex(8).encode(),)))[0][0]))


def define_feed(schema: str, table: TableVersion) -> list[Call]:
    """Return the calls that begin the feed of an existing table."""
    if table.feed is None:
        return []
    return [command(text) for text in feed_definitions(schema, table.spec, table.feed)]


def changes_producer(change: SchemaChange) -> bool:
    """Return whether a change ends a feed or begins one."""
    producers = {spec.table_options.changelog_producer for spec in (change.before, change.after)}
    return len(producers) > 1


def with_feed(
    connection: ServerConnection, schema: str, before: TableVersion, after: TableVersion, change: SchemaChange
) -> TableVersion:
    """Return a changed table with its feed, which is a new one if the producer has changed."""
    if not changes_producer(change):
        return replace(after, feed=before.feed)
    return replace(after, feed=new_feed(connection, schema, after.spec))


def change_feed(schema: str, before: TableVersion, after: TableVersion, change: SchemaChange) -> list[Call]:
    """Return the calls that adapt the feed of a table to the table's next version, once its columns are changed."""
    if before.feed != after.feed:
        ended = [] if before.feed is None else feed_end(schema, before.spec, before.feed, keeps_table=True)
        return [*map(command, ended), *define_feed(schema, after)]
    if after.feed is None:
        return []
    widened = [field for field in change.widened_fields if _is_stored_anew(before.spec, field.name, after.spec)]
    return [*map(command, feed_changes(schema, after.spec, after.feed, change.added_fields, widened))]


def _is_stored_anew(before: TableSpecification, name: str, after: TableSpecification) -> bool:
    return stored_type(before.field(name)).name != stored_type(after.field(name)).name
