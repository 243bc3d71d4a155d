"""Columns that staged rows have beside their fields: the row kind, and the hidden key of a table without one."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from structable.backends.postgresql.sql.names import HIDDEN_KEY
from structable.spi import Field, RowKind, TableSpecification, WriteMode
from structable.spi.rules.keyless import new_ids

from .staging import KIND_FIELD

__all__ = ["marked", "marks_of"]


_KEY_FIELD = Field.bytes(HIDDEN_KEY)
_PLACES = {kind: place for place, kind in enumerate(RowKind)}


def marks_of(spec: TableSpecification, mode: WriteMode) -> tuple[Field, ...]:
    """Return the additional columns of the rows of a job."""
    return (*((KIND_FIELD,) if mode is WriteMode.CHANGES else ()), *((_KEY_FIELD,) if spec.keyless else ()))


def marked(spec: TableSpecification, batch: pa.RecordBatch, kinds: Sequence[RowKind] | None) -> pa.RecordBatch:
    """Return a batch with its marks."""
    if kinds is not None:
        places: pa.Array[pa.Int16Scalar] = pa.array([_PLACES[kind] for kind in kinds], pa.int16())
        batch = batch.append_column(KIND_FIELD.name, places)
    if spec.keyless:
        append_only = spec.table_options.append_only
        fields = batch.select([name for name in batch.schema.names if name in spec])
        rows = [{}] * batch.num_rows if append_only else fields.to_pylist()
        batch = batch.append_column(HIDDEN_KEY, pa.array(new_ids(spec, rows), pa.binary()))
    return batch
