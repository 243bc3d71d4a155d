"""Spark's tasks in a large step: they read splits, find changed keys, and stage differences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from structable.spark_bridge.base.errors import quiet_when_abandoned
from structable.spark_bridge.base.python_workers import freeze_imports
from structable.spark_bridge.base.store_client import StoreClient
from structable.spark_bridge.write.grouping import flags
from structable.spark_bridge.write.staging import StagingReport, report_batch, stage_task, typed_batches
from structable.spi import (
    CHANGE_TYPE,
    FieldSizeLimitError,
    InvalidFieldError,
    Row,
    RowKind,
    ScanSplit,
    TableNotFoundError,
    TableSpecification,
    UnsupportedOperationError,
    WriteJob,
)
from structable.spi.authors import RowShape

from .binding import BoundJoin
from .few_changes import RightImages
from .joining import Counts
from .kernel import Difference, Kernel, Values
from .rebuild import difference_batches

if TYPE_CHECKING:
    import numpy.typing as npt

    Flags: TypeAlias = npt.NDArray[np.bool_]

# Another attempt of the task would fail in the same way.
_REFUSALS = (FieldSizeLimitError, InvalidFieldError, TableNotFoundError, UnsupportedOperationError)
_SPLIT_ROWS = 1 << 40
"""A number above the changes of any split."""


@dataclass(frozen=True, slots=True)
class SplitRows:
    """Yields the rows of the splits with the given numbers, under other names."""

    store: StoreClient
    splits: tuple[ScanSplit, ...]
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with quiet_when_abandoned():
            for _, batch in _read(self.store, self.splits, batches):
                yield pa.RecordBatch.from_arrays(batch.columns, names=list(self.names))


@dataclass(frozen=True, slots=True)
class ReferringRows:
    """Yields the differences of left rows that refer to changed rows, from the splits with the given numbers."""

    store: StoreClient
    splits: tuple[ScanSplit, ...]
    images: RightImages

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _, batch in _read(self.store, self.splits, batches):
            yield self.images.differences(batch)


@dataclass(frozen=True, slots=True)
class ChangedKeys:
    """Yields the keys of a feed's changes that may change the result; a key may come several times.

    Two more columns are `seq`, which grows from change to change, and `present`, whether the row exists after it. An
    update that leaves all watched columns equal is left out, change by change, as in `Kernel.matters`.
    """

    store: StoreClient
    splits: tuple[ScanSplit, ...]
    key: tuple[str, ...]
    watched: tuple[str, ...] | None  # None: each change matters
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        before: pa.RecordBatch | None = None  # the last row of the batch before, if it is a preimage
        seen, last = 0, -1
        with quiet_when_abandoned():
            for place, batch in _read(self.store, self.splits, batches):
                if place != last:
                    seen, last, before = 0, place, None
                if before is not None:
                    (batch,) = pa.Table.from_batches([before, batch]).combine_chunks().to_batches()
                preimages = _is(batch, RowKind.UPDATE_BEFORE)
                before = batch.slice(batch.num_rows - 1) if preimages[-1] else None
                # A preimage stays with its postimage: comparing them decides whether the change matters.
                rest = batch if before is None else batch.slice(0, batch.num_rows - 1)
                yield self._keys(rest, preimages[: rest.num_rows], place * _SPLIT_ROWS + seen)
                seen += rest.num_rows

    def _keys(self, batch: pa.RecordBatch, preimages: Flags, first: int) -> pa.RecordBatch:
        matters = ~preimages
        if self.watched is not None:
            before = np.flatnonzero(preimages)
            same = ~_different(batch.take(before), batch.take(before + 1), self.watched)
            matters[before[same] + 1] = False
        places = np.flatnonzero(matters)
        chosen = batch.take(places)
        present = pa.array(~_is(chosen, RowKind.DELETE))
        keys = [chosen.column(name) for name in self.key]
        return pa.RecordBatch.from_arrays([*keys, pa.array(places + first), present], names=list(self.names))


def _read(
    store: StoreClient, splits: tuple[ScanSplit, ...], batches: Iterable[pa.RecordBatch]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    for given in batches:
        for place in given.column(0).to_numpy().tolist():
            for batch in store.read_split(splits[place]):
                freeze_imports()
                if batch.num_rows:
                    yield place, batch


def _is(batch: pa.RecordBatch, kind: RowKind) -> Flags:
    return flags(pc.equal(batch.column(CHANGE_TYPE), pa.scalar(kind.change_type)), null=False)


def _different(before: pa.RecordBatch, after: pa.RecordBatch, columns: tuple[str, ...]) -> Flags:
    """Return a mask of the pairs of rows that differ, as `kernel.is_same` compares."""
    found = np.zeros(before.num_rows, dtype=bool)
    for name in columns:
        one, other = before.column(name), after.column(name)
        found |= flags(one.is_null(), null=False) != flags(other.is_null(), null=False)
        unequal = flags(pc.not_equal(one, other), null=False)
        if pa.types.is_floating(one.type):
            unequal &= ~(
                flags(one.is_null(nan_is_null=True), null=False) & flags(other.is_null(nan_is_null=True), null=False)
            )
        found |= unequal
    return found


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """Joins rows by a joiner, and compares them with the result, in Python.

    Attributes
    ----------
    bound : BoundJoin
        The join.
    left, right, result : tuple of int
        The positions of the columns of the three tables, in the order in which the kernel reads them.
    there : tuple of int
        The positions of the three columns that are null where there is no row.
    key : tuple of int
        The positions of the key's columns.
    """

    bound: BoundJoin
    left: tuple[int, ...]
    right: tuple[int, ...]
    result: tuple[int, ...]
    there: tuple[int, ...]
    key: tuple[int, ...]

    def differences(self, kernel: Kernel, batches: Iterable[pa.RecordBatch], counts: Counts) -> Iterator[Difference]:
        """Yield the differences from the result; count the rows."""
        bound = self.bound
        shapes = [
            RowShape(spec.name, columns, spec.primary_key)
            for spec, columns in ((bound.left, bound.left_columns), (bound.right, bound.right_columns))
        ]
        for batch in batches:
            counts.affected += batch.num_rows
            left, right = (
                _python_rows(batch, spec, columns, places)
                for spec, columns, places in (
                    (bound.left, bound.left_columns, self.left),
                    (bound.right, bound.right_columns, self.right),
                )
            )
            old = _python_rows(batch, bound.result, kernel.columns, self.result)
            keys = _python_rows(batch, bound.result, bound.result.primary_key, self.key)
            there = [batch.column(place).is_valid().to_pylist() for place in self.there]
            for key, ours, theirs, was, a, b, c in zip(keys, left, right, old, *there, strict=True):
                joined = kernel.joined(
                    Row(shapes[0], ours) if a else None,
                    Row(shapes[1], theirs) if b else None,
                )
                difference = kernel.difference(key, was if c else None, joined)
                if difference is not None:
                    yield difference


def _python_rows(
    batch: pa.RecordBatch, spec: TableSpecification, columns: tuple[str, ...], places: tuple[int, ...]
) -> Iterator[Values]:
    some = pa.RecordBatch.from_arrays([batch.column(place) for place in places], names=list(columns))
    (typed,) = typed_batches(spec, [some])
    return zip(*(column.to_pylist() for column in typed.columns), strict=True)


class _JoinerError(Exception):
    """Carries the error of a joiner, its argument, out of `stage`."""


@dataclass(frozen=True, slots=True)
class DifferenceStaging:
    """Stages the differences among the rows of a task, for `mapInArrow`; yields a pickled report.

    Without `joined`, the rows are result rows with the kind of difference, null where there is none. With `referring`,
    they are made by it from the numbers of splits.
    """

    store: StoreClient
    bound: BoundJoin
    job: WriteJob
    joined: JoinedRows | None = None
    referring: ReferringRows | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield report_batch(self._staged(batches))
        except _JoinerError as error:
            yield report_batch(error.args[0])
        except _REFUSALS as error:
            yield report_batch(error)

    def _staged(self, batches: Iterable[pa.RecordBatch]) -> StagingReport[Counts]:
        counts = Counts()
        given = batches if self.referring is None else self.referring(batches)
        filled = (batch for batch in given if batch.num_rows)
        rows = self._different(filled, counts) if self.joined is None else self._joined(self.joined, filled, counts)
        first = next(rows, None)
        if first is None:
            return StagingReport(None, counts)
        freeze_imports()
        with self.store.connect() as storage:
            return StagingReport(stage_task(storage, self.job, chain((first,), rows)), counts)

    def _different(self, batches: Iterable[pa.RecordBatch], counts: Counts) -> Iterator[pa.RecordBatch]:
        for batch in typed_batches(self.bound.result, batches):
            counts.affected += batch.num_rows
            kinds = batch.column(CHANGE_TYPE)
            if kinds.null_count:
                batch = batch.filter(kinds.is_valid())
            counts.inserted += int(_is(batch, RowKind.INSERT).sum())
            counts.updated += int(_is(batch, RowKind.UPDATE_AFTER).sum())
            counts.deleted += int(_is(batch, RowKind.DELETE).sum())
            if batch.num_rows:
                yield batch

    def _joined(
        self, joined: JoinedRows, batches: Iterable[pa.RecordBatch], counts: Counts
    ) -> Iterator[pa.RecordBatch]:
        kernel = Kernel(self.bound)

        def differences() -> Iterator[Difference]:
            try:
                yield from joined.differences(kernel, batches, counts)
            except Exception as error:
                raise _JoinerError(error) from error

        return difference_batches(kernel, differences(), counts)
