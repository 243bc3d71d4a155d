"""Bytes to rows: source for generated decoders of whole row values or of selected fields."""

from __future__ import annotations

from collections.abc import Sequence

from structable.spi import Field, FieldType

from .row_layout import RowLayout
from .scalars import decimal_decoder, from_number
from .source import Source

__all__ = ["add_row_decoder"]


def add_row_decoder(
    source: Source, indent: int, raw: str, layout: RowLayout, outputs: Sequence[str | int | None]
) -> None:
    """Add lines that return values decoded from one layout; a value of another layout falls through to the next line.

    `raw` is the variable with the value. Each output is literal source, the field at a position of the layout, or None.
    """
    wanted = {output for output in outputs if isinstance(output, int)}
    begins, ends = layout.edges(wanted)
    # A value without variable-length fields has a constant length, which `unpack` verifies.
    slots = layout.words_slots() + layout.fixed_slots(wanted) + layout.end_slots(ends)
    source.add_unpack(indent, "<", slots, raw, exact=not layout.variable)
    plain = " and ".join([f"w0 == {layout.version}", *(f"not w{word}" for word in range(1, layout.words))])
    for test, nulls in ((plain, False), (f"w0 & 65535 == {layout.version}", True)):
        source.add(indent, f"if {test}:")
        if ends:
            source.add(indent + 1, f"if e{layout.variable[-1]} != len({raw}): raise ValueError('its length is wrong')")
        values = [
            _field(source, raw, layout, output, begins, nulls=nulls) if isinstance(output, int) else str(output)
            for output in outputs
        ]
        source.add_values(indent + 1, values)


def _field(source: Source, raw: str, layout: RowLayout, position: int, begins: dict[int, str], *, nulls: bool) -> str:
    field = layout.fields[position]
    value = _value(source, field, f"v{position}", f"{raw}[{begins.get(position)}:e{position}]")
    if not nulls:
        return value
    word, mask = layout.null_bit(position)
    return f"None if w{word} & {mask} else {value}"


def _value(source: Source, field: Field, name: str, piece: str) -> str:
    match field.type:
        case FieldType.STRING:
            return f"{piece}.decode()"
        case FieldType.BYTES:
            return piece
        case FieldType.DECIMAL:
            return f"{source.constant('decimal', decimal_decoder(field))}({name})"
    return from_number(field.type, name)
