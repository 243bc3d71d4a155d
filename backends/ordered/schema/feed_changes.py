"""The steps that begin a change feed, and end one, in the commit that changes the schema of its table."""

from __future__ import annotations

import secrets
from dataclasses import replace

from structable.backends.ordered.codec.change_records import pack_records
from structable.backends.ordered.engine import EngineSnapshot, Upkeep, WriteSet
from structable.backends.ordered.table_schema import FeedSchema, TableSchema
from structable.spi import TableSpecification, UnsupportedOperationError
from structable.spi.table_options import ChangelogProducer

from .catalog import garbage_key
from .spaces import allocate_space
from .stuck_jobs import require_whole, stuck_key

__all__ = ["admit_types", "begin_feed", "renew_feed"]


def admit_types(engine: Upkeep) -> None:
    """Let a store have tables whose options mean something; raises UnsupportedOperationError if it has none."""
    if not engine.traits.table_types:
        raise UnsupportedOperationError(
            "this store has no table types: its tables have a primary key, no merge engine, and no write-mode"
        )
    engine.exclude_older_software()


def begin_feed(
    engine: Upkeep, snapshot: EngineSnapshot, changes: WriteSet, spec: TableSpecification
) -> FeedSchema | None:
    """Return the feed that a table is to have from this commit on: an entry without records is its first."""
    if spec.table_options.changelog_producer is ChangelogProducer.NONE:
        return None
    engine.exclude_older_software(feeds=True)
    feed = FeedSchema(allocate_space(engine, snapshot, changes.writes, feed=True), secrets.token_hex(8))
    changes.appends[feed.space] = [pack_records([])]
    return feed


def renew_feed(engine: Upkeep, snapshot: EngineSnapshot, changes: WriteSet, schema: TableSchema) -> TableSchema:
    """Return a table with another feed than it has, or with none, as its specification says; the old one is garbage.

    Raises
    ------
    DataCorruptionError
        If a write job of the table cannot be completed.
    """
    require_whole(snapshot.get(stuck_key(schema.spec.name)), schema)
    if schema.feed is not None:
        changes.writes[garbage_key(schema.feed.space)] = b"\x01"
    return replace(schema, feed=begin_feed(engine, snapshot, changes, schema.spec))
