"""Row encoding: source for generated encoders of row values, with and without the checks of the contract."""

from __future__ import annotations

import struct
from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType

from structable.backends.base.field_types import FIELD_TYPES
from structable.spi import Field, FieldType

from .row_layout import RowLayout
from .scalars import decimal_checker, decimal_encoder, to_number, unusual, wrong_class
from .source import GeneratedSource

_SINGLE = struct.Struct("<f")
_JOINED = 4


def add_row_encoder(
    source: GeneratedSource,
    indent: int,
    layout: RowLayout,
    names: Sequence[str],
    *,
    checks: bool,
    unset: Container[int] = (),
    then: Mapping[int, Sequence[str]] = MappingProxyType({}),
) -> tuple[str, str | None]:
    """Add lines that encode the variables of a layout's fields, None as null. They assign to the variables.

    Fields at the positions `unset` are null and have no variables yet; each field's lines end with the lines `then`.

    With `checks`, the function returns None for values that differ from the results of `check_row`, except that packing
    checks the ranges of numbers (struct.error or OverflowError) and encoding rejects surrogates (ValueError).

    Returns the source of the value, and the variable that will hold its length, if the length is not constant.
    """
    words = [layout.version] + [0] * (layout.words - 1)
    for position in range(len(layout.fields)):
        word, mask = layout.null_bit(position)
        words[word] |= mask if position in unset else 0
    for word, bits in enumerate(words):
        source.add(indent, f"w{word} = {bits}")
    for position, (field, name) in enumerate(zip(layout.fields, names, strict=True)):
        if position in unset:
            source.add(indent, f"{name} = {_nothing(field.type)}")
            continue
        word, mask = layout.null_bit(position)
        add_field_encoder(source, indent, field, name, f"w{word} |= {mask}", checks=checks)
        for line in then.get(position, ()):
            source.add(indent, line)
    end = str(layout.size)
    for position in layout.variable:
        source.add(indent, f"e{position} = {end} + len({names[position]})")
        end = f"e{position}"
    slots = layout.words_slots() + [
        (code, names[position])
        for position, (code, _) in zip(layout.fixed, layout.fixed_slots(layout.fixed), strict=True)
    ]
    header = source.packed("<", slots + layout.end_slots(layout.variable))
    parts = [header, *(names[position] for position in layout.variable)]
    value = " + ".join(parts) if len(parts) <= _JOINED else f'b"".join(({", ".join(parts)}))'
    return value, end if layout.variable else None


def add_field_encoder(
    source: GeneratedSource, indent: int, field: Field, name: str, set_null: str, *, checks: bool
) -> None:
    """Add lines that convert one variable to its packed form; `set_null` runs for None. See `add_row_encoder`."""
    lines = _conversion(source, field, name, checks=checks)
    null = f"{name} = {_nothing(field.type)}; {set_null}"
    if not checks:
        source.add(indent, f"if {name} is None: {null}")
        if lines:
            source.add(indent, "else:")
    else:
        source.add(indent, f"if {wrong_class(field, name)}:")
        source.add(indent + 1, f"if {name} is not None: return None")
        source.add(indent + 1, null)
        if lines:
            source.add(indent, "else:")
    for line in lines:
        source.add(indent + 1, line)


def _nothing(kind: FieldType) -> str:
    form = FIELD_TYPES[kind]
    return repr(struct.unpack(f"<{form.number}", bytes(form.width))[0]) if form.number else 'b""'


def _conversion(source: GeneratedSource, field: Field, name: str, *, checks: bool) -> list[str]:
    lines = [f"if {test}: return None" for test in unusual(field, name)] if checks else []
    match field.type:
        case FieldType.STRING:
            lines.append(f"{name} = {name}.encode()")
        case FieldType.FLOAT if checks:
            single = f"{source.constant('unpack', _SINGLE.unpack)}({source.constant('pack', _SINGLE.pack)}({name}))[0]"
            lines.append(f"if {single} != {name} == {name}: return None")
        case FieldType.DECIMAL:
            encode = decimal_checker(field) if checks else decimal_encoder(field)
            lines.append(f"{name} = {source.constant('decimal', encode)}({name})")
    number = to_number(field.type, name)
    if number != name:
        lines.append(f"{name} = {number}")
    return lines
