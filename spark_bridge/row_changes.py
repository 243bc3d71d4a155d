"""Changed rows of UPDATE, MERGE and DELETE, and the patches that they become.

Spark's query gives each changed row with its kind, the row that it becomes, the fields that it had, and where a
statement assigns key fields, the key that it had.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from structable.spi import PatchArm, TableSpecification, UnsupportedOperationError, WriteMode
from structable.spi.arrow import arrow_schema
from structable.spi.bulk import PATCH_COLUMNS

from .staging import typed_batches
from .types import check_write_schema

__all__ = ["BEFORE", "CHANGES_OPTION", "check_changed_rows", "patches"]

CHANGES_OPTION = "structable.changes"
"""The option of a write whose rows are changed rows."""
BEFORE = "_before"
"""The hidden column of a catalog's table that has the fields outside the key; in a changed row, as they were read."""

_OPERATION = "__row_operation"
_ORIGINAL = "__original_row_id_"
_DELETE, _UPDATE, _INSERT = 1, 2, 3
_ARM, _SET, _ = PATCH_COLUMNS
_BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


def check_changed_rows(spec: TableSpecification, schema: StructType) -> None:
    """Check that changed rows of a schema fit a table, before any of them is computed; see `check_write_schema`."""
    rows = [column for column in schema.fields if not _is_beside(column.name)]
    check_write_schema(spec, StructType(rows), WriteMode.PATCH)


def patches(spec: TableSpecification, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a write job of mode patch that does what changed rows say.

    An updated row names the fields whose values differ. One whose key differs is deleted and inserted.
    """
    for batch in batches:
        yield from _patches(spec, batch)


def _is_beside(name: str) -> bool:
    return name in (_OPERATION, BEFORE) or name.startswith(_ORIGINAL)


def _patches(spec: TableSpecification, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    names: list[str] = batch.schema.names
    rows = _typed(spec, batch.select([name for name in names if not _is_beside(name)]))
    old_keys = _old_keys(spec, batch, rows)
    kinds = batch.column(_OPERATION)
    if not pc.all(pc.is_in(kinds, pa.array([_DELETE, _UPDATE, _INSERT], kinds.type))).as_py():
        raise UnsupportedOperationError(f"Spark gives rows of an unknown operation: {pc.unique(kinds).to_pylist()}")
    updated = pc.equal(kinds, _UPDATE)
    moved = pc.and_(updated, _differing(rows.select(spec.primary_key), old_keys))
    kept = pc.and_not(updated, moved)
    if pc.any(kept).as_py():
        chosen = rows.filter(kept)
        yield _patch(chosen, PatchArm.PRESENT, _changed(spec, chosen, batch.filter(kept)))
    gone = pc.or_(pc.equal(kinds, _DELETE), moved)
    if pc.any(gone).as_py():
        yield _patch(_only_keys(rows.schema, old_keys.filter(gone)), PatchArm.DELETE)
    new = pc.or_(pc.equal(kinds, _INSERT), moved)
    if pc.any(new).as_py():
        yield _patch(rows.filter(new), PatchArm.REPLACE)


def _typed(spec: TableSpecification, batch: pa.RecordBatch) -> pa.RecordBatch:
    return next(typed_batches(spec, (batch,)))


def _old_keys(spec: TableSpecification, batch: pa.RecordBatch, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the keys that rows had."""
    schema = arrow_schema(spec, list(spec.primary_key))
    columns: list[pa.Array[Any]] = [
        batch.column(_ORIGINAL + field.name).cast(field.type)
        if _ORIGINAL + field.name in batch.schema.names
        else rows.column(field.name)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def _differing(rows: pa.RecordBatch, others: pa.RecordBatch) -> pa.Array[Any]:
    """Return for each row whether a column differs."""
    return _any([_differ(one, other) for one, other in zip(rows.columns, others.columns, strict=True)])


def _any(flags: Sequence[pa.Array[Any]]) -> pa.Array[Any]:
    found = flags[0]
    for one in flags[1:]:
        found = pc.or_(found, one)
    return found


def _differ(one: pa.Array[Any], other: pa.Array[Any]) -> pa.Array[Any]:
    """Return for each row whether two values differ; null is equal to null, and floats are compared by their bits."""
    if one.type in _BITS:
        one, other = one.view(_BITS[one.type]), other.view(_BITS[one.type])
    return pc.coalesce(pc.not_equal(one, other), pc.xor(one.is_null(), other.is_null()))


def _changed(spec: TableSpecification, rows: pa.RecordBatch, batch: pa.RecordBatch) -> pa.Array[Any]:
    """Return for each row which of its columns differ from what it was, as bits."""
    import numpy as np

    bits = np.zeros((rows.num_rows, rows.num_columns), dtype=bool)
    if BEFORE in batch.schema.names:
        struct = batch.column(BEFORE)
        fields = [field.name for field in struct.type]
        before = _typed(spec, pa.RecordBatch.from_arrays(struct.flatten(), names=fields))
        for name in fields:
            differ = _differ(rows.column(name), before.column(name))
            bits[:, rows.schema.get_field_index(name)] = differ.to_numpy(zero_copy_only=False)
    packed = np.packbits(bits, axis=1, bitorder="little")
    width = pa.binary(packed.shape[1])
    return pa.FixedSizeBinaryArray.from_buffers(
        width, rows.num_rows, [None, pa.py_buffer(packed.tobytes())]
    ).cast(pa.binary())


def _only_keys(schema: pa.Schema, keys: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        keys.column(field.name) if field.name in keys.schema.names else pa.nulls(keys.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _patch(rows: pa.RecordBatch, arm: PatchArm, named: pa.Array[Any] | None = None) -> pa.RecordBatch:
    arms = pa.array([str(arm)], pa.string()).take(pa.nulls(rows.num_rows, pa.int32()).fill_null(0))
    sets = pa.nulls(rows.num_rows, pa.binary()) if named is None else named
    return rows.append_column(_ARM, arms).append_column(_SET, sets)
