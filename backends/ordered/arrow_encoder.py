"""`ArrowEncoder`: Arrow record batches to raw rows, a column at a time instead of a row at a time."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from structable.spi import Field, FieldType, InvalidFieldError
from structable.spi.values import MAX_KEY_AND_INDEX_SIZE, MAX_KEY_SIZE, MAX_ROW_SIZE, check_row_size

from .engine import Pair
from .key_code import key_width
from .key_codec import KeyCodec
from .row_layout import FORMATS, RowLayout
from .scalars import EPOCH, EPOCH_ORDINAL
from .schema import TableSchema

__all__ = ["ArrowEncoder"]

_Sizes: TypeAlias = npt.NDArray[np.int64]
_Numbers: TypeAlias = npt.NDArray[Any]

_CHUNK_BYTES = 256 * 1024 * 1024
_MICROSECOND = dt.timedelta(microseconds=1)
_RANGES = {
    FieldType.DATE: (dt.date.min.toordinal() - EPOCH_ORDINAL, dt.date.max.toordinal() - EPOCH_ORDINAL),
    FieldType.TIMESTAMP: (
        (dt.datetime.min.replace(tzinfo=dt.UTC) - EPOCH) // _MICROSECOND,
        (dt.datetime.max.replace(tzinfo=dt.UTC) - EPOCH) // _MICROSECOND,
    ),
}
_RANGES[FieldType.TIMESTAMP_NTZ] = _RANGES[FieldType.TIMESTAMP]
_VIEWS = {FieldType.DATE: pa.int32(), FieldType.TIMESTAMP: pa.int64(), FieldType.TIMESTAMP_NTZ: pa.int64()}
_ROW_CODES = {"?": "u1", "b": "i1", "h": "<i2", "i": "<i4", "q": "<i8", "f": "<f4", "d": "<f8", "16s": "V16"}


class ArrowEncoder:
    """Encodes record batches to raw rows of one table; safe to share between threads.

    Parameters
    ----------
    schema : TableSchema
        The table.
    columns : tuple of str
        The columns of the batches, in their order: all key fields, and some or all others. Fields that are not among
        them are null in the rows.

    Raises
    ------
    InvalidFieldError
        If a key field is missing.
    """

    def __init__(self, schema: TableSchema, columns: tuple[str, ...]) -> None:
        self._spec = spec = schema.spec
        for name in spec.primary_key:
            if name not in columns:
                raise InvalidFieldError(spec.name, name, "is part of the primary key and is missing in the batch")
        self._columns = columns
        self._head = KeyCodec(schema).rows_begin
        self._layout = RowLayout(schema.version, schema.value_fields)
        self._indexed = {*spec.indexes, *schema.maintained}
        layout = self._layout
        codes = [("<u4" if layout.word_format == "I" else "<u8")] + ["<u8"] * (layout.words - 1)
        codes += [_ROW_CODES[FORMATS[layout.fields[position].type]] for position in layout.fixed]
        codes += ["<u4"] * len(layout.variable)
        names = [f"w{word}" for word in range(layout.words)]
        names += [f"v{position}" for position in (*layout.fixed, *layout.variable)]
        self._header = np.dtype(list(zip(names, codes, strict=True)))

    def encode(self, batch: pa.RecordBatch) -> list[Pair]:
        """Return raw row key and raw value of each row, in the order of the rows.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            As `conform_batch` returns it, with the encoder's columns.

        Raises
        ------
        InvalidFieldError
            For any value that the contract refuses, dates and times outside of the years 1 to 9999 included.
        FieldSizeLimitError
            If a key, an indexed value or a row is over a limit.
        """
        if batch.nbytes > _CHUNK_BYTES and batch.num_rows > 1:
            half = batch.num_rows // 2
            return self.encode(batch.slice(0, half)) + self.encode(batch.slice(half))
        if not batch.num_rows:
            return []
        try:
            batch.validate(full=True)
        except pa.ArrowInvalid as error:
            raise InvalidFieldError(self._spec.name, "batches", f"the Arrow data are not valid: {error}") from error
        columns = {
            name: _Column(self._spec.name, self._spec.field(name), array)
            for name, array in zip(self._columns, batch.columns, strict=True)
        }
        self._check_sizes(batch, columns)
        keys = self._encode_keys(columns, batch.num_rows)
        return list(zip(_to_list(keys), _to_list(self._encode_values(columns, batch.num_rows)), strict=True))

    def _encode_keys(self, columns: dict[str, _Column], rows: int) -> pa.BinaryArray:
        parts: list[pa.Array | pa.Scalar] = []
        run: list[tuple[str, _Numbers | bytes]] = [(f"S{len(self._head)}", self._head)]
        for field in self._spec.key_fields:
            column = columns[field.name]
            if column.nulls:
                raise InvalidFieldError(self._spec.name, field.name, "is part of the primary key and must not be null")
            if width := key_width(field.type):
                numbers = column.numbers.astype(f"u{width}")
                if field.type is not FieldType.BOOLEAN:
                    numbers ^= np.array(1 << (8 * width - 1), numbers.dtype)
                run.append((f">u{width}", numbers))
                continue
            if run:
                parts.append(_records(run, rows))
            parts.append(column.escaped if field.type is FieldType.BYTES else column.text)
            run = [("u1" if field.type is FieldType.STRING else "u2", b"")]
        parts.append(_records(run, rows))
        return _joined(parts)

    def _encode_values(self, columns: dict[str, _Column], rows: int) -> pa.BinaryArray:
        layout = self._layout
        header = np.zeros(rows, self._header)
        header["w0"] = layout.version
        end: _Sizes | int = layout.size
        parts: list[pa.Array] = []
        for position, field in enumerate(layout.fields):
            column = columns.get(field.name)
            if column is None or column.nulls:
                word, mask = layout.null_bit(position)
                bits = header[f"w{word}"]
                where = slice(None) if column is None else column.null_mask
                bits[where] |= np.array(mask, bits.dtype)
            if field.type in FORMATS:
                if column is not None:
                    header[f"v{position}"] = column.numbers
                continue
            if column is not None:
                end = end + column.sizes
                parts.append(column.text)
            header[f"v{position}"] = end
        return _joined([_fixed_binary(header), *parts])

    def _check_sizes(self, batch: pa.RecordBatch, columns: dict[str, _Column]) -> None:
        key = sum(columns[name].sizes for name in self._spec.primary_key)
        total = sum(column.sizes for column in columns.values())
        bad = (key > MAX_KEY_SIZE) | (total > MAX_ROW_SIZE)
        for name in self._indexed & columns.keys():
            bad |= (columns[name].sizes > MAX_KEY_SIZE) | (key + columns[name].sizes > MAX_KEY_AND_INDEX_SIZE)
        if bad.any():
            [row] = batch.slice(int(np.argmax(bad)), 1).to_pylist()
            check_row_size(self._spec, row)


class _Column:
    """One column, checked: its values as numbers or bytes, 0 or empty where null."""

    def __init__(self, table: str, field: Field, array: pa.Array) -> None:
        self.nulls = array.null_count > 0
        self.null_mask: npt.NDArray[np.bool_] = (
            array.is_null().to_numpy(zero_copy_only=False) if self.nulls else np.zeros(0, np.bool_)
        )
        if key_width(field.type) or field.type in FORMATS:
            self.numbers = self._read_numbers(field, array)
            self.sizes: _Sizes = (
                np.where(self.null_mask, 0, field.type.width) if self.nulls else _constant(array, field)
            )
            if field.type in _RANGES:
                self._check_range(table, field)
            return
        self.text = array.view(pa.binary()) if field.type is FieldType.STRING else array
        if self.nulls:
            self.text = self.text.fill_null(b"")
        self.sizes = pc.binary_length(self.text).to_numpy().astype(np.int64)
        self._has_zeros = self._find_zeros()
        if self._has_zeros and field.type is FieldType.STRING:
            for value in self.text.to_pylist():
                if b"\0" in value:
                    shown = value.decode()[:77]
                    raise InvalidFieldError(
                        table, field.name, f"{shown!r} holds a NUL character, which a string must not"
                    )

    @property
    def escaped(self) -> pa.BinaryArray:
        """Bytes as they are in keys, without their end."""
        if not self._has_zeros:
            return self.text
        return pc.replace_substring(self.text, pattern=b"\0", replacement=b"\0\xff")

    def _read_numbers(self, field: Field, array: pa.Array) -> _Numbers:
        if field.type is FieldType.DECIMAL:
            data = np.frombuffer(array.buffers()[1], "V16")[array.offset : array.offset + len(array)]
            if self.nulls:
                data = data.copy()
                data[self.null_mask] = bytes(16)
            return data
        if field.type in _VIEWS:
            array = array.view(_VIEWS[field.type])
        if self.nulls:
            array = array.fill_null(False if field.type is FieldType.BOOLEAN else 0)
        numbers: _Numbers = array.to_numpy(zero_copy_only=False)
        return numbers

    def _check_range(self, table: str, field: Field) -> None:
        low, high = _RANGES[field.type]
        bad = (self.numbers < low) | (self.numbers > high)
        if bad.any():
            unit = "days" if field.type is FieldType.DATE else "microseconds"
            value = int(self.numbers[np.argmax(bad)])
            raise InvalidFieldError(table, field.name, f"{value} {unit} since 1970 are outside of the years 1 to 9999")

    def _find_zeros(self) -> bool:
        _, offsets, data = self.text.buffers()
        if data is None:
            return False
        edges = np.frombuffer(offsets, np.int32)
        begin, end = edges[self.text.offset], edges[self.text.offset + len(self.text)]
        return not np.frombuffer(data, np.uint8)[begin:end].all()


def _constant(array: pa.Array, field: Field) -> _Sizes:
    return np.full(len(array), field.type.width, np.int64)


def _records(run: list[tuple[str, _Numbers | bytes]], rows: int) -> pa.Array:
    """Return the constants and columns of numbers of a run as one binary array."""
    records = np.zeros(rows, np.dtype([(str(position), code) for position, (code, _) in enumerate(run)]))
    for position, (_, values) in enumerate(run):
        if not isinstance(values, bytes) or values:
            records[str(position)] = values
    return _fixed_binary(records)


def _fixed_binary(records: _Numbers) -> pa.BinaryArray:
    offsets = np.arange(len(records) + 1, dtype=np.int32) * np.int32(records.itemsize)
    return pa.Array.from_buffers(pa.binary(), len(records), [None, pa.py_buffer(offsets), pa.py_buffer(records)])


def _joined(parts: list[pa.Array]) -> pa.BinaryArray:
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, b"")


def _to_list(array: pa.BinaryArray) -> list[bytes]:
    """Return the elements as Python bytes; cheaper than `to_pylist`, which makes a scalar of each."""
    _, offsets, data = array.buffers()
    edges = np.frombuffer(offsets, np.int32, len(array) + 1).tolist()
    whole = data.to_pybytes()
    return [whole[begin:end] for begin, end in pairwise(edges)]
