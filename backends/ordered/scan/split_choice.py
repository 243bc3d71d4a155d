"""Decisions from a sample of a table's rows: its statistics, and the path that the splits of a plan read.

`plan` only ranks paths; whether an index pays depends on the table's content.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from itertools import islice

from structable.backends.ordered.engine import EngineSnapshot, SharedSplits, SplitPlan, SplitSource
from structable.backends.ordered.schema.binding import TableBinding
from structable.spi import Range, TableStatistics
from structable.spi.authors import COUNTED_ROWS, Scan, check_range, conjunction

from .execution import pair_filter
from .intervals import Interval
from .planning import ScanPath, plan, plan_rows
from .request import KeyedRequest

_FEW_ENTRIES = 2_000
_ENTRIES_OF_A_SPLIT = 500
_COUNTED_INTERVALS = 64
_LEAST_SPOTS, _MOST_SPOTS = 4, 256
_SPOTS = 16
_SAMPLE = 1_024
_ROWS_PER_FETCH = 8
"""The approximate number of rows read sequentially in the time in which an index finds and fetches one."""


def divide_scan(
    engine: SplitSource,
    source: SplitSource | SharedSplits,
    snapshot: EngineSnapshot,
    binding: TableBinding,
    request: KeyedRequest,
    splits: int,
) -> tuple[ScanPath, SplitPlan]:
    """Return the path of a divided scan, and a snapshot that `source` divides for it.

    The path is the same as for a scan, unless its index finds too many rows. The index's entries are counted up to a
    few thousand; beyond that, rows from all over the table are sampled. Planning is therefore cheap for any table, and
    an index never costs many times as much as reading the rows themselves.
    """
    feed = None if binding.schema.feed is None else binding.schema.feed.space
    divide = partial(source.plan_splits, feed=feed) if feed else source.plan_splits
    path, rows = plan(binding, request), plan_rows(binding, request)
    if path.index is None or not engine.traits.plans_hold_everything:
        return rows, divide(*_hull(binding, rows), splits)
    entries = _count(snapshot, path.intervals)
    if entries <= _FEW_ENTRIES:
        worth = max(1, -(-entries // _ENTRIES_OF_A_SPLIT))
        return path, divide(*_hull(binding, path), min(splits, worth))
    spots = splits if _LEAST_SPOTS <= splits <= _MOST_SPOTS else _SPOTS
    divided = divide(*_hull(binding, rows), spots)
    try:
        selective = _share(engine, binding, divided, rows, path) * _ROWS_PER_FETCH < 1
    except BaseException:
        divided.release()
        raise
    if not selective and spots == splits:
        return rows, divided
    divided.release()
    path = path if selective else rows
    return path, divide(*_hull(binding, path), splits)


def _hull(binding: TableBinding, path: ScanPath) -> Interval:
    """Return the smallest interval that covers all reads of a path; an empty one if it reads nothing."""
    nothing = binding.keys.rows_begin
    return (path.intervals[0][0], path.intervals[-1][1]) if path.intervals else (nothing, nothing)


def _count(snapshot: EngineSnapshot, intervals: list[Interval]) -> int:
    """Return the approximate number of entries, exact if there are few."""
    counted = 0
    some = intervals[:_COUNTED_INTERVALS]
    for begin, end in some:
        with closing(snapshot.scan(begin, end)) as entries:  # type: ignore[type-var] # a generator
            counted += sum(1 for _ in islice(entries, _FEW_ENTRIES + 1 - counted))
        if counted > _FEW_ENTRIES:
            break
    return counted * len(intervals) // max(1, len(some))


def _share(engine: SplitSource, binding: TableBinding, divided: SplitPlan, rows: ScanPath, path: ScanPath) -> float:
    """Return the approximate share of the rows, read in their own order, that the index would find."""
    condition = conjunction(path.pushed)
    if condition is None:
        return 1.0
    matches = pair_filter(binding, condition)
    seen = found = 0
    for state in divided.states:
        with closing(engine.read_split(state, rows.intervals)) as pairs:  # type: ignore[type-var] # a generator
            for pair in islice(pairs, -(-_SAMPLE // len(divided.states))):
                seen += 1
                found += matches(pair)
    return found / seen if seen else 0.0


def table_statistics(
    engine: SplitSource, binding: TableBinding, snapshot: EngineSnapshot, range_: Range
) -> TableStatistics:
    """Count the rows of a range in a snapshot if there are few; otherwise estimate their number.

    See `Storage.statistics`.
    """
    if binding.log:
        check_range(binding.spec, range_)
        return TableStatistics(0, 0, exact=True)
    counted = bytes_ = 0
    for begin, end in plan_rows(binding, KeyedRequest.of(binding, Scan((range_,)))).intervals:  # one, or none
        with closing(snapshot.scan(begin, end)) as pairs:  # type: ignore[type-var] # a generator
            for key, value in islice(pairs, COUNTED_ROWS + 1):
                counted += 1
                bytes_ += len(key) + len(value)
        if counted > COUNTED_ROWS:
            rows, size = engine.estimate(begin, end)
            return TableStatistics(max(rows, counted), max(size, counted), exact=False)
    return TableStatistics(counted, bytes_, exact=True)
