"""`ArrowEncoder`: Arrow record batches to raw rows, a column at a time instead of a row at a time."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from structable.backends.base.arrow_checks import over_limits, read_numbers, refuse_first, valid_chunks
from structable.backends.base.field_types import FIELD_TYPES
from structable.backends.ordered.codec.key_fields import key_bias, key_width, shortest_form
from structable.backends.ordered.codec.keys import ROW_MARK
from structable.backends.ordered.codec.row_layout import RowLayout
from structable.backends.ordered.engine import Pair
from structable.backends.ordered.table_schema import HIDDEN_KEY, TableSchema
from structable.spi import Field, FieldType, InvalidFieldError
from structable.spi.authors import new_ids

from .buffers import (
    Array,
    Integers,
    Numbers,
    buffer_of,
    bytes_array,
    has_zero_bytes,
    joined,
    parts_of,
    replace_zeros,
    to_list,
    zero_bytes,
)

_CHUNK_BYTES = 256 << 20


class ArrowEncoder:
    """Encodes record batches to raw rows of one table; safe to share between threads.

    `columns` are the batches' columns, in order: all key fields, and any other fields; absent fields are null.
    A keyless table gets new keys at each call; rows of a log have the common prefix of all keys.
    """

    def __init__(self, schema: TableSchema, columns: tuple[str, ...]) -> None:
        self._spec = spec = schema.spec
        self._key_fields = schema.key_fields
        for name in spec.primary_key:
            if name not in columns:
                raise InvalidFieldError(spec.name, name, "is part of the primary key and is missing in the batch")
        self._columns = columns
        self._head = schema.space + ROW_MARK
        self._layout = RowLayout(schema.version, schema.value_fields)
        # Rows must fit the indexes under construction as well.
        self._write_spec = spec.evolve(indexes=schema.maintained)
        layout = self._layout
        codes = [("<u4" if layout.word_format == "I" else "<u8")] + ["<u8"] * (layout.words - 1)
        codes += [f"<{FIELD_TYPES[layout.fields[position].type].numpy}" for position in layout.fixed]
        codes += ["<u4"] * len(layout.variable)
        names = [f"w{word}" for word in range(layout.words)]
        names += [f"v{position}" for position in (*layout.fixed, *layout.variable)]
        self._header = np.dtype(list(zip(names, codes, strict=True)))

    def encode(self, batch: pa.RecordBatch) -> list[Pair]:
        """Return raw row key and raw value of each row, in order, of a batch that `conform_batch` returned.

        Rejects values as the contract does: values out of a type's range, and keys, indexed values and rows over a
        limit.
        """
        pairs: list[Pair] = []
        for chunk in valid_chunks(self._spec.name, batch, _CHUNK_BYTES):
            columns = {
                name: _CheckedColumn(self._spec.name, self._spec.field(name), array)
                for name, array in zip(self._columns, chunk.columns, strict=True)
            }
            self._check(chunk, columns)
            values = self._encode_values(columns, chunk.num_rows)
            if self._spec.table_options.log:
                pairs += [(self._head, value) for value in to_list(values)]
                continue
            if self._spec.keyless:
                columns[HIDDEN_KEY.name] = self._hidden_keys(chunk)
            keys = self._encode_keys(columns, chunk.num_rows)
            pairs += zip(to_list(keys), to_list(values), strict=True)
        return pairs

    def _check(self, batch: pa.RecordBatch, columns: dict[str, _CheckedColumn]) -> None:
        bad, _ = over_limits(self._write_spec, {name: column.sizes for name, column in columns.items()})
        for name in self._spec.primary_key:
            if columns[name].nulls:
                bad |= columns[name].null_mask
        for column in columns.values():
            if column.zeros is not None:
                bad |= column.zeros
        refuse_first(self._write_spec, batch, bad)

    def _hidden_keys(self, batch: pa.RecordBatch) -> _CheckedColumn:
        append_only = self._spec.table_options.append_only
        rows = [{}] * batch.num_rows if append_only else batch.to_pylist()
        return _CheckedColumn(self._spec.name, HIDDEN_KEY, pa.array(new_ids(self._spec, rows), pa.binary()))

    def _encode_keys(self, columns: dict[str, _CheckedColumn], rows: int) -> Array:
        parts: list[Array] = []
        run: list[tuple[str, Numbers | bytes]] = [(f"S{len(self._head)}", self._head)]
        for field in self._key_fields:
            column = columns[field.name]
            if width := key_width(field.type):
                numbers = column.numbers.astype(f"u{width}")
                numbers ^= np.array(key_bias(field.type), numbers.dtype)
                run.append((f">u{width}", numbers))
                continue
            if run:
                parts.append(_records(run, rows))
            parts.append(column.escaped if field.type is FieldType.BYTES else column.text)
            run = [(f"u{shortest_form(field.type)}", b"")]
        parts.append(_records(run, rows))
        return joined(parts)

    def _encode_values(self, columns: dict[str, _CheckedColumn], rows: int) -> Array:
        layout = self._layout
        header = np.zeros(rows, self._header)
        header["w0"] = layout.version
        end: Integers | int = layout.size
        parts: list[Array] = []
        for position, field in enumerate(layout.fields):
            column = columns.get(field.name)
            if column is None or column.nulls:
                word, mask = layout.null_bit(position)
                bits = header[f"w{word}"]
                where = slice(None) if column is None else column.null_mask
                bits[where] |= np.array(mask, bits.dtype)
            if FIELD_TYPES[field.type].number:
                if column is not None:
                    header[f"v{position}"] = column.numbers
                continue
            if column is not None:
                end = end + column.sizes
                parts.append(column.text)
            header[f"v{position}"] = end
        return joined([_fixed_binary(header), *parts])


class _CheckedColumn:
    """One column, checked: its values as numbers or bytes, 0 or empty where null."""

    def __init__(self, table: str, field: Field, array: Array) -> None:
        self.nulls = array.null_count > 0
        self.null_mask: npt.NDArray[np.bool_] = (
            array.is_null().to_numpy(zero_copy_only=False) if self.nulls else np.zeros(0, np.bool_)
        )
        self.zeros: npt.NDArray[np.bool_] | None = None
        """Mask of the strings that hold a NUL character."""
        if FIELD_TYPES[field.type].number:
            self.numbers = (
                self._read_decimals(array) if field.type is FieldType.DECIMAL else read_numbers(table, field, array)
            )
            self.sizes: Integers = (
                np.where(self.null_mask, 0, field.type.width) if self.nulls else np.full(len(array), field.type.width)
            )
            return
        self.text = array.view(pa.binary()) if field.type is FieldType.STRING else array
        if self.nulls:
            self.text = self.text.fill_null(b"")
        self.sizes = np.diff(parts_of(self.text)[0]).astype(np.int64)
        if field.type is FieldType.STRING and has_zero_bytes(self.text):
            self.zeros = zero_bytes(self.text)

    @property
    def escaped(self) -> Array:
        """Bytes in their key form, without terminator."""
        return replace_zeros(self.text, b"\0", b"\0\xff")

    def _read_decimals(self, array: Array) -> Numbers:
        data = np.frombuffer(cast(Any, array.buffers()[1]), "V16")[array.offset : array.offset + len(array)]
        if self.nulls:
            data = data.copy()
            data[self.null_mask] = bytes(16)
        return data


def _records(run: list[tuple[str, Numbers | bytes]], rows: int) -> Array:
    """Return the constants and number columns of a run as one binary array."""
    records = np.zeros(rows, np.dtype([(str(position), code) for position, (code, _) in enumerate(run)]))
    for position, (_, values) in enumerate(run):
        if not isinstance(values, bytes) or values:
            records[str(position)] = values
    return _fixed_binary(records)


def _fixed_binary(records: Numbers) -> Array:
    return bytes_array(np.arange(len(records) + 1, dtype=np.int32) * np.int32(records.itemsize), buffer_of(records))
