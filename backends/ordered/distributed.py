"""Scans divided among processes: what a split has to know, and its rows as Arrow batches."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from structable.spi import Filter, Range, ScanPlan, ScanSplit, SnapshotHold
from structable.spi.evaluation import compile_filter
from structable.spi.values import check_columns

from .binding import TableBinding
from .engine import Engine
from .intervals import contains
from .planning import plan_rows, scan_request
from .schema import TableSchema

if TYPE_CHECKING:
    from pyarrow import RecordBatch

__all__ = ["plan_table_scan", "read_table_split"]


def plan_table_scan(
    engine: Engine,
    binding: TableBinding,
    range_: Range,
    where: Filter | None,
    columns: Iterable[str] | None,
    splits: int,
) -> tuple[ScanPlan, int]:
    """Take a snapshot of a table and divide its scan, see `Storage.plan_scan`; return the snapshot's epoch as well."""
    if isinstance(splits, bool) or not isinstance(splits, int) or splits < 1:
        raise ValueError(f"splits is {splits!r}; it must be a whole number of at least 1")
    names = check_columns(binding.spec, columns) or binding.spec.field_names
    path = plan_rows(binding, scan_request(binding, (range_,), where=where))
    nothing = binding.keys.rows_begin
    begin, end = (path.intervals[0][0], path.intervals[-1][1]) if path.intervals else (nothing, nothing)
    divided = engine.plan_splits(begin, end, splits)
    common = (binding.raw_schema, names, path.residual, path.intervals if len(path.intervals) > 1 else None)
    states = [pickle.dumps((*common, state)) for state in divided.states]
    plan = ScanPlan(binding.spec.name, names, states, SnapshotHold(divided.release), ordered=True)
    return plan, divided.epoch


@lru_cache(maxsize=64)
def _bound(raw_schema: bytes) -> TableBinding:
    return TableBinding(TableSchema.decode(raw_schema), raw_schema)


def read_table_split(engine: Engine, split: ScanSplit) -> Iterator[RecordBatch]:
    """Yield the rows of a split as Arrow batches; see `Storage.read_split`."""
    split.require_open()
    from .arrow_codec import ArrowDecoder

    # A split is itself a pickle, from whoever made the plan: what is inside deserves the same trust.
    raw_schema, columns, residual, intervals, state = pickle.loads(split.state)
    binding = _bound(raw_schema)
    pairs = engine.read_split(state)
    if intervals is not None:
        inside = contains(intervals)
        pairs = (pair for pair in pairs if inside(pair[0]))
    if residual is not None:
        names = tuple(dict.fromkeys(residual.fields()))
        decode, predicate = binding.rows.projection(names), compile_filter(binding.spec, residual, names)
        pairs = (pair for pair in pairs if predicate(decode(*pair)))
    return _while_held(split, ArrowDecoder(binding.schema, columns).batches(pairs))


def _while_held(split: ScanSplit, batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    """Yield batches as long as the plan's snapshot is held, which the reference to the split does, too."""
    for batch in batches:
        split.require_open()
        yield batch
    split.require_open()
