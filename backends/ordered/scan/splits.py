"""Scans divided among processes: the state of a split, and its rows as Arrow batches."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING

from structable.backends.base.bounded import next_rows
from structable.backends.base.ruled_batches import ComputedScan, planned_columns, stored_scan
from structable.backends.ordered.engine import (
    EngineSnapshot,
    Pair,
    RawRows,
    SharedSplits,
    SplitSource,
    Upcalls,
    rows_of_pairs,
)
from structable.backends.ordered.schema.binding import TableBinding
from structable.backends.ordered.table_schema import TableSchema
from structable.spi import Aggregation, FeedPosition, Filter, ScanPlan, ScanSplit, SnapshotHold
from structable.spi.authors import PlanScan, Scan, check_splits

from .execution import entry_without_row
from .intervals import Interval, contains
from .request import KeyedRequest
from .split_choice import divide_scan

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_FIRST_FETCH = 32
_FETCHED_AT_ONCE = 2_000


@dataclass(frozen=True, slots=True)
class _DividedScan:
    """The state that all splits of a plan share; each split carries a copy."""

    raw_schema: bytes
    columns: tuple[str, ...]
    residual: Filter | None
    intervals: list[Interval]  # of raw row keys, or of raw entries of the index
    index: str | None  # the field whose index finds the rows
    within: list[Interval] | None  # of the raw row keys that the index finds, the ones that count
    aggregation: Aggregation | None  # the aggregates that the split yields instead of rows
    computed: ComputedScan | None  # the computation of its batches from stored rows


def plan_table_scan(
    engine: SplitSource,
    binding: TableBinding,
    snapshot: EngineSnapshot,
    arguments: PlanScan,
    *,
    shared: SharedSplits | None = None,
    hold: Callable[[Callable[[], None]], SnapshotHold] = SnapshotHold,
) -> tuple[ScanPlan, int]:
    """Take a snapshot of a table and divide its scan, see `Storage.plan_scan`; return the snapshot's epoch as well.

    The path is chosen by `snapshot`, an earlier one, or by the snapshot of `shared`, which is then divided. `hold`
    makes the plan's hold.
    """
    splits = check_splits(arguments.splits)
    names = planned_columns(binding.spec, arguments).names
    arguments, computed = stored_scan(binding.spec, arguments)
    columns = planned_columns(binding.spec, arguments)
    request = KeyedRequest.of(binding, Scan((arguments.range,), arguments.where))
    path, divided = divide_scan(engine, shared or engine, snapshot, binding, request, splits)
    index = None if path.index is None else path.index.field.name
    common = _DividedScan(
        binding.raw_schema,
        columns.read,
        path.residual,
        path.intervals,
        index,
        path.within,
        columns.aggregation,
        computed,
    )
    states = [pickle.dumps((common, state)) for state in divided.states]
    # Entries of one value are in the order of the keys.
    aggregates = columns.aggregation is not None or (computed is not None and computed.aggregation is not None)
    ordered = not aggregates and not binding.keyless and (index is None or path.sort_by is None)
    feed, position = binding.schema.feed, None
    if feed is not None:
        assert divided.version is not None, "an engine with feeds gives its plans a version"
        position = FeedPosition(feed.token, divided.version)
    held = hold(divided.release)
    plan = ScanPlan(binding.spec, names, states, held, ordered=ordered, position=position)
    return plan, divided.epoch


@lru_cache(maxsize=64)
def _bound(raw_schema: bytes) -> TableBinding:
    return TableBinding(TableSchema.decode(raw_schema), raw_schema)


def reading_upcalls() -> Upcalls:
    """Return the upcalls of an engine that reads a split without being started."""
    return Upcalls(
        lambda raw, steps: _bound(steps[0].schema).applied(raw, steps),
        lambda raw, steps, others: _bound(steps[0].schema).fits(raw, steps, others),
        lambda key, value, steps: None,
        lambda key, before, after, steps: None,
        {},
    )


def read_table_split(engine: SplitSource, split: ScanSplit) -> Iterator[RecordBatch]:
    """Yield the rows of a split as Arrow batches; see `Storage.read_split`."""
    split.require_open()
    from structable.backends.ordered.arrow.batch_filters import matching_batches
    from structable.spi.arrow import partial_aggregates

    # A split is itself a pickle: its state is as trustworthy as the split.
    divided, state = pickle.loads(split.state)
    binding = _bound(divided.raw_schema)
    columns, where = divided.columns, divided.residual
    rows: Iterator[RawRows]
    if divided.index is None:
        read = {*columns, *(() if where is None else where.fields())}
        rows = engine.read_rows(state, divided.intervals, keyed=not read.isdisjoint(binding.spec.primary_key))
    else:
        entries = engine.read_split(state, divided.intervals)
        rows = rows_of_pairs(_fetched(engine, binding, divided, state, entries))
    batches = _while_held(split, matching_batches(binding.schema, columns, where, rows))
    if divided.computed is not None:
        return _while_held(split, divided.computed.batches(batches))
    if divided.aggregation is None:
        return batches
    return _while_held(split, partial_aggregates(binding.spec, divided.aggregation, batches))


def _fetched(
    engine: SplitSource, binding: TableBinding, divided: _DividedScan, state: bytes, entries: Iterator[Pair]
) -> Iterator[Pair]:
    """Yield the rows of index entries."""
    index = binding.indexes[str(divided.index)]
    raw_keys: Iterator[bytes] = map(index.row_key, map(itemgetter(0), entries))
    if divided.within is not None:
        raw_keys = filter(contains(divided.within), raw_keys)
    most = _FIRST_FETCH
    while chunk := sorted(islice(raw_keys, most)):
        values = engine.read_planned(state, chunk)
        most = next_rows(values, _FETCHED_AT_ONCE)
        for raw_key, raw in zip(chunk, values, strict=True):
            if raw is None:
                raise entry_without_row(binding, index, raw_key)
            yield raw_key, raw


def _while_held(split: ScanSplit, batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    """Yield batches while the plan's snapshot is held; the reference to the split also holds it."""
    for batch in batches:
        split.require_open()
        yield batch
    split.require_open()
