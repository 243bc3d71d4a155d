"""`CopyEncoder`: Arrow record batches to COPY's binary format, a column at a time instead of a row at a time.

Staged rows also have *marks*: columns with the row kind, the hidden key, and the effect of a patch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from structable.backends.base.arrow_checks import over_limits, read_numbers, refuse_first, valid_chunks
from structable.backends.base.patches import PatchMarks
from structable.backends.postgresql.sql.names import HIDDEN_KEY
from structable.backends.postgresql.sql.types import stored_type
from structable.spi import Field, FieldType, RowKind, TableSpecification, WriteMode
from structable.spi.authors import new_ids

from .staging import ARMS, KIND_FIELD

_CHUNK_BYTES = 64 << 20

_KEY_FIELD = Field.bytes(HIDDEN_KEY)
_PATCH_FIELDS = (Field.short("_arm"), Field.boolean("_required"), Field.bytes("_named"))
"""The columns of a patch's effect. The last one has a bit for each column of fields, the lowest first; null is all."""
_PLACES = {kind: place for place, kind in enumerate(RowKind)}

Array = Any
"""A pyarrow.Array."""
Numbers = npt.NDArray[Any]


class CopyEncoder:
    """Encodes batches of the columns `names`, the whole key among them, and `marks`, for a COPY into the same columns.

    `spec` has every index that the rows must fit. `largest` is the size of the largest row so far, in bytes.
    """

    def __init__(self, spec: TableSpecification, names: tuple[str, ...], marks: Sequence[Field] = ()) -> None:
        self._spec = spec
        self._names = names
        self._fields = [*(spec.field(name) for name in names), *marks]
        self.largest = 0

    def encode(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        """Yield the rows of a batch that `conform_batch` returned, in COPY's binary format, in chunks.

        Rejects values as the contract does: values out of a type's range, and keys, indexed values and rows over a
        limit.
        """
        for chunk in valid_chunks(self._spec.name, batch, _CHUNK_BYTES):
            yield self._encoded(chunk)

    def _encoded(self, batch: pa.RecordBatch) -> bytes:
        table = self._spec.name
        columns = [_CopyColumn(table, field, array) for field, array in zip(self._fields, batch.columns, strict=True)]
        self._check(batch, columns)
        rows = batch.num_rows
        parts: list[Array] = []
        run: list[tuple[str, Numbers | int]] = [(">i2", len(columns))]
        for column in columns:
            lengths = column.lengths
            if column.numbers is not None and not column.nulls:
                run += [(">i4", int(lengths[0])), (column.code, column.numbers)]
                continue
            run.append((">i4", lengths))
            parts += [_records(run, rows), column.bytes]
            run = []
        if run:
            parts.append(_records(run, rows))
        joined = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))
        offsets, data = _content(joined)
        return data[offsets[0] : offsets[-1]].tobytes()

    def _check(self, batch: pa.RecordBatch, columns: list[_CopyColumn]) -> None:
        by_name = dict(zip(self._names, columns, strict=False))
        bad, totals = over_limits(self._spec, {name: column.sizes for name, column in by_name.items()})
        self.largest = max(self.largest, int(totals.max()))
        for name in self._spec.primary_key:
            if by_name[name].nulls:
                bad |= by_name[name].lengths < 0
        for column in columns:
            if column.zeros is not None:
                bad |= column.zeros
        refuse_first(self._spec, batch.select(self._names), bad)


class _CopyColumn:
    """One column: lengths in COPY's form, -1 for null, and values as numbers or as bytes."""

    def __init__(self, table: str, field: Field, array: Array) -> None:
        self.nulls = array.null_count > 0
        valid = np.ones(0, np.bool_)
        if self.nulls:
            valid = array.is_valid().to_numpy(zero_copy_only=False)
        self.numbers: Numbers | None = None
        self.code = ""
        self.zeros: npt.NDArray[np.bool_] | None = None
        stored = stored_type(field)
        if stored.packed:
            self._read_numbers(table, field, array, valid)
            return
        if field.type is FieldType.DECIMAL:
            encode = stored.encode
            self.bytes = pa.array([b"" if one is None else encode(one) for one in array.to_pylist()], pa.binary())
        else:
            text = array.view(pa.binary()) if field.type is FieldType.STRING else array
            self.bytes = text.fill_null(b"") if self.nulls else text
        offsets, data = _content(self.bytes)
        found = np.diff(offsets)
        self.lengths: Numbers = np.where(valid, found, -1) if self.nulls else found
        if field.type is FieldType.DECIMAL:
            self.sizes: Numbers = np.where(self.lengths < 0, 0, field.type.width)
        else:
            self.sizes = found.astype(np.int64)
        if field.type is FieldType.STRING and not data[offsets[0] : offsets[-1]].all():
            self.zeros = pc.match_substring(self.bytes, "\0").to_numpy(zero_copy_only=False)

    def _read_numbers(self, table: str, field: Field, array: Array, valid: npt.NDArray[np.bool_]) -> None:
        stored = stored_type(field)
        self.code = stored.numpy
        numbers = read_numbers(table, field, array)
        if stored.shift:
            numbers = numbers - numbers.dtype.type(stored.shift)
        self.numbers = numbers
        width = stored.width
        if not self.nulls:
            self.lengths = np.full(len(numbers), width)
            self.sizes = np.full(len(numbers), field.type.width)
            return
        self.lengths = np.where(valid, width, -1)
        self.sizes = np.where(valid, field.type.width, 0)
        offsets = np.zeros(len(numbers) + 1, np.int32)
        np.cumsum(np.where(valid, width, 0), out=offsets[1:])
        self.bytes = _binary(offsets, numbers[valid].astype(self.code))


def _records(run: list[tuple[str, Numbers | int]], rows: int) -> Array:
    """Return the constants and numbers that are adjacent in a row as one binary array."""
    records = np.empty(rows, np.dtype([(str(place), code) for place, (code, _) in enumerate(run)]))
    for place, (_, values) in enumerate(run):
        records[str(place)] = values
    return _binary(np.arange(rows + 1, dtype=np.int32) * np.int32(records.itemsize), records)


def _binary(offsets: Numbers, content: Numbers) -> Array:
    data: Any = np.ascontiguousarray(content).view(np.uint8)
    places: Any = offsets
    return pa.Array.from_buffers(pa.binary(), len(places) - 1, [None, pa.py_buffer(places), pa.py_buffer(data)])


def _content(array: Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Return the offsets of a binary array's values, and the bytes that they point into."""
    _, offsets, data = cast("list[Any]", array.buffers())
    places = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return places, np.zeros(0, np.uint8) if data is None or not data.size else np.frombuffer(data, np.uint8)


def marks_of(spec: TableSpecification, mode: WriteMode) -> tuple[Field, ...]:
    """Return the additional columns of the rows of a job."""
    if mode is WriteMode.PATCH:
        return _PATCH_FIELDS
    return (*((KIND_FIELD,) if mode is WriteMode.CHANGES else ()), *((_KEY_FIELD,) if spec.keyless else ()))


def marked(spec: TableSpecification, batch: pa.RecordBatch, kinds: Sequence[RowKind] | None) -> pa.RecordBatch:
    """Return a batch with its marks as further columns."""
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
    """Return the batch of a patch with its marks, the effect of each row, as further columns."""
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
