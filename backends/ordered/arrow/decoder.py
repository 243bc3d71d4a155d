"""`ArrowDecoder`: raw rows to Arrow record batches, a column at a time instead of a row at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from structable.backends.base.field_types import FIELD_TYPES
from structable.backends.ordered.codec.key_fields import key_bias, key_width, shortest_form
from structable.backends.ordered.codec.keys import ROW_KEY_START, KeyCodec
from structable.backends.ordered.codec.row_layout import RowLayout
from structable.backends.ordered.codec.rows import RowCodec
from structable.backends.ordered.codec.source import corrupt
from structable.backends.ordered.engine import RawRows
from structable.backends.ordered.table_schema import TableSchema
from structable.spi import DataCorruptionError, Field, FieldType
from structable.spi.arrow import arrow_schema, arrow_type

from .buffers import Array, Integers, Numbers, bits, buffer_of, make_array, replace_zeros, select
from .byte_columns import BadElementError, ByteColumn, TooLargeError


class ArrowDecoder:
    """Decodes raw rows of one table to record batches; safe to share between threads."""

    def __init__(self, schema: TableSchema, columns: tuple[str, ...]) -> None:
        self._schema = schema
        self._spec = schema.spec
        self._columns = columns
        self._arrow_schema = arrow_schema(schema.spec, columns)
        self._key_wanted = [name in columns for name in schema.spec.primary_key]
        self._values_wanted = any(name not in schema.spec.primary_key for name in columns)
        wanted = [field.name for field in schema.spec.value_fields if field.name in columns]
        self._layouts = {
            version: _LayoutReader(RowLayout(version, fields), wanted) for version, fields in schema.layouts.items()
        }

    def batches(self, rows: Iterator[RawRows]) -> Iterator[pa.RecordBatch]:
        """Yield raw rows as batches; rows without keys only for columns outside the key."""
        for keys, values in rows:
            yield from self._decode_parts(keys, values)

    def decode(self, keys: Sequence[bytes], values: Sequence[bytes]) -> pa.RecordBatch:
        """Return rows, given by raw keys and raw values, as one batch of `arrow_schema` for the decoder's columns.

        Raises ValueError for keys or values of more than 2 GiB, which `batches` never passes.
        """
        if not keys:
            return pa.RecordBatch.from_arrays(
                [pa.array([], field.type) for field in self._arrow_schema], schema=self._arrow_schema
            )
        try:
            return self.decode_batch(keys, values)
        except TooLargeError:
            raise ValueError(f"{len(keys):,} rows of over 2 GiB do not fit one batch") from None

    def _decode_parts(self, keys: Sequence[bytes], values: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
        try:
            yield self.decode_batch(keys, values)
        except TooLargeError:
            half = len(values) // 2
            yield from self._decode_parts(keys[:half], values[:half])
            yield from self._decode_parts(keys[half:], values[half:])

    def decode_batch(self, keys: Sequence[bytes], values: Sequence[bytes]) -> pa.RecordBatch:
        """Return rows, at least one, as one batch; raises `TooLargeError`."""
        key_column = ByteColumn.of(keys) if any(self._key_wanted) else None
        return self._decode(key_column, ByteColumn.of(values) if self._values_wanted else None, len(values))

    def decode_columns(self, keys: ByteColumn, values: ByteColumn) -> pa.RecordBatch:
        """Return rows, at least one, as one batch."""
        return self._decode(keys, values if self._values_wanted else None, len(keys))

    def _decode(self, keys: ByteColumn | None, values: ByteColumn | None, count: int) -> pa.RecordBatch:
        arrays: dict[str, Array] = {}
        if values is not None:
            try:
                versions = values.records(np.dtype("<u2"), values.begins)
                if (versions != versions[0]).any():
                    return self._decode_mixed(versions, keys, values)
                reader = self._layouts.get(int(versions[0]))
                if reader is None:
                    raise BadElementError(0)
                arrays = reader.read(values)
            except BadElementError as error:
                raise self._bad_value(values[error.position]) from None
        if keys is not None and any(self._key_wanted):
            try:
                arrays |= _read_keys(keys, self._spec.key_fields, self._key_wanted)
            except BadElementError as error:
                raise self._bad_key(keys[error.position]) from None
        columns = []
        for field in self._arrow_schema:
            array = arrays.get(field.name)
            if array is None:
                array = pa.nulls(count, field.type)
            elif array.type != field.type:
                array = array.cast(field.type)
            columns.append(array)
        batch = pa.RecordBatch.from_arrays(columns, schema=self._arrow_schema)
        try:
            batch.validate(full=True)  # checks UTF-8 and the digits of decimals
        except pa.ArrowInvalid as error:
            raise DataCorruptionError(
                f"table {self._spec.name!r} holds rows that cannot be decoded: {error}"
            ) from error
        return batch

    def _decode_mixed(self, versions: Numbers, keys: ByteColumn | None, values: ByteColumn) -> pa.RecordBatch:
        """Decode rows of several layouts, one layout after the other, and restore their order."""
        groups = [np.flatnonzero(versions == version) for version in np.unique(versions)]
        parts = [
            self._decode(None if keys is None else keys.take(group), values.take(group), len(group)) for group in groups
        ]
        order = np.argsort(np.concatenate(groups))
        columns = [
            select(pa.concat_arrays([part.column(position) for part in parts]), order)
            for position in range(len(self._columns))
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._arrow_schema)

    def _bad_value(self, raw: bytes) -> DataCorruptionError:
        RowCodec(self._schema).decode_values(raw)
        return corrupt(self._spec.name, "row", raw, "its fields do not lie one after the other")

    def _bad_key(self, raw: bytes) -> DataCorruptionError:
        KeyCodec(self._schema).decode(raw)
        return corrupt(self._spec.name, "row key", raw, "its fields do not lie one after the other")


class _LayoutReader:
    """Reads the requested fields from values of one layout."""

    def __init__(self, layout: RowLayout, wanted: Sequence[str]) -> None:
        self._layout = layout
        self._fields = [
            (position, field, arrow_type(field)) for position, field in enumerate(layout.fields) if field.name in wanted
        ]
        names = [f"w{word}" for word in range(layout.words)]
        formats = ["<u4" if layout.word_format == "I" else "<u8", *["<u8"] * (layout.words - 1)]
        offsets = [8 * word for word in range(layout.words)]
        for position, field, _ in self._fields:
            if code := FIELD_TYPES[field.type].numpy:
                names.append(f"v{position}")
                formats.append(f"<{code}")
                offsets.append(layout.offsets[position])
        for position in layout.variable:
            names.append(f"e{position}")
            formats.append("<u4")
            offsets.append(layout.offsets[position])
        self._dtype = np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": layout.size})

    def read(self, column: ByteColumn) -> dict[str, Array]:
        layout = self._layout
        records = column.records(self._dtype, column.begins)
        words = [records[f"w{word}"] for word in range(layout.words)]
        has_nulls = bool((words[0] != layout.version).any() or any(word.any() for word in words[1:]))
        edges: dict[int, tuple[Integers, Integers]] = {}
        begin: Integers = column.begins + layout.size
        for position in layout.variable:
            end: Integers = column.begins + records[f"e{position}"]
            edges[position] = begin, end
            begin = end
        column.require(begin == column.ends)
        arrays: dict[str, Array] = {}
        for position, field, kind in self._fields:
            validity = None
            if has_nulls:
                word, mask = layout.null_bit(position)
                validity = bits(words[word] & np.array(mask, words[word].dtype) == 0)
            if position in edges:
                arrays[field.name] = _text(kind, column.pieces(*edges[position]), validity)
            else:
                arrays[field.name] = _fixed_array(kind, records[f"v{position}"], validity)
        return arrays


def _fixed_array(kind: pa.DataType, numbers: Numbers, validity: pa.Buffer | None) -> Array:
    data = bits(numbers != 0) if pa.types.is_boolean(kind) else buffer_of(numbers)
    return make_array(kind, len(numbers), validity, data)


def _text(kind: pa.DataType, pieces: Array, validity: pa.Buffer | None = None) -> Array:
    return make_array(kind, len(pieces), validity, *pieces.buffers()[1:])


def _read_keys(column: ByteColumn, fields: Sequence[Field], wanted: Sequence[bool]) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    variable = [position for position, field in enumerate(fields) if not key_width(field.type)]
    at: Integers = column.begins + ROW_KEY_START
    for position, field in enumerate(fields):
        if not any(wanted[position:]):
            break
        width = key_width(field.type)
        if width:
            if wanted[position]:
                arrays[field.name] = _key_numbers(column, field, width, at)
            at = at + width
            continue
        terminator = shortest_form(field.type)
        if position == variable[-1]:
            # Located from the end of the key, without a search.
            end: Integers = column.ends - (terminator + sum(key_width(later.type) for later in fields[position + 1 :]))
        else:
            end = column.find_zeros(terminator, at)
        if wanted[position]:
            arrays[field.name] = _key_text(column.pieces(at, end), field)
        at = end + terminator
    else:
        column.require(at == column.ends)
    return arrays


def _key_numbers(column: ByteColumn, field: Field, width: int, at: Integers) -> Array:
    numbers = column.records(np.dtype(f">u{width}"), at).astype(f"<u{width}")
    numbers ^= np.array(key_bias(field.type), numbers.dtype)
    return _fixed_array(arrow_type(field), numbers, None)


def _key_text(pieces: Array, field: Field) -> Array:
    if field.type is FieldType.STRING:
        return _text(pa.string(), pieces)
    return replace_zeros(pieces, b"\0\xff", b"\0")
