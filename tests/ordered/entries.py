"""Index entries encoded and decoded in plain code, as an oracle for the generated functions."""

from __future__ import annotations

import datetime as dt

from structable.backends.ordered.codec.keys import ROW_KEY_START, KeyCodec
from structable.spi import Field, FieldType, Value

_NUMBER_WIDTHS = {FieldType.BOOLEAN: 1, FieldType.DATE: 4}


def encode_entry(codec: KeyCodec, number: int, field: Field, value: Value, raw_key: bytes) -> bytes:
    return codec.index_begin(number) + codec.encode_index_value(field, value) + raw_key[ROW_KEY_START:]


def decode_entry(codec: KeyCodec, number: int, field: Field, raw: bytes) -> tuple[Value, bytes]:
    """Return the indexed value, None for null, and the raw row key."""
    begin = len(codec.index_begin(number))
    if raw[begin] == 0:
        return None, codec.rows_begin + raw[begin + 1 :]
    rest = raw[begin + 1 :]
    if field.type is FieldType.STRING:
        text, _, key = rest.partition(b"\0")
        return text.decode(), codec.rows_begin + key
    if field.type is FieldType.BYTES:
        escaped, _, key = rest.replace(b"\0\xff", b"\0\1").partition(b"\0\0")
        end = len(escaped)
        return rest[:end].replace(b"\0\xff", b"\0"), codec.rows_begin + rest[end + 2 :]
    width = _NUMBER_WIDTHS.get(field.type, 8)
    return _from_number(field.type, int.from_bytes(rest[:width]), width), codec.rows_begin + rest[width:]


def _from_number(kind: FieldType, number: int, width: int) -> Value:
    if kind is FieldType.BOOLEAN:
        return bool(number)
    number -= 1 << (8 * width - 1)
    if kind is FieldType.DATE:
        return dt.date(1970, 1, 1) + dt.timedelta(number)
    if kind is FieldType.TIMESTAMP:
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=number)
    if kind is FieldType.TIMESTAMP_NTZ:
        return dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=number)
    return number
