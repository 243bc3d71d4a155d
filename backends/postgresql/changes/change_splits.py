"""Reads splits of changes as Arrow batches, in any process."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING

from structable.backends.postgresql.driver.connection_factory import ConnectionFactory
from structable.backends.postgresql.driver.pool import ServerPool
from structable.spi import ScanSplit, StorageUnavailableError
from structable.spi.changes import FEED_COLUMNS

from .change_planning import ChangeSplit
from .entry_queries import FeedEntries
from .feed_source import SourceReader

if TYPE_CHECKING:
    from pyarrow import RecordBatch

__all__ = ["read_change_split", "read_one_change_split", "reads_changes"]


def reads_changes(split: ScanSplit) -> bool:
    """Return whether a split is one of changes: no table has fields of these names."""
    return split.columns[-len(FEED_COLUMNS) :] == FEED_COLUMNS


def read_change_split(pool: ServerPool, split: ScanSplit) -> Iterator[RecordBatch]:
    """Yield the changes of a split, borrowing a connection for each page of them.

    Raises
    ------
    ChangesLostError
        If changes that were still to come have expired.
    """
    from .change_batches import ChangeBatches

    # The split itself came as a pickle from the planning process: its content deserves the same trust.
    source, spec, columns, parts = ChangeSplit(*pickle.loads(split.state))
    reader = SourceReader(source, pool.connection)
    entries = FeedEntries(source.schema, source.number, spec, columns)
    batches = ChangeBatches(reader, entries, spec, columns)
    for part in parts:
        for batch in batches.read(part):
            if pool.closed:
                raise StorageUnavailableError("the storage was closed")
            yield batch


def read_one_change_split(factory: ConnectionFactory, split: ScanSplit) -> Iterator[RecordBatch]:
    """Yield the changes of a split over a connection of its own."""
    pool = ServerPool(factory.open, 1, 0.0)
    try:
        yield from read_change_split(pool, split)
    finally:
        pool.close()
