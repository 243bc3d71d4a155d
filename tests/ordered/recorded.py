"""The records that commits appended to a change feed, read from the engine."""

from __future__ import annotations

from typing import NamedTuple

from structable.backends.ordered import OrderedStorage
from structable.backends.ordered.codec.change_records import unpack_records
from structable.backends.ordered.engine import EngineSnapshot, FeedEntry
from structable.backends.ordered.schema.binding import TableBinding
from structable.backends.ordered.schema.catalog import Catalog
from structable.spi import Storage, Value


class Recorded(NamedTuple):
    """One record of a feed: its kind, and the fields that are not null."""

    kind: str
    row: dict[str, Value]


def entries(storage: Storage, table: str) -> list[FeedEntry]:
    """Return all entries of a feed, with the one that begins it."""
    return _entries(storage, table)[1]


def _entries(storage: Storage, table: str) -> tuple[TableBinding, list[FeedEntry]]:
    assert isinstance(storage, OrderedStorage)
    catalog = Catalog(storage.engine)

    def found(snapshot: EngineSnapshot) -> tuple[TableBinding, list[FeedEntry]]:
        binding = catalog.table(snapshot, table)
        assert binding.schema.feed is not None
        feed = binding.schema.feed.space
        return binding, list(snapshot.entries(feed, 0, snapshot.settled_version(feed)))

    return storage.engine.look(found)


def commits(storage: Storage, table: str) -> list[list[Recorded]]:
    """Return the records of a feed, of one version after the other; without those that only begin it."""
    by_version: dict[int, list[Recorded]] = {}
    binding, found = _entries(storage, table)
    for number, entry in enumerate(found):
        records = [
            Recorded(
                str(kind), {name: value for name, value in binding.whole(raw_key, raw).items() if value is not None}
            )
            for kind, raw_key, raw in unpack_records(binding.schema.space, entry.payload)
        ]
        assert records or number == 0, "an entry without records"
        by_version.setdefault(entry.version, []).extend(records)
    return [records for records in by_version.values() if records]


def last_commit(storage: Storage, table: str) -> list[Recorded]:
    """Return the records of the newest version in a feed."""
    return commits(storage, table)[-1]
