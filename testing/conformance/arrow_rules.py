"""Rules of the Arrow types that `stage` takes: the value is the same, or the column is refused by name."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from structable.spi import Field, InvalidFieldError, Storage, StructuredTable, TableSpecification, WriteMode
from structable.spi.arrow import arrow_type

from .arrow_samples import ARROW_SAMPLES, REFUSED, taken_columns
from .samples import TYPES, item, plain
from .write_jobs import BEFORE, JobCase

_FIELDS = {field.type: field for field in TYPES.fields if field.name != "id"}


class ArrowRules(JobCase):
    """The types of columns, which `stage` takes if no value changes."""

    def test_job_takes_other_types_of_the_same_values(self, storage: Storage) -> None:
        """`stage` takes columns of other Arrow types, of extensions and encodings too, if the values are the same."""
        columns = list(taken_columns())
        spec = TableSpecification("arrow", [Field.long("id"), *(field for field, _, _ in columns)], ["id"])
        storage.admin.create(spec)
        keys = pa.array(range(len(columns[0][1])), pa.int8())
        batch = {"id": keys, **{field.name: column for field, column, _ in columns}}
        job = storage.begin_write("arrow", mode=WriteMode.INSERT, job_id=self.fresh_id())
        storage.commit_write(job, [storage.stage(job, 0, 0, [pa.record_batch(batch)])])
        with storage.table("arrow").scan() as found:
            read = list(found)
        for field, column, kept in columns:
            assert [repr(row[field.name]) for row in read] == [repr(value) for value in kept], (field, column.type)

    def test_marks_of_rows_of_other_types(self, storage: Storage, streamed: StructuredTable) -> None:
        """`_change_type`, and `_arm`, `_set` and `_required` of a patch, may be of other Arrow types as well."""
        self.require("table_types")
        places = pa.array([0, 1], pa.int8())
        keys: dict[str, pa.Array[Any]] = {"id": pa.array([1, 3], pa.int8()), "n": pa.array([7, 8], pa.uint8())}
        kinds = pa.DictionaryArray.from_arrays(places, pa.array(["-D", "+I"], pa.string_view()))
        arms = pa.DictionaryArray.from_arrays(places, pa.array(["replace", "present"], pa.string_view()))
        named = pa.array([b"\x03", b"\x02"], pa.binary_view())
        required = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 1], pa.int8()))
        ways: dict[WriteMode, dict[str, pa.Array[Any]]] = {
            WriteMode.CHANGES: {"_change_type": kinds},
            WriteMode.PATCH: {"_arm": arms, "_set": named, "_required": required},
        }
        for mode, marks in ways.items():
            job = self.job(storage, mode)
            storage.commit_write(job, [storage.stage(job, 0, 0, [pa.record_batch({**keys, **marks})])])
        assert plain(streamed.scan()) == [item(1, n=7), BEFORE[1], item(3, n=8)]

    def test_job_refuses_other_types_by_name(self, storage: Storage) -> None:
        """`stage` rejects a column of any other Arrow type by the names of the field and the type."""
        storage.admin.create(TYPES)
        job = storage.begin_write("types", mode=WriteMode.UPSERT, job_id=self.fresh_id())
        for sample in ARROW_SAMPLES:
            for kind, field in _FIELDS.items():
                if kind not in sample.fields:
                    arrow_kind: Any = sample.kind
                    batch = pa.record_batch({"id": pa.array([1]), field.name: pa.nulls(1, arrow_kind)})
                    with pytest.raises(InvalidFieldError) as refusal:
                        storage.stage(job, 0, 0, [batch])
                    assert refusal.value.field == field.name
                    assert f"is of the Arrow type {sample.kind};" in refusal.value.reason

    def test_job_refuses_values_that_would_change(self, storage: Storage) -> None:
        """`stage` rejects a value that a cast would change, by the field, the row of the batch and the value."""
        storage.admin.create(TYPES)
        job = storage.begin_write("types", mode=WriteMode.UPSERT, job_id=self.fresh_id())
        for sample in ARROW_SAMPLES:
            for field in map(_FIELDS.__getitem__, sample.fields):
                for value in sample.values:
                    if sample.kept(field, value) is not REFUSED:
                        continue
                    batch = pa.record_batch({"id": pa.array([1, 2]), field.name: sample.column([None, value])})
                    with pytest.raises(InvalidFieldError) as refusal:
                        storage.stage(job, 0, 0, [batch])
                    assert refusal.value.field == field.name
                    if sample.kind != arrow_type(field):
                        assert refusal.value.reason.startswith("row 2 of the batch: ")
                    if not pa.types.is_temporal(sample.kind):
                        texts = {str(value), f"{value:f}"} if isinstance(value, Decimal) else {str(value)}
                        if isinstance(value, float) and value.is_integer():
                            texts.add(f"{value:.0f}")
                        assert any(text in refusal.value.reason for text in texts)
