"""Columns that staged rows have beside their fields: the row kind, the hidden key, and what the rows of a patch do."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from structable.backends.base.patches import PatchMarks
from structable.backends.postgresql.sql.names import HIDDEN_KEY
from structable.spi import Field, PatchArm, RowKind, TableSpecification, WriteMode
from structable.spi.rules.keyless import new_ids

from .staging import KIND_FIELD

__all__ = ["ARMS", "marked", "marks_of", "patch_marked"]

ARMS = tuple(PatchArm)
"""The arms of a patch, by their numbers in staged rows."""

_KEY_FIELD = Field.bytes(HIDDEN_KEY)
_PATCH_FIELDS = (Field.short("_arm"), Field.boolean("_required"), Field.bytes("_named"))
"""The last one has a bit for each column of fields, the lowest first; null is all of them."""
_PLACES = {kind: place for place, kind in enumerate(RowKind)}


def marks_of(spec: TableSpecification, mode: WriteMode) -> tuple[Field, ...]:
    """Return the additional columns of the rows of a job."""
    if mode is WriteMode.PATCH:
        return _PATCH_FIELDS
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


def patch_marked(batch: pa.RecordBatch, marks: PatchMarks) -> pa.RecordBatch:
    """Return a batch of a patch with its marks."""
    every = (1 << batch.num_columns) - 1
    width = batch.num_columns // 8 + 1
    values: tuple[tuple[list[object], pa.DataType], ...] = (
        ([ARMS.index(one.arm) for one in marks.distinct], pa.int16()),
        ([one.required for one in marks.distinct], pa.bool_()),
        ([None if one.named == every else one.named.to_bytes(width, "little") for one in marks.distinct], pa.binary()),
    )
    for field, (of_marks, kind) in zip(_PATCH_FIELDS, values, strict=True):
        batch = batch.append_column(field.name, marks.of_rows(of_marks, kind))
    return batch
