"""Rules of the Arrow types that `stage` takes: the value is the same, or the column is refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from structable.spi import Field, FieldType, InvalidFieldError, Storage, TableSpecification, WriteMode
from structable.spi.arrow import arrow_type

from .arrow_samples import ARROW_SAMPLES, REFUSED
from .samples import TYPES
from .write_jobs import JobCase

__all__ = ["ArrowRules"]

_FIELDS = {field.type: field for field in TYPES.fields if field.name != "id"}


def _field(name: str, kind: FieldType) -> Field:
    return Field.decimal(name, 38, 10) if kind is FieldType.DECIMAL else Field(name, kind)


def _encoded(column: pa.Array[Any]) -> Iterator[pa.Array[Any]]:
    """Yield a column as a dictionary and by runs, of any type."""
    places = pa.array(range(len(column)), pa.uint8())
    yield pa.DictionaryArray.from_arrays(places, column)
    yield pa.RunEndEncodedArray.from_arrays(pa.array(range(1, len(column) + 1), pa.int32()), column)


def _columns() -> Iterator[tuple[Field, pa.Array[Any], list[object]]]:
    """Yield fields with a column of each type that they take, as it is and encoded, and the values that they keep."""
    rows = max(len(sample.values) for sample in ARROW_SAMPLES)
    for number, sample in enumerate(ARROW_SAMPLES):
        for kind in sample.fields:
            field = _field(f"f{number}_{kind.value}", kind)
            fitting = [value for value in sample.values if sample.kept(field, value) is not REFUSED]
            fitting += [None] * (rows - len(fitting))
            column, kept = sample.column(fitting), [sample.kept(field, value) for value in fitting]
            yield field, column, kept
            if kind is sample.fields[0]:
                for way, encoded in enumerate(_encoded(column)):
                    yield _field(f"{field.name}_{way}", kind), encoded, kept


class ArrowRules(JobCase):
    """The types of columns, which `stage` takes if no value changes."""

    def test_job_takes_other_types_of_the_same_values(self, storage: Storage) -> None:
        """`stage` takes columns of other Arrow types, of extensions and encodings too, if the values are the same."""
        columns = {field: (column, kept) for field, column, kept in _columns()}
        storage.admin.create(TableSpecification("arrow", [Field.long("id"), *columns], ["id"]))
        rows = len(next(iter(columns.values()))[1])
        batch = {
            "id": pa.array(range(rows), pa.int8()),
            **{field.name: column for field, (column, _) in columns.items()},
        }
        job = storage.begin_write("arrow", mode=WriteMode.INSERT, job_id=self.fresh_id())
        storage.commit_write(job, [storage.stage(job, 0, 0, [pa.record_batch(batch)])])
        with storage.table("arrow").scan() as found:
            read = list(found)
        for field, (column, kept) in columns.items():
            assert [repr(row[field.name]) for row in read] == [repr(value) for value in kept], (field, column.type)

    def test_job_refuses_other_types_by_name(self, storage: Storage) -> None:
        """`stage` rejects a column of any other Arrow type by the names of the field and the type."""
        storage.admin.create(TYPES)
        job = storage.begin_write("types", mode=WriteMode.UPSERT, job_id=self.fresh_id())
        for sample in ARROW_SAMPLES:
            for kind, field in _FIELDS.items():
                if kind not in sample.fields:
                    batch = pa.record_batch({"id": pa.array([1]), field.name: pa.nulls(1, sample.kind)})
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
                        assert str(value) in refusal.value.reason
