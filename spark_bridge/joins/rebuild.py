"""`MergePass`: large steps and rebuilds in this process, in batches, so that memory does not grow with the tables.

A rebuild reads the left table and the result side by side, both in key order, which is the same. A large step
remembers the keys that changed in either table; any number of rows that refer to a changed row of the right table are
read in batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from structable.spi import CHANGE_TYPE, Row, RowKind, StagedWrite, StructuredTable, TableNotFoundError, WriteJob

from .affected import Changes, left_rows_of
from .joining import BATCH_ROWS, Counts, batches, compared, differences
from .kernel import Difference, Kernel, Values
from .progress import Positions
from .stores import JoinStores, View

if TYPE_CHECKING:
    from pyarrow import RecordBatch


@dataclass(frozen=True, slots=True)
class Staged:
    """The differences of a large step or a rebuild, staged for its job.

    Attributes
    ----------
    writes : list of StagedWrite
        The staged writes to commit.
    positions : Positions
        The states of the left and the right table at which they were joined.
    counts : Counts
        The numbers of differences.
    """

    writes: list[StagedWrite]
    positions: Positions
    counts: Counts


class LargeSteps(Protocol):
    """Computes the differences of large steps and rebuilds, and stages them for a job of mode `changes`."""

    def stage_changes(self, stores: JoinStores, kernel: Kernel, job: WriteJob, changes: Changes) -> Staged | None:
        """Stage the differences by the changes, which are read on; None if there are too many.

        The result must be read after this call began, and the tables no earlier than the result. A state earlier
        than the changes is never staged.

        Raises
        ------
        ChangesLostError
            If the changes are no longer kept.
        """

    def stage_all(self, stores: JoinStores, kernel: Kernel, job: WriteJob) -> Staged:
        """Stage the differences between the whole join and the result, read as in `stage_changes`.

        `affected` in the counts is the number of differences.
        """


class _TooManyError(Exception):
    """More rows are affected than a large step may have."""


class MergePass:
    """The large steps of the service form; see `LargeSteps`.

    Parameters
    ----------
    large : int
        The maximum number of affected rows of a large step.
    """

    def __init__(self, large: int) -> None:
        self._large = large

    def stage_changes(self, stores: JoinStores, kernel: Kernel, job: WriteJob, changes: Changes) -> Staged | None:
        """Stage the differences by the changes; None if more than `large` rows are affected."""
        counts = Counts()
        with reading(stores, kernel) as view:
            if not view.positions.reach(changes.seen):
                return Staged([], view.positions, counts)
            try:
                found = self._changed(stores, kernel, view, changes, counts)
                writes = [stores.result.stage(job, 0, 0, difference_batches(kernel, found, counts))]
            except _TooManyError:
                return None
            return Staged(writes, view.positions, counts)

    def stage_all(self, stores: JoinStores, kernel: Kernel, job: WriteJob) -> Staged:
        """Stage the differences between the whole join and the result."""
        counts = Counts()
        with reading(stores, kernel) as view:
            writes = [
                stores.result.stage(job, 0, 0, difference_batches(kernel, _all_differences(kernel, view), counts))
            ]
            counts.affected = counts.written
            return Staged(writes, view.positions, counts)

    def _changed(
        self, stores: JoinStores, kernel: Kernel, view: View, changes: Changes, counts: Counts
    ) -> Iterator[Difference]:
        most = self._large
        if not changes.read(stores, kernel, view.positions, most, keys_only=True):
            raise _TooManyError
        if view.result is None:
            raise TableNotFoundError(stores.join.result.name)
        for batch in self._affected(kernel, view.left, changes.left.rows, changes.right.rows):
            counts.affected += len(batch)
            if counts.affected > most:
                raise _TooManyError
            yield from differences(kernel, view.right, view.result, batch, {})

    def _affected(
        self, kernel: Kernel, left: StructuredTable, left_keys: Iterable[Values], right_keys: Iterable[Values]
    ) -> Iterator[dict[Values, Row | None]]:
        known = set(left_keys)
        remaining = iter(known)
        while keys := list(islice(remaining, BATCH_ROWS)):
            read = {row.key: row for row in left.multi_read(keys, kernel.bound.left_columns)}
            yield {key: read.get(key) for key in keys}
        yield from batches(row for row in left_rows_of(kernel, left, right_keys) if row.key not in known)


def count_differences(stores: JoinStores, kernel: Kernel) -> int:
    """Return how many rows of the result differ from the whole join, all at the newest state."""
    with stores.result.transaction(read_only=True) as tx, stores.view(tx) as view:
        return sum(1 for _ in _all_differences(kernel, view))


@contextmanager
def reading(stores: JoinStores, kernel: Kernel) -> Iterator[View]:
    """Yield the tables, to stage the differences at their newest state.

    Raises
    ------
    TransactionConflictError
        As `BoundJoin.require_unchanged` does.
    """
    with stores.result.transaction(read_only=True) as tx, stores.view(tx) as view:
        kernel.bound.require_unchanged(view.left.specification, view.right.specification)
        yield view


def _all_differences(kernel: Kernel, view: View) -> Iterator[Difference]:
    with view.left.scan(columns=kernel.bound.left_columns) as lefts, _rows(view.result) as results:
        pending = next(results, None)
        for batch in batches(lefts):
            last = next(reversed(batch))
            before: dict[Values, Values] = {}
            # Python compares keys of all key types as the contract does.
            while pending is not None and pending.key <= last:
                values = kernel.result_values(pending)
                if pending.key in batch:
                    before[pending.key] = values
                else:
                    yield Difference(RowKind.DELETE, values)
                pending = next(results, None)
            yield from compared(kernel, view.right, before, batch, {})
        while pending is not None:
            yield Difference(RowKind.DELETE, kernel.result_values(pending))
            pending = next(results, None)


@contextmanager
def _rows(table: StructuredTable | None) -> Iterator[Iterator[Row]]:
    if table is None:
        yield iter(())
    else:
        with table.scan() as rows:
            yield rows


def difference_batches(kernel: Kernel, found: Iterator[Difference], counts: Counts) -> Iterator[RecordBatch]:
    """Yield differences in the form that a job of mode `changes` takes, and count them."""
    import pyarrow as pa

    from structable.spi.arrow import arrow_schema

    schema = arrow_schema(kernel.bound.result, kernel.columns)
    while chunk := list(islice(found, BATCH_ROWS)):
        for one in chunk:
            counts.add(one)
        columns = zip(*(one.values for one in chunk), strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        arrays.append(pa.array([one.kind.change_type for one in chunk], pa.string()))
        yield pa.RecordBatch.from_arrays(arrays, names=[*kernel.columns, CHANGE_TYPE])
