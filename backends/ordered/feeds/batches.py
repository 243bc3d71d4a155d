"""Changes as Arrow batches: the columns of their images, followed by the columns of a change feed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa

from structable.backends.ordered.arrow.buffers import Array, Integers, buffer_of, make_array, select
from structable.backends.ordered.arrow.byte_columns import ByteColumn
from structable.backends.ordered.arrow.decoder import ArrowDecoder
from structable.backends.ordered.codec.change_records import HAS_NUMBER, KINDS, NUMBER_BYTES, NUMBERS
from structable.backends.ordered.engine import SPACE_BYTES, FeedEntry
from structable.backends.ordered.schema.binding import TableBinding
from structable.spi import DataCorruptionError
from structable.spi.arrow import feed_schema

from .parts import FeedPart, Stamped, net_records_of
from .source import FeedSource

_BATCH_ROWS = 8192
_BATCH_BYTES = 16 << 20
_NAMES: Array = pa.array([kind.change_type for kind in KINDS])
_COUNT = 4


def change_batches(
    source: FeedSource, binding: TableBinding, columns: tuple[str, ...], parts: Sequence[FeedPart]
) -> Iterator[pa.RecordBatch]:
    """Yield the changes of parts as batches of these columns and the feed's own columns."""
    decoder = ArrowDecoder(binding.schema, columns)
    schema = feed_schema(binding.spec, columns)
    for part in parts:
        if part.netted:
            yield from _net_batches(decoder, schema, net_records_of(source, binding, part))
            continue
        for page in source.pages(part.begin, part.end):
            yield from _page_batches(decoder, schema, page)


def _net_batches(decoder: ArrowDecoder, schema: pa.Schema, records: Iterator[Stamped]) -> Iterator[pa.RecordBatch]:
    some: list[Stamped] = []
    size = 0
    for one in records:
        some.append(one)
        size += len(one.record[2])
        if len(some) == _BATCH_ROWS or size > _BATCH_BYTES:
            yield _net_batch(decoder, schema, some)
            some, size = [], 0
    if some:
        yield _net_batch(decoder, schema, some)


def _net_batch(decoder: ArrowDecoder, schema: pa.Schema, some: list[Stamped]) -> pa.RecordBatch:
    records, versions, times = zip(*some, strict=True)
    kinds, raw_keys, raws = zip(*records, strict=True)
    images = decoder.decode_batch(raw_keys, raws)
    numbers = np.fromiter(map(NUMBERS.__getitem__, kinds), np.int64, len(some))
    return _batch(images, schema, numbers, np.array(versions, np.int64), np.array(times, np.int64))


def _batch(
    images: pa.RecordBatch, schema: pa.Schema, kinds: Integers, versions: Integers, times: Integers
) -> pa.RecordBatch:
    added = [
        select(_NAMES, kinds),
        make_array(pa.int64(), len(versions), None, buffer_of(versions)),
        make_array(pa.timestamp("us", tz="UTC"), len(times), None, buffer_of(times)),
    ]
    return pa.RecordBatch.from_arrays([*images.columns, *added], schema=schema)


def _page_batches(decoder: ArrowDecoder, schema: pa.Schema, page: list[FeedEntry]) -> Iterator[pa.RecordBatch]:
    """Yield the records of a page, cut from its bytes without a loop over the records."""
    payloads = [entry.payload for entry in page]
    whole = pa.py_buffer(b"".join(payloads))
    ends = np.cumsum(np.fromiter(map(len, payloads), np.int64, len(page)))
    counts, kinds, edges = _located(whole, ends)
    versions = np.repeat(np.fromiter((entry.version for entry in page), np.int64, len(page)), counts)
    times = np.repeat(np.fromiter((entry.time for entry in page), np.int64, len(page)), counts)
    for begin in range(0, len(kinds), _BATCH_ROWS):
        rows = slice(begin, begin + _BATCH_ROWS)
        key_begins, row_begins, row_ends = edges[:, rows]
        # A stored key lacks the space at its head.
        keys = ByteColumn(key_begins - SPACE_BYTES, row_begins, whole)
        images = decoder.decode_columns(keys, ByteColumn(row_begins, row_ends, whole))
        yield _batch(images, schema, kinds[rows], versions[rows], times[rows])


def _located(whole: pa.Buffer, ends: Integers) -> tuple[Integers, Integers, Integers]:
    """Find the records in adjacent entries, as `codec.change_records` packs them.

    Returns the number of records of each entry, the kind of each record, and in three rows the offsets of its key, of
    its row, and of the row's end.
    """
    begins = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    counts = _numbers(whole, "<u4", begins, 1)[:, 0]
    ends = ends - np.where(counts & HAS_NUMBER, NUMBER_BYTES, 0)
    counts &= HAS_NUMBER - 1
    places = np.cumsum(counts) - counts
    total = int(counts.sum())
    kinds, edges = np.empty(total, np.int64), np.empty((3, total), np.int64)
    for count in np.unique(counts[counts > 0]).tolist():
        # All entries with the same number of records at once: one row of each array for each.
        entries = np.flatnonzero(counts == count)
        at = begins[entries] + _COUNT
        key_sizes = _numbers(whole, "<u4", at + count, count)
        row_sizes = _numbers(whole, "<u4", at + 5 * count, count)
        row_ends = (at + 9 * count)[:, None] + np.cumsum(key_sizes + row_sizes, axis=1)
        if (row_ends[:, -1] != ends[entries]).any():
            raise DataCorruptionError("an entry of a change feed cannot be decoded: its sizes do not add up")
        records = places[entries][:, None] + np.arange(count)
        kinds[records] = _numbers(whole, "u1", at, count)
        row_begins = row_ends - row_sizes
        edges[:, records] = row_begins - key_sizes, row_begins, row_ends
    if total and kinds.max() >= len(KINDS):
        raise DataCorruptionError("an entry of a change feed cannot be decoded: it has a record of an unknown kind")
    return counts, kinds, edges


def _numbers(whole: pa.Buffer, code: str, at: Integers, count: int) -> Integers:
    """Return `count` adjacent numbers from each offset on, a row of them for each."""
    dtype = np.dtype((code, (count,)))
    if (at < 0).any() or (at + dtype.itemsize > whole.size).any():
        raise DataCorruptionError("an entry of a change feed cannot be decoded: it ends early")
    # A view with a stride of one byte has every offset as an index.
    flat = np.ndarray((whole.size - dtype.itemsize + 1,), dtype, cast(Any, whole), strides=(1,))
    return flat[at].astype(np.int64)
