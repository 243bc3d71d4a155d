"""Rows of the left table joined again and compared with the result, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from structable.spi import Row, RowKind

from .affected import Changes
from .kernel import Difference, Kernel, Values
from .progress import JoinProgress, Positions

BATCH_ROWS = 10_000
"""The number of left rows in memory together, with their rows of the right table and of the result."""


@dataclass(slots=True)
class Counts:
    """The numbers of rows that a step joined again, and of the result's rows that it changed."""

    affected: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def written(self) -> int:
        """The rows of the result that were written."""
        return self.inserted + self.updated + self.deleted

    def progress(self, positions: Positions | None, *, rebuilt: bool = False) -> JoinProgress:
        """Return the progress of a step that ended at these positions."""
        left, right = (None, None) if positions is None else (positions.left, positions.right)
        return JoinProgress(self.affected, self.inserted, self.updated, self.deleted, left, right, rebuilt)

    def add(self, difference: Difference) -> None:
        """Count a difference."""
        match difference.kind:
            case RowKind.INSERT:
                self.inserted += 1
            case RowKind.DELETE:
                self.deleted += 1
            case _:
                self.updated += 1


class KeyedRows(Protocol):
    """Rows of a table at one state, such as a `StructuredTable` in a transaction."""

    def multi_read(self, keys: Iterable[Values], columns: Iterable[str] | None = None) -> list[Row]:
        """Return the rows of these keys."""


def differences(
    kernel: Kernel,
    right: KeyedRows,
    result: KeyedRows,
    left_rows: Mapping[Values, Row | None],
    right_rows: Mapping[Values, Row | None],
) -> Iterator[Difference]:
    """Yield the differences between the result and the join of these rows.

    Parameters
    ----------
    kernel : Kernel
        The join.
    right, result : KeyedRows
        The tables, at the state of the rows.
    left_rows : mapping of tuple to Row or None
        The rows of the left table by their keys; None where there is none.
    right_rows : mapping of tuple to Row or None
        Known rows of the right table.
    """
    remaining = iter(left_rows.items())
    while batch := dict(islice(remaining, BATCH_ROWS)):
        before = {row.key: kernel.result_values(row) for row in result.multi_read(list(batch))}
        yield from compared(kernel, right, before, batch, right_rows)


def imaged_differences(
    kernel: Kernel, right: KeyedRows, left_rows: Mapping[Values, Row | None], changes: Changes
) -> Iterator[Difference]:
    """Yield differences as `differences` does, without reading the result.

    The result equals the join at the recorded positions, so its rows follow from the images before the changes. Images
    must suffice: see `BoundJoin.images_suffice`.
    """
    left_before, right_before, right_rows = changes.left.before, changes.right.before, changes.right.rows
    remaining = iter(left_rows.items())
    while batch := dict(islice(remaining, BATCH_ROWS)):
        before = {key: left_before.get(key, row) for key, row in batch.items()}
        references = {kernel.foreign_key(row) for row in (*batch.values(), *before.values())}
        missing = [one for one in references if one is not None and one not in right_rows]
        read = {row.key: row for row in right.multi_read(missing, kernel.bound.right_columns)} if missing else {}
        olds: dict[Values, Row | None] = {**read, **right_before}
        news: dict[Values, Row | None] = {**read, **right_rows}
        for key, new in batch.items():
            was, now = _joined(kernel, before[key], olds), _joined(kernel, new, news)
            difference = kernel.difference(key, was, now)
            if difference is not None:
                yield difference


def _joined(kernel: Kernel, left: Row | None, rights: Mapping[Values, Row | None]) -> Values | None:
    reference = kernel.foreign_key(left)
    return kernel.joined(left, None if reference is None else rights.get(reference))


def compared(
    kernel: Kernel,
    right: KeyedRows,
    before: Mapping[Values, Values],
    left_rows: Mapping[Values, Row | None],
    right_rows: Mapping[Values, Row | None],
) -> Iterator[Difference]:
    """Yield differences as `differences` does; `before` holds the result's rows by their keys."""
    references = {key: kernel.foreign_key(row) for key, row in left_rows.items()}
    missing = {one for one in references.values() if one is not None and one not in right_rows}
    read = {row.key: row for row in right.multi_read(list(missing), kernel.bound.right_columns)} if missing else {}
    for key, row in left_rows.items():
        reference = references[key]
        referred = None
        if reference is not None:
            referred = right_rows[reference] if reference in right_rows else read.get(reference)
        difference = kernel.difference(key, before.get(key), kernel.joined(row, referred))
        if difference is not None:
            yield difference


def batches(rows: Iterable[Row]) -> Iterator[dict[Values, Row | None]]:
    """Yield rows by their keys, `BATCH_ROWS` at a time."""
    batch: dict[Values, Row | None] = {}
    for row in rows:
        batch[row.key] = row
        if len(batch) == BATCH_ROWS:
            yield batch
            batch = {}
    if batch:
        yield batch
