"""Spaces: their allocation to tables and change feeds, and their state in the catalog.

A feed begins and ends in the commit that changes the schema of its table.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import replace

from structable.backends.ordered.codec.change_records import pack_records
from structable.backends.ordered.engine import SPACE_BYTES, EngineSnapshot, Spaces, SpaceTakenError, Upkeep, WriteSet
from structable.backends.ordered.table_schema import FeedSchema, TableSchema
from structable.spi import ChangelogProducer, DataCorruptionError, TableSpecification, UnsupportedOperationError

from .catalog import CATALOG_SPACE, garbage_key, list_garbage, list_schemas
from .job_records import list_jobs
from .stuck_jobs import require_whole, stuck_key

_NEXT_SPACE = CATALOG_SPACE + b"\x11"


def allocate_space(
    engine: Upkeep, snapshot: EngineSnapshot, writes: dict[bytes, bytes | None], *, feed: bool = False
) -> bytes:
    """Allocate a space never used before, and record it in `writes`: two concurrent allocations conflict."""
    taken = writes.get(_NEXT_SPACE)
    number = _following(snapshot) if taken is None else int.from_bytes(taken)
    while True:
        if number >= 1 << (8 * SPACE_BYTES):
            raise DataCorruptionError(f"the catalog has allocated all {number:,} spaces")
        space = number.to_bytes(SPACE_BYTES)
        number += 1
        writes[_NEXT_SPACE] = number.to_bytes(SPACE_BYTES)
        # Skipped or not, another allocation of the same number conflicts with this one.
        with suppress(SpaceTakenError):
            if feed:
                engine.create_space(space, feed=True)
            else:
                engine.create_space(space)
            return space


def _following(snapshot: EngineSnapshot) -> int:
    raw = snapshot.get(_NEXT_SPACE)
    return 1 if raw is None else int.from_bytes(raw)


def read_spaces(snapshot: EngineSnapshot) -> Spaces:
    """Return the spaces that the catalog knows."""
    return Spaces(
        frozenset(space for schema in list_schemas(snapshot) for space in schema.spaces),
        frozenset(space for _, record in list_jobs(snapshot) for space in record.loading),
        frozenset(beginning for beginning in list_garbage(snapshot) if len(beginning) == SPACE_BYTES),
        min(_following(snapshot), (1 << 8 * SPACE_BYTES) - 1).to_bytes(SPACE_BYTES),
    )


def admit_types(engine: Upkeep) -> None:
    """Prepare a store for tables whose options have effects; raises UnsupportedOperationError if it cannot have any."""
    if not engine.traits.table_types:
        raise UnsupportedOperationError(
            "this store has no table types: its tables have a primary key, no merge engine, and no write-mode"
        )
    engine.exclude_older_software()


def begin_feed(
    engine: Upkeep, snapshot: EngineSnapshot, changes: WriteSet, spec: TableSpecification
) -> FeedSchema | None:
    """Return the new feed of a table from this commit on; its first entry has no records."""
    if spec.table_options.changelog_producer is ChangelogProducer.NONE:
        return None
    engine.exclude_older_software(feeds=True)
    feed = FeedSchema(allocate_space(engine, snapshot, changes.writes, feed=True), secrets.token_hex(8))
    changes.appends[feed.space] = [pack_records([])]
    return feed


def renew_feed(engine: Upkeep, snapshot: EngineSnapshot, changes: WriteSet, schema: TableSchema) -> TableSchema:
    """Return a table with a new feed, or with none, as its specification says; the old feed becomes garbage.

    Raises
    ------
    DataCorruptionError
        If a write job of the table cannot be completed.
    """
    require_whole(snapshot.get(stuck_key(schema.spec.name)), schema)
    if schema.feed is not None:
        changes.writes[garbage_key(schema.feed.space)] = b"\x01"
    return replace(schema, feed=begin_feed(engine, snapshot, changes, schema.spec))
