"""What Spark's tasks do in a large step: they read splits, find changed keys, and stage differences."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from structable.spark_bridge.errors import quiet_when_abandoned
from structable.spark_bridge.garbage_collection import freeze_imports
from structable.spark_bridge.staging import typed_batches
from structable.spark_bridge.store_client import StoreClient
from structable.spi import (
    FieldSizeLimitError,
    InvalidFieldError,
    Row,
    RowKind,
    RowShape,
    ScanSplit,
    StagedWrite,
    TableNotFoundError,
    TableSpecification,
    UnsupportedOperationError,
    WriteJob,
)
from structable.spi.changes import CHANGE_TYPE

from .binding import BoundJoin
from .joining import Counts
from .kernel import Difference, Kernel, Values
from .rebuild import difference_batches

__all__ = ["ChangedKeys", "JoinedRows", "Report", "SplitRows", "Staging"]

# Another attempt of the task would end the same.
_REFUSALS = (FieldSizeLimitError, InvalidFieldError, TableNotFoundError, UnsupportedOperationError)
_SPLIT_ROWS = 1 << 40
"""Above the number of changes of any split."""


@dataclass(frozen=True, slots=True)
class SplitRows:
    """Yields the rows of splits, whose numbers it is given, under other names."""

    store: StoreClient
    splits: tuple[ScanSplit, ...]
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with quiet_when_abandoned():
            for _, batch in _read(self.store, self.splits, batches):
                yield pa.RecordBatch.from_arrays(batch.columns, names=list(self.names))


@dataclass(frozen=True, slots=True)
class ChangedKeys:
    """Yields the keys of a feed's changes that may change the result; a key may come several times.

    Beside the key it has `seq`, which grows from change to change, and `present`, whether the row exists after it. An
    update that leaves all watched columns equal is left out, change by change, as `Kernel.matters` has it.
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
                count = batch.num_rows
                kinds = batch.column(CHANGE_TYPE)
                preimage = pc.equal(kinds, RowKind.UPDATE_BEFORE.change_type)
                before = batch.slice(count - 1) if preimage[-1].as_py() else None
                # A preimage goes out with its postimage, of which it tells whether that matters.
                rest = batch.slice(0, count - 1) if before is not None else batch
                yield self._keys(rest, preimage.slice(0, rest.num_rows), place * _SPLIT_ROWS + seen)
                seen += rest.num_rows

    def _keys(self, batch: pa.RecordBatch, preimage: pa.BooleanArray, first: int) -> pa.RecordBatch:
        matters = pc.invert(preimage)
        updates = pc.indices_nonzero(preimage).cast(pa.int64())
        if self.watched is not None and len(updates):
            different = _different(batch, updates, pc.add(updates, 1), self.watched)
            unchanged = pc.add(updates, 1).filter(pc.invert(different))
            matters = pc.and_(matters, pc.invert(pc.is_in(_numbers(batch.num_rows), unchanged)))
        places = _numbers(batch.num_rows).filter(matters)
        present = pc.not_equal(batch.column(CHANGE_TYPE).take(places), RowKind.DELETE.change_type)
        keys = [batch.column(name).take(places) for name in self.key]
        return pa.RecordBatch.from_arrays([*keys, pc.add(places, first), present], names=list(self.names))


def _read(
    store: StoreClient, splits: tuple[ScanSplit, ...], batches: Iterable[pa.RecordBatch]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    for given in batches:
        for place in given.column(0).to_pylist():
            for batch in store.read_split(splits[place]):
                freeze_imports()
                if batch.num_rows:
                    yield place, batch


def _numbers(count: int) -> pa.Int64Array:
    return pa.array(range(count), pa.int64())


def _different(
    batch: pa.RecordBatch, before: pa.Int64Array, after: pa.Int64Array, columns: tuple[str, ...]
) -> pa.BooleanArray:
    """Tell which pairs of rows differ, as `kernel.is_same` has it."""
    found: Any = pa.repeat(pa.scalar(value=False), len(before))
    for name in columns:
        column = batch.column(name)
        one, other = column.take(before), column.take(after)
        nulls = pc.not_equal(pc.is_null(one), pc.is_null(other))
        values = pc.not_equal(one, other).fill_null(False)
        if pa.types.is_floating(column.type):
            both = pc.and_(pc.is_nan(one), pc.is_nan(other)).fill_null(False)
            values = pc.and_not(values, both)
        found = pc.or_(found, pc.or_(nulls, values))
    return found


@dataclass(frozen=True, slots=True)
class Report:
    """What a task staged, or why what it was given is refused."""

    staged: StagedWrite | None = None
    counts: Counts = field(default_factory=Counts)
    refusal: Exception | None = None


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """Joins rows by a joiner, and compares them with the result, in Python.

    Attributes
    ----------
    bound : BoundJoin
        The join.
    left, right, result : tuple of int
        The places of the columns of the three tables, in the order in which the kernel reads them.
    there : tuple of int
        The places of the three columns that are null where there is no row.
    key : tuple of int
        The places of the key.
    """

    bound: BoundJoin
    left: tuple[int, ...]
    right: tuple[int, ...]
    result: tuple[int, ...]
    there: tuple[int, int, int]
    key: tuple[int, ...]

    def differences(self, kernel: Kernel, batches: Iterable[pa.RecordBatch], counts: Counts) -> Iterator[Difference]:
        """Yield what the result lacks; count the rows."""
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
    """Carries the error of a joiner out of `stage`."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class Staging:
    """Stages the differences among the rows of a task, for `mapInArrow`; yields a pickled `Report`.

    Without `joined`, the rows are those of the result, with the kind of difference, which is null where there is none.
    """

    store: StoreClient
    bound: BoundJoin
    job: WriteJob
    joined: JoinedRows | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            report = self._staged(batches)
        except _JoinerError as error:
            report = Report(refusal=error.error)
        except _REFUSALS as error:
            report = Report(refusal=error)
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(report)], pa.binary())], names=["report"])

    def _staged(self, batches: Iterable[pa.RecordBatch]) -> Report:
        task = TaskContext.get()
        assert task is not None
        counts = Counts()
        filled = (batch for batch in batches if batch.num_rows)
        rows = self._different(filled, counts) if self.joined is None else self._joined(self.joined, filled, counts)
        first = next(rows, None)
        if first is None:
            return Report(counts=counts)
        freeze_imports()
        with self.store.connect() as storage:
            staged = storage.stage(self.job, task.partitionId(), task.attemptNumber(), chain((first,), rows))
        return Report(staged, counts)

    def _different(self, batches: Iterable[pa.RecordBatch], counts: Counts) -> Iterator[pa.RecordBatch]:
        for batch in typed_batches(self.bound.result, batches):
            counts.affected += batch.num_rows
            kinds = batch.column(CHANGE_TYPE)
            if kinds.null_count:
                batch = batch.filter(kinds.is_valid())
                kinds = batch.column(CHANGE_TYPE)
            counts.inserted += _count(kinds, RowKind.INSERT)
            counts.updated += _count(kinds, RowKind.UPDATE_AFTER)
            counts.deleted += _count(kinds, RowKind.DELETE)
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


def _count(kinds: pa.Array[Any], kind: RowKind) -> int:
    return int(pc.sum(pc.equal(kinds, kind.change_type)).as_py() or 0)
