"""`PatchCase`: a table that patches are written to, and their batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from structable.spi import CommitResult, Storage, TableSpecification, WriteJob
from structable.spi.arrow import arrow_schema

from .samples import ITEMS, Record
from .write_jobs import JobCase

Arm: TypeAlias = tuple[str, Record]
"""An arm, and the key with the named fields."""

OnMissing: TypeAlias = Literal["fail", "skip"]

_MARKS: list[pa.Field[Any]] = [
    pa.field("_arm", pa.string()),
    pa.field("_set", pa.binary()),
    pa.field("_required", pa.bool_()),
]


def patch_batch(
    spec: TableSpecification, arms: Sequence[Arm], required: Iterable[Mapping[str, Any]] = ()
) -> pa.RecordBatch:
    """Return rows of a patch as one batch of all columns, each naming its own; `required` has the required keys."""
    wanted = [dict(one) for one in required]
    rows = []
    for arm, row in arms:
        bits = sum(1 << place for place, name in enumerate(spec.field_names) if name in row)
        needed = {name: row[name] for name in spec.primary_key} in wanted
        marks = {"_arm": arm, "_set": bits.to_bytes(len(spec.fields) // 8 + 1, "little"), "_required": needed}
        rows.append({**dict.fromkeys(spec.field_names), **row, **marks})
    fields: list[pa.Field[Any]] = [field.with_nullable(True) for field in arrow_schema(spec)]
    schema = pa.schema([*fields, *_MARKS])
    return pa.RecordBatch.from_pylist(rows, schema)


class PatchCase(JobCase):
    """A table that patches are written to."""

    def patch_job(
        self, storage: Storage, table: str = "items", on_missing: Literal["fail", "skip"] = "fail"
    ) -> WriteJob:
        return storage.begin_write(table, mode="patch", job_id=self.fresh_id(), on_missing=on_missing)

    def patch(
        self,
        storage: Storage,
        *arms: Arm,
        required: Iterable[Record] = (),
        on_missing: OnMissing = "fail",
    ) -> CommitResult:
        """Write a patch of one partition."""
        job = self.patch_job(storage, on_missing=on_missing)
        return storage.commit_write(job, [storage.stage(job, 0, 0, [patch_batch(ITEMS, arms, required)])])
