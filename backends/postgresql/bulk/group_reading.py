"""Partial aggregates that the server computes, as Arrow batches; sums come as texts, which may have any digits."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from structable.backends.postgresql.driver.connection import ServerConnection
from structable.spi import Aggregation, Field
from structable.spi.arrow_aggregates import aggregate_schema
from structable.spi.fitting_sums import fitting_batches
from structable.spi.rules.aggregates import result_fields
from structable.spi.table_options import AggregateFunction

from .row_reading import copied_arrays
from .split_state import SplitState

__all__ = ["read_groups"]

_WIDEST = 76
"""Digits of Arrow's widest decimals, more than any sum of a table has."""


def read_groups(connection: ServerConnection, state: SplitState, aggregation: Aggregation) -> Iterator[pa.RecordBatch]:
    """Yield the groups of a split, in no order; if they are not read to their end, the connection is closed.

    The connection is in a transaction of the plan's snapshot, after `UNSYNCHRONISED`.
    """
    fields = result_fields(state.spec, aggregation)
    sums = {str(one) for one in aggregation.functions if one.function is AggregateFunction.SUM}
    sent = [Field.string(field.name) if field.name in sums else field for field in fields]
    schema = aggregate_schema(state.spec, aggregation)
    for arrays in copied_arrays(connection, state.whole_query, sent):
        columns = [
            array.cast(pa.decimal256(_WIDEST, field.scale or 0)) if field.name in sums else array
            for array, field in zip(arrays, fields, strict=True)
        ]
        yield from fitting_batches(aggregation, pa.table(columns, names=schema.names), schema)
