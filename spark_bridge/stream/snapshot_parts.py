"""Parts of a stream's first snapshot, which tasks read: as it was taken, or rebuilt from a later state."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from structable.spark_bridge.coordinator.feed_streams import FirstSnapshot
from structable.spi import CHANGE_TYPE, RowKind, ScanSplit

ReadSplit: TypeAlias = Callable[[ScanSplit], Iterable[pa.RecordBatch]]
"""Reads the batches of a split."""


class SnapshotPart(InputPartition):
    """Some of the rows of a first snapshot."""

    @abstractmethod
    def read(self, columns: Sequence[str], read_split: ReadSplit) -> Iterator[pa.RecordBatch]:
        """Yield the rows with at least these columns; batches may have others too, in another order."""


def snapshot_parts(snapshot: FirstSnapshot) -> list[SnapshotPart]:
    """Divide a first snapshot: together the parts have its rows, each once."""
    if not snapshot.changes:
        return [RowsOfSplit(split) for split in snapshot.splits]
    if not snapshot.keys:
        return [SubtractedRows(snapshot.splits, snapshot.changes)]
    kept = [UnchangedRows(split, snapshot.keys, snapshot.primary_key) for split in snapshot.splits]
    return [*kept, *(FormerRows(split) for split in snapshot.changes)]


@dataclass(slots=True)
class RowsOfSplit(SnapshotPart):
    """The rows of a split."""

    split: ScanSplit

    def read(self, columns: Sequence[str], read_split: ReadSplit) -> Iterator[pa.RecordBatch]:
        yield from read_split(self.split)


@dataclass(slots=True)
class UnchangedRows(SnapshotPart):
    """The rows of a split without the rows of some keys, which are held in memory."""

    split: ScanSplit
    keys: tuple[ScanSplit, ...]
    primary_key: tuple[str, ...]

    def read(self, columns: Sequence[str], read_split: ReadSplit) -> Iterator[pa.RecordBatch]:
        changed = {
            key for split in self.keys for batch in read_split(split) for key in _tuples(batch, self.primary_key)
        }
        for batch in read_split(self.split):
            kept = [key not in changed for key in _tuples(batch, self.primary_key)]
            yield batch.filter(pa.array(kept, pa.bool_()))


@dataclass(slots=True)
class FormerRows(SnapshotPart):
    """The rows that net changes updated or deleted, as they were before."""

    changes: ScanSplit

    def read(self, columns: Sequence[str], read_split: ReadSplit) -> Iterator[pa.RecordBatch]:
        for batch in read_split(self.changes):
            yield _of_kinds(batch, RowKind.UPDATE_BEFORE, RowKind.DELETE)


@dataclass(slots=True)
class SubtractedRows(SnapshotPart):
    """The rows of a table without a key, less the rows that were inserted since, and with the rows that were deleted.

    Equal rows may be anywhere, so that one task reads all; it holds the changes in memory.
    """

    rows: tuple[ScanSplit, ...]
    changes: tuple[ScanSplit, ...]

    def read(self, columns: Sequence[str], read_split: ReadSplit) -> Iterator[pa.RecordBatch]:
        added: Counter[tuple[object, ...]] = Counter()
        former: list[pa.RecordBatch] = []
        for batch in chain.from_iterable(map(read_split, self.changes)):
            for kind, row in zip(batch.column(CHANGE_TYPE).to_pylist(), _tuples(batch, columns), strict=True):
                added[row] += 1 if kind == RowKind.INSERT.change_type else -1
            former.append(_of_kinds(batch, RowKind.DELETE))
        for batch in chain.from_iterable(map(read_split, self.rows)):
            yield batch.filter(pa.array([not _take(added, row) for row in _tuples(batch, columns)], pa.bool_()))
        missing = Counter({row: -count for row, count in added.items() if count < 0})
        for batch in former:
            yield batch.filter(pa.array([_take(missing, row) for row in _tuples(batch, columns)], pa.bool_()))


def _of_kinds(batch: pa.RecordBatch, *kinds: RowKind) -> pa.RecordBatch:
    wanted = {kind.change_type for kind in kinds}
    return batch.filter(pa.array([kind in wanted for kind in batch.column(CHANGE_TYPE).to_pylist()], pa.bool_()))


def _take(counts: Counter[tuple[object, ...]], row: tuple[object, ...]) -> bool:
    """Count one row less, and return whether there was one."""
    if counts[row] <= 0:
        return False
    counts[row] -= 1
    return True


def _tuples(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[object, ...]]:
    """Yield rows as tuples that are equal where the contract says so."""
    return zip(*([_comparable(value) for value in batch.column(name).to_pylist()] for name in columns), strict=True)


def _comparable(value: object) -> object:
    return "NaN" if isinstance(value, float) and value != value else value  # a text is equal to no number
