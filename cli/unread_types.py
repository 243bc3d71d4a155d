"""Finds the columns of an Arrow schema whose type pyarrow cannot read: its own error names none of them.

A schema is serialized as a flatbuffer, as Arrow's Schema.fbs, Message.fbs and File.fbs describe.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

__all__ = ["IN_FOOTER", "IN_MESSAGE", "unread_columns"]

IN_FOOTER, IN_MESSAGE = 1, 2
"""The position of the schema in the footer of an IPC file, and in the first message of a stream."""

_WIDEST = 64
"""The width of the widest integers that pyarrow reads, in bits; Polars writes 128."""

# Positions of fields in their tables, and the number of a type in its union.
_FIELDS, _NAME, _TYPE_NUMBER, _TYPE, _CHILDREN, _BITS = 1, 0, 2, 3, 5, 0
_INTEGER = 2


def unread_columns(content: bytes, place: int) -> list[str]:
    """Return the names of the columns of too wide integers, of a flatbuffer with a schema; none if it is damaged."""
    try:
        schema = _referred(content, _field(content, _referred(content, 0), place))
        return [_text(content, one) for one in _tables(content, schema, _FIELDS) if _is_wide(content, one)]
    except (struct.error, IndexError, UnicodeDecodeError, RecursionError):
        return []


def _is_wide(content: bytes, column: int) -> bool:
    if any(_is_wide(content, child) for child in _tables(content, column, _CHILDREN)):
        return True
    number, kind = (_field(content, column, place) for place in (_TYPE_NUMBER, _TYPE))
    if not number or not kind or content[number] != _INTEGER:
        return False
    bits = _field(content, _referred(content, kind), _BITS)
    return bits > 0 and _number(content, "<i", bits) > _WIDEST


def _number(content: bytes, form: str, place: int) -> int:
    return int(struct.unpack_from(form, content, place)[0])


def _referred(content: bytes, place: int) -> int:
    return place + _number(content, "<I", place)


def _field(content: bytes, table: int, position: int) -> int:
    """Return the place of a table's field, 0 if it is left out."""
    layout = table - _number(content, "<i", table)
    entry = 4 + 2 * position
    offset = _number(content, "<H", layout + entry) if entry < _number(content, "<H", layout) else 0
    return table + offset if offset else 0


def _tables(content: bytes, table: int, position: int) -> Iterator[int]:
    place = _field(content, table, position)
    if place:
        vector = _referred(content, place)
        for entry in range(vector + 4, vector + 4 + 4 * _number(content, "<I", vector), 4):
            yield _referred(content, entry)


def _text(content: bytes, column: int) -> str:
    text = _referred(content, _field(content, column, _NAME))
    return content[text + 4 : text + 4 + _number(content, "<I", text)].decode()
