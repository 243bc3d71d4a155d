"""Changes divided among processes: the state of a split, and its changes as Arrow batches."""

from __future__ import annotations

import os
import pickle
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING

from structable.backends.base.feed_marks import FeedRequest
from structable.backends.ordered.codec.change_records import begins_with_postimage, count_records
from structable.backends.ordered.engine import Engine, EngineSnapshot
from structable.backends.ordered.schema.binding import TableBinding
from structable.backends.ordered.schema.catalog import Catalog
from structable.spi import ScanSplit, UnsupportedOperationError

from .parts import FeedPart, parts_of
from .source import FeedBound, FeedSource, bound_feed

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_MARK = b"changes:"
_ENTRY_BYTES = 100
"""The cost of an entry besides its payload."""
_CANDIDATES = 64
"""The number of candidate bounds kept for each split."""


@dataclass(frozen=True, slots=True)
class _DividedFeed:
    """The part that a split reads. If `process` is set, only that process can read it."""

    raw_schema: bytes
    columns: tuple[str, ...]
    parts: list[FeedPart]
    process: int | None


def divide_changes(
    snapshot: EngineSnapshot, binding: TableBinding, request: FeedRequest, splits: int, process: int | None
) -> list[bytes]:
    """Return the states of about `splits` splits of a request; their sequence is the order of its changes.

    `process` is the only process that can read them, or None.
    """
    parts = parts_of(request)
    if request.net or any(part.netted for part in parts):
        shares = -(-_count_changes(snapshot, binding, parts, splits) // max(1, len(parts)))
        parts = [replace(part, share=share, shares=shares) for part in parts for share in range(shares)]
    else:
        parts = [one for part in parts for one in _divided(snapshot, binding, part, splits)]
    count = max(1, min(splits, len(parts)))
    edges = [len(parts) * number // count for number in range(count + 1)]
    return [
        _MARK + pickle.dumps(_DividedFeed(binding.raw_schema, request.columns, parts[begin:end], process))
        for begin, end in pairwise(edges)
    ]


def _count_changes(snapshot: EngineSnapshot, binding: TableBinding, parts: list[FeedPart], most: int) -> int:
    """Return the number of changes in parts, but at most `most`."""
    feed = bound_feed(binding).space
    count = 0
    for part in parts:
        with closing(snapshot.entries(feed, part.begin.version - 1, part.end.version - 1)) as entries:
            for entry in entries:
                count += count_records(entry.payload)
                if count >= most:
                    return most
    return count


def _divided(snapshot: EngineSnapshot, binding: TableBinding, part: FeedPart, splits: int) -> list[FeedPart]:
    """Divide a part into parts of about equal size that keep the two images of a change together."""
    if splits == 1:
        return [part]
    feed = bound_feed(binding).space
    size, step = 0, 1
    candidates: list[tuple[int, FeedBound]] = []
    with closing(snapshot.entry_sizes(feed, part.begin.version - 1, part.end.version - 1)) as entries:
        for version, chunk, entry_size in entries:
            if size >= (candidates[-1][0] + step if candidates else 1):
                candidates.append((size, FeedBound(version, chunk)))
                if len(candidates) > _CANDIDATES * splits:
                    candidates = candidates[1::2]
                    step = size // len(candidates)
            size += entry_size + _ENTRY_BYTES
    bounds = [part.begin]
    for number in range(1, splits):
        at = bisect_left(candidates, size * number // splits, key=itemgetter(0))
        if at < len(candidates):
            bound = _between_pairs(snapshot, binding, feed, candidates[at][1])
            if bounds[-1] < bound < part.end:
                bounds.append(bound)
    return [replace(part, begin=begin, end=end) for begin, end in pairwise([*bounds, part.end])]


def _between_pairs(snapshot: EngineSnapshot, binding: TableBinding, feed: bytes, bound: FeedBound) -> FeedBound:
    """Return the first bound from one on that is not between the two images of a change."""
    if bound.chunk and binding.feeds_images:
        with closing(snapshot.entries(feed, bound.version - 1, bound.version, bound.chunk)) as entries:
            for _, chunk, _, payload in entries:
                if not begins_with_postimage(payload):
                    return FeedBound(bound.version, chunk)
        return FeedBound(bound.version + 1)
    return bound


def reads_changes(split: ScanSplit) -> bool:
    """Return whether a split reads changes, which needs a connected store."""
    return split.state.startswith(_MARK)


def read_change_split(engine: Engine, catalog: Catalog, split: ScanSplit) -> Iterator[RecordBatch]:
    """Yield the changes of a split as Arrow batches; see `ChangeFeed.plan`."""
    from .batches import change_batches

    # A split is itself a pickle: its state is as trustworthy as the split.
    divided: _DividedFeed = pickle.loads(split.state[len(_MARK) :])
    if divided.process not in (None, os.getpid()):
        raise UnsupportedOperationError(
            f"the store lives in one process: this split belongs to process {divided.process} and cannot be read in "
            f"{os.getpid()}"
        )
    binding = catalog.bind(divided.raw_schema)
    source = FeedSource(engine, catalog, binding.spec.name, bound_feed(binding))
    return change_batches(source, binding, divided.columns, divided.parts)
