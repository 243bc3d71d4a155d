"""Rows that come sorted by key, in batches that cut through keys. Knows nothing of Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import numpy.typing as npt

_FIRST = 10


@dataclass(slots=True)
class KeyCounts:
    """Counts of a task: rows, distinct keys, and keys that are certainly missing, with the first ten of them."""

    rows: int = 0
    keys: int = 0
    missing: int = 0
    first_missing: list[tuple[object, ...]] = field(default_factory=list)

    def add(self, other: KeyCounts) -> None:
        """Add the counts of another task, which has other keys."""
        self.rows += other.rows
        self.keys += other.keys
        self.missing += other.missing
        self.first_missing = sorted(self.first_missing + other.first_missing)[:_FIRST]

    def miss(self, key: tuple[object, ...]) -> None:
        """Count a missing key; they come in key order."""
        self.missing += 1
        if len(self.first_missing) < _FIRST:
            self.first_missing.append(key)


class Groups:
    """Finds the groups of equal keys in batches, even if a group continues in the next batch.

    Parameters
    ----------
    key : sequence of str
        The columns of the key, by which the rows are sorted.
    """

    def __init__(self, key: Sequence[str]) -> None:
        self._key = tuple(key)
        self._last: list[pa.Scalar[pa.DataType]] | None = None

    def starts(self, batch: pa.RecordBatch) -> tuple[npt.NDArray[np.int64], bool]:
        """Return where groups start in a batch that is not empty, and whether the first continues the batch before.

        The first is always at 0.
        """
        columns = [batch.column(name) for name in self._key]
        different = np.zeros(batch.num_rows, dtype=bool)
        different[0] = True
        for column in columns:
            unequal = pc.not_equal(column.slice(1), column.slice(0, batch.num_rows - 1))
            different[1:] |= flags(unequal, null=True)
        goes_on = self._last is not None and all(
            column[0].equals(last) for column, last in zip(columns, self._last, strict=True)
        )
        self._last = [column[-1] for column in columns]
        return np.flatnonzero(different), goes_on


def flags(column: pa.Array[Any], *, null: bool) -> npt.NDArray[np.bool_]:
    """Return a boolean column, with a given value in place of nulls."""
    filled: npt.NDArray[np.bool_] = column.fill_null(null).to_numpy(zero_copy_only=False)
    return filled


def counted(batches: Iterable[pa.RecordBatch], key: Sequence[str], counts: KeyCounts) -> Iterator[pa.RecordBatch]:
    """Pass on sorted batches, counting their rows and keys."""
    groups = Groups(key)
    for batch in batches:
        if batch.num_rows:
            starts, goes_on = groups.starts(batch)
            counts.rows += batch.num_rows
            counts.keys += len(starts) - goes_on
        yield batch


def last_rows(batches: Iterable[pa.RecordBatch], key: Sequence[str], counts: KeyCounts) -> Iterator[pa.RecordBatch]:
    """Yield the last row of each key of sorted batches, and count all rows and keys."""
    groups = Groups(key)
    held: pa.RecordBatch | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        starts, goes_on = groups.starts(batch)
        counts.rows += batch.num_rows
        counts.keys += len(starts) - goes_on
        if held is not None and not goes_on:
            yield held
        if len(starts) > 1:
            yield batch.take(starts[1:] - 1)
        held = batch.slice(batch.num_rows - 1)
    if held is not None:
        yield held
