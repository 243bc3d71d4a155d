"""Changed rows of UPDATE, MERGE and DELETE, and the patches that they become.

Spark's query gives each changed row with its kind, the row that it becomes, the fields that it had, and where a
statement assigns key fields, the key that it had.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from structable.spark_bridge.base.types import check_write_schema
from structable.spi import PatchArm, TableSpecification, TransactionConflictError, UnsupportedOperationError, WriteMode
from structable.spi.arrow import arrow_schema
from structable.spi.authors import PATCH_COLUMNS

from .staging import typed_batches

CHANGES_OPTION = "structable.changes"
"""The option of a write of changed rows."""
BEFORE = "_before"
"""The hidden column of a catalog's table that has the fields outside the key; in a changed row, as they were read."""
ORIGINAL = "__original_row_id_"
"""The prefix of columns that hold the key that a row had, in statements that assign key fields."""

_OPERATION = "__row_operation"
_DELETE, _UPDATE, _INSERT = 1, 2, 3


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """The changed rows of a statement on one table; picklable."""

    spec: TableSpecification

    def check(self, schema: StructType) -> None:
        """Check that rows of a schema fit the table, before any of them is computed; see `check_write_schema`.

        Raises
        ------
        TransactionConflictError
            If the table has other fields than when the statement was planned.
        """
        own = set(self._own(schema.fieldNames()))
        rows = StructType([column for column in schema.fields if column.name in own])
        before = [column.dataType for column in schema.fields if column.name == BEFORE]
        carried = [name for kind in before if isinstance(kind, StructType) for name in kind.fieldNames()]
        if {*self.spec.primary_key, *carried} != set(self.spec.field_names):
            raise TransactionConflictError(
                f"table {self.spec.name!r} was changed after the statement was planned, and nothing was written; run "
                "the statement again"
            )
        check_write_schema(self.spec, rows, WriteMode.PATCH)

    def patches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a write job of mode patch that makes the changes.

        A row that is updated or deleted is expected to be as it was read. One whose key is updated is deleted, and
        inserted with its new key. An inserted row is expected not to be there.

        Raises
        ------
        UnsupportedOperationError
            For a kind of row that this class does not know.
        """
        for batch in batches:
            if batch.num_rows:
                yield from self._patches(batch)

    def _patches(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        kinds = batch.column(_OPERATION).to_numpy(zero_copy_only=False)
        unknown = set(kinds.tolist()) - {_DELETE, _UPDATE, _INSERT}
        if unknown:
            raise UnsupportedOperationError(f"Spark gives changed rows of unknown kinds: {sorted(unknown)}")
        new = self._typed(batch.select(self._own(batch.schema.names)))
        old = self._old_rows(batch, new)
        names = {*new.schema.names, *old.schema.names}
        columns = [name for name in self.spec.field_names if name in names]
        updated = kinds == _UPDATE
        moved = updated & _differ(new, old, self.spec.primary_key)
        for arm, rows, chosen in (
            (PatchArm.EXPECT, old, kinds != _INSERT),
            (PatchArm.PRESENT, new, updated & ~moved),
            (PatchArm.DELETE, old.select(self.spec.primary_key), (kinds == _DELETE) | moved),
            (PatchArm.INSERT, new, (kinds == _INSERT) | moved),
        ):
            if chosen.any():
                yield self._patch(columns, rows.filter(pa.array(chosen)), arm)

    def _own(self, names: Iterable[str]) -> list[str]:
        """Return the columns of the rows that are written."""
        return [name for name in names if not name.startswith("_")]  # with which no field's name begins

    def _typed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return next(typed_batches(self.spec, (batch,)))

    def _old_rows(self, batch: pa.RecordBatch, new: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows as they were read; where a row is inserted, its key and nulls."""
        names = batch.schema.names
        columns = {
            name: batch.column(ORIGINAL + name) if ORIGINAL + name in names else new.column(name)
            for name in self.spec.primary_key
        }
        if BEFORE in names:
            before = pa.RecordBatch.from_struct_array(cast("pa.StructArray", batch.column(BEFORE)))
            columns.update(zip(before.schema.names, before.columns, strict=True))
        return self._typed(pa.RecordBatch.from_pydict(columns))

    def _patch(self, columns: list[str], rows: pa.RecordBatch, arm: PatchArm) -> pa.RecordBatch:
        arrays = [
            rows.column(field.name) if field.name in rows.schema.names else pa.nulls(rows.num_rows, field.type)
            for field in arrow_schema(self.spec, columns)
        ]
        arms = pa.array([str(arm)] * rows.num_rows, pa.string())
        return pa.RecordBatch.from_arrays([*arrays, arms], names=[*columns, PATCH_COLUMNS[0]])


def _differ(rows: pa.RecordBatch, others: pa.RecordBatch, names: Iterable[str]) -> npt.NDArray[np.bool_]:
    """Return for each row whether a column differs."""
    differ = np.zeros(rows.num_rows, dtype=bool)
    for name in names:
        found = pc.not_equal(rows.column(name), others.column(name)).fill_null(False)
        differ |= found.to_numpy(zero_copy_only=False)
    return differ
