"""Raw rows to record batches of those that a filter is true of; it is evaluated on Arrow columns, not row by row."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from structable.backends.ordered.engine import Pair
from structable.backends.ordered.table_schema import TableSchema
from structable.spi import Filter
from structable.spi.arrow import arrow_schema

from .batch_filters import compile_batch_filter
from .decoder import BATCH_BYTES, BATCH_ROWS, ArrowDecoder

__all__ = ["matching_batches"]


def matching_batches(
    schema: TableSchema, columns: tuple[str, ...], where: Filter | None, pairs: Iterator[Pair]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of raw keys and values for which a bound filter is true, in their order, as batches of columns."""
    if where is None:
        return ArrowDecoder(schema, columns).batches(pairs)
    decoded = ArrowDecoder(schema, tuple(dict.fromkeys([*columns, *where.fields()])))
    matches = compile_batch_filter(schema.spec, where)
    chosen = (batch.filter(matches(batch)).select(columns) for batch in decoded.batches(pairs))
    return _joined(chosen, arrow_schema(schema.spec, columns))


def _joined(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Join small batches; the first are yielded early, for readers that need a few rows only."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    wanted = 1
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= wanted or size >= BATCH_BYTES:
            yield _concatenated(held, schema)
            held, rows, size = [], 0, 0
            wanted = min(2 * wanted, BATCH_ROWS)
    if held:
        yield _concatenated(held, schema)


def _concatenated(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    columns = [pa.concat_arrays([batch.column(position) for batch in batches]) for position in range(len(schema))]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
