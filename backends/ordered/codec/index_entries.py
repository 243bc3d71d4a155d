"""Index entries cut out of stored rows, without decoding the indexed value and encoding it again."""

from __future__ import annotations

import struct
from collections.abc import Callable

from structable.spi import Field, FieldType

from .key_fields import key_expression
from .keys import ROW_KEY_START
from .row_layout import FORMATS, RowLayout
from .source import Source

__all__ = ["EntryEncoder", "generate_entry_encoder"]

EntryEncoder = Callable[[bytes, bytes], bytes]
"""Raw row key and raw value to the row's raw entry."""

_AS_INTEGER = {FieldType.DATE: Field.int, FieldType.TIMESTAMP: Field.long, FieldType.TIMESTAMP_NTZ: Field.long}


def generate_entry_encoder(head: bytes, field: Field, layout: RowLayout, otherwise: EntryEncoder) -> EntryEncoder:
    """Return the generated encoder of one index's entries.

    Parameters
    ----------
    head : bytes
        What all entries of the index begin with.
    field : Field
        What it indexes.
    layout : RowLayout
        The table's current layout.
    otherwise : callable
        Encodes, or refuses, rows of other layouts and what is no row.
    """
    source = Source()
    position = next(place for place, other in enumerate(layout.fields) if other.name == field.name)
    word, mask = layout.null_bit(position)
    rest = f"key[{ROW_KEY_START}:]"
    unset, set_ = head + b"\x00", head + b"\x01"
    source.add(0, "def entry_of(key, value):")
    source.add(1, "try:")
    begin = _add_unpack(source, layout, position)
    source.add(2, f"if w0 & 65535 == {layout.version}{_whole(layout)}:")
    source.add(3, f"if w{word} & {mask}: return {source.constant('null', unset)} + {rest}")
    if field.type is FieldType.STRING:
        source.add(3, f"return {source.constant('head', set_)} + value[{begin}:end] + b'\\0' + {rest}")
    else:
        if field.type is FieldType.BYTES:
            source.add(3, f"stored = value[{begin}:end]")
        kept = Field.long(field.name) if field.type.integer_bits else field
        kept = _AS_INTEGER[field.type](field.name) if field.type in _AS_INTEGER else kept
        source.add(3, f"return {key_expression(source, set_, (kept,), ['stored'])} + {rest}")
    source.add(1, "except FAILURES:")
    source.add(2, "pass")
    source.add(1, f"return {source.constant('otherwise', otherwise)}(key, value)")
    return source.function("entry_of")


def _whole(layout: RowLayout) -> str:
    return " and last == len(value)" if layout.variable else ""


def _add_unpack(source: Source, layout: RowLayout, position: int) -> str:
    """Add the line that unpacks what is needed: null bits, the field or its end, and the last end.

    Returns
    -------
    str
        The source of where a field of variable width begins.
    """
    text = "<" + layout.word_format + "Q" * (layout.words - 1)
    targets = [f"w{word}" for word in range(layout.words)]
    for fixed in layout.fixed:
        code = FORMATS[layout.fields[fixed].type]
        text += code if fixed == position else f"{struct.calcsize(f'<{code}')}x"
        targets += ["stored"] if fixed == position else []
    begin, after = str(layout.size), ""
    for variable in layout.variable:
        name = "end" if variable == position else "last" if variable == layout.variable[-1] else ""
        if variable != position and position in layout.variable and _next(layout, variable) == position:
            name = begin = "begin"
        text += "I" if name else "4x"
        targets += [name] if name else []
        after = name
    method = struct.Struct(text).unpack_from if layout.variable else struct.Struct(text).unpack
    source.add(2, f"{', '.join(targets)}, = {source.constant('unpack', method)}(value)")
    if after == "end":
        source.add(2, "last = end")
    return begin


def _next(layout: RowLayout, variable: int) -> int | None:
    place = layout.variable.index(variable) + 1
    return layout.variable[place] if place < len(layout.variable) else None
