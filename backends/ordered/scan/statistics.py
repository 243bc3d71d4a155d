"""The statistics of a table: its first rows, and what the engine makes of them."""

from __future__ import annotations

from contextlib import closing
from itertools import islice

from structable.backends.ordered.engine import EngineSnapshot, SplitSource
from structable.backends.ordered.schema.binding import TableBinding
from structable.spi import Range, TableStatistics
from structable.spi.operations import Scan
from structable.spi.rules.ranges import check_range
from structable.spi.store_reports import COUNTED_ROWS

from .planning import plan_rows
from .request import KeyedRequest

__all__ = ["table_statistics"]


def table_statistics(
    engine: SplitSource, binding: TableBinding, snapshot: EngineSnapshot, range_: Range
) -> TableStatistics:
    """Count the rows of a range in a snapshot if there are few, and estimate their number else.

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
