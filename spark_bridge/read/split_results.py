"""Batches of a split as Spark takes them: at most the rows that a scan wants, and small decimals as integers.

The JVM makes its own decimals from integers much faster than from Arrow's decimals. A split may give fewer rows than it
has; Spark takes the rows of the scan from the rows of all splits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from structable.spark_bridge.jvm.scan_requests import ReadRequest, Top


def chosen(batches: Iterator[pa.RecordBatch], request: ReadRequest, order: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split that a scan wants, at most its limit; `order` is the order of the split."""
    if request.limit is None:
        return batches
    top = request.top
    if top is None or (top.columns == order[: len(top.columns)] and not top.descending):
        return _first(batches, request.limit)
    return _top(batches, request.limit, top)


def _first(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    left = limit
    for batch in batches:
        if batch.num_rows >= left:
            yield batch.slice(0, left)
            return
        left -= batch.num_rows
        yield batch


def _top(batches: Iterator[pa.RecordBatch], limit: int, top: Top) -> Iterator[pa.RecordBatch]:
    kept: pa.Table | None = None
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= 2 * limit:  # each row is sorted about twice at most
            kept, waiting, rows = _best(kept, waiting, limit, top), [], 0
    if waiting:
        kept = _best(kept, waiting, limit, top)
    if kept is not None:
        yield from kept.to_batches()


def _best(kept: pa.Table | None, batches: list[pa.RecordBatch], limit: int, top: Top) -> pa.Table:
    rows = pa.Table.from_batches(batches)
    if kept is not None:
        rows = pa.concat_tables([kept, rows])
    # Versions of Arrow have different options for the order of nulls; a column of its own works in all of them.
    columns: dict[str, Any] = {}
    keys: list[tuple[str, Literal["ascending", "descending"]]] = []
    for name in top.columns:
        columns |= {f"null {name}": pc.is_null(rows[name]), name: rows[name]}
        keys.append((f"null {name}", "descending" if top.nulls_first else "ascending"))
        keys.append((name, "descending" if top.descending else "ascending"))
    return rows.take(pc.sort_indices(pa.table(columns), keys).slice(0, limit)).combine_chunks()


def unscaled_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch in a schema that has longs for decimals of at most 18 digits."""
    columns = [
        _unscaled(column) if pa.types.is_decimal(column.type) and pa.types.is_int64(wanted.type) else column
        for column, wanted in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _unscaled(column: pa.Array[Any]) -> pa.Array[Any]:
    data: Any = column.buffers()[1]
    # Of 16 bytes, little-endian, the lower half.
    words = np.frombuffer(data, np.int64)[2 * column.offset : 2 * (column.offset + len(column)) : 2]
    nulls = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    integers: pa.Array[Any] = pa.array(np.ascontiguousarray(words), mask=nulls)
    return integers
