"""Index entries cut from stored rows, without decoding and re-encoding the indexed value."""

from __future__ import annotations

from collections.abc import Callable

from structable.spi import Field, FieldType

from .key_fields import key_expression
from .keys import ROW_KEY_START
from .row_layout import RowLayout
from .source import Source

__all__ = ["EntryEncoder", "generate_entry_encoder"]

EntryEncoder = Callable[[bytes, bytes], bytes]
"""Raw row key and raw value to the row's raw entry."""

_AS_INTEGER = {FieldType.DATE: Field.int, FieldType.TIMESTAMP: Field.long, FieldType.TIMESTAMP_NTZ: Field.long}


def generate_entry_encoder(head: bytes, field: Field, layout: RowLayout, otherwise: EntryEncoder) -> EntryEncoder:
    """Return the generated encoder of one index's entries, all of which begin with `head`.

    It encodes rows of the current layout; `otherwise` encodes all others, and raises for bytes that are not a row.
    """
    source = Source()
    position = next(place for place, other in enumerate(layout.fields) if other.name == field.name)
    word, mask = layout.null_bit(position)
    rest = f"key[{ROW_KEY_START}:]"
    unset, set_ = head + b"\x00", head + b"\x01"
    source.add(0, "def entry_of(key, value):")
    source.add(1, "try:")
    begins, ends = layout.edges((position,))
    last = layout.variable[-1:]
    ends.update(last)
    slots = layout.words_slots() + layout.fixed_slots((position,)) + layout.end_slots(ends)
    source.add_unpack(2, "<", slots, "value", exact=not last)
    whole = f" and e{last[0]} == len(value)" if last else ""
    source.add(2, f"if w0 & 65535 == {layout.version}{whole}:")
    source.add(3, f"if w{word} & {mask}: return {source.constant('null', unset)} + {rest}")
    piece = f"value[{begins.get(position)}:e{position}]"
    if field.type is FieldType.STRING:
        source.add(3, f"return {source.constant('head', set_)} + {piece} + b'\\0' + {rest}")
    else:
        if field.type is FieldType.BYTES:
            source.add(3, f"v{position} = {piece}")
        kept = Field.long(field.name) if field.type.integer_bits else field
        kept = _AS_INTEGER[field.type](field.name) if field.type in _AS_INTEGER else kept
        source.add(3, f"return {key_expression(source, set_, (kept,), [f'v{position}'])} + {rest}")
    source.add(1, "except FAILURES:")
    source.add(2, "pass")
    source.add(1, f"return {source.constant('otherwise', otherwise)}(key, value)")
    return source.function("entry_of")
