"""The order-preserving form of key fields, as source for generated encoders and decoders.

    BOOLEAN                0 or 1, one byte
    BYTE SHORT INT LONG    big-endian, the sign bit flipped, in the width of the type
    DATE                   days since 1970 as an INT
    TIMESTAMP(_NTZ)        microseconds since 1970 as a LONG
    STRING                 UTF-8 and 0x00, which no string contains
    BYTES                  every 0x00 as 0x00 0xFF, and 0x00 0x00 at the end

Each form delimits itself, and its bytes compare as the values do; so do concatenations of forms.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Sequence

from structable.backends.base.field_types import FIELD_TYPES
from structable.spi import Field, FieldType

from .scalars import from_number, to_number, unusual, wrong_class
from .source import GeneratedSource, Slot

_TERMINATORS = {FieldType.STRING: 1, FieldType.BYTES: 2}


def key_width(kind: FieldType) -> int:
    """Return the number of bytes of a type's form; 0 if it depends on the value."""
    form = FIELD_TYPES[kind]
    return form.width if form.key else 0


def shortest_form(kind: FieldType) -> int:
    """Return the minimum number of bytes of a type's form."""
    return key_width(kind) or _TERMINATORS[kind]


def key_bias(kind: FieldType) -> int:
    """Return the number to add to a value of a type to make it unsigned, which flips the sign bit."""
    return 0 if kind is FieldType.BOOLEAN else 1 << (8 * key_width(kind) - 1)


def add_key_checks(source: GeneratedSource, indent: int, fields: Sequence[Field], names: Sequence[str]) -> None:
    """Add lines that return None unless every variable holds a value in its stored form.

    Packing checks the ranges of integers (struct.error), encoding rejects lone surrogates (ValueError), and the caller
    checks sizes.
    """
    for field, name in zip(fields, names, strict=True):
        source.add(indent, f"if {' or '.join([wrong_class(field, name), *unusual(field, name)])}: return None")


def key_expression(source: GeneratedSource, head: bytes, fields: Sequence[Field], names: Sequence[str]) -> str:
    """Return the source of the key: the constant `head`, then the forms of the variables. May assign to them."""
    parts: list[str] = []
    # Adjacent fixed-width fields share one pack, together with the constant head or the terminator before them.
    run, arguments = (f"{len(head)}s", [source.constant("head", head)]) if head else ("", [])

    def end_run() -> None:
        if arguments and run == f"{len(head)}s":
            parts.append(arguments[0])
        elif arguments:
            parts.append(f"{source.constant('pack', struct.Struct('>' + run).pack)}({', '.join(arguments)})")
        elif run:
            parts.append(repr(bytes(len(run))))

    for field, name in zip(fields, names, strict=True):
        if code := FIELD_TYPES[field.type].key:
            run += code
            number, bias = to_number(field.type, name), key_bias(field.type)
            arguments.append(f"{number} + {bias}" if bias else number)
            continue
        end_run()
        parts.append(f"{name}.encode()" if field.type is FieldType.STRING else rf'{name}.replace(b"\0", b"\0\xff")')
        run, arguments = "x" * _TERMINATORS[field.type], []
    end_run()
    return " + ".join(parts) or 'b""'


def add_key_decoder(
    source: GeneratedSource,
    indent: int,
    raw: str,
    start: int,
    fields: Sequence[Field],
    names: Sequence[str],
    wanted: Container[str],
) -> None:
    """Add lines that decode the wanted variables from the bytes variable `raw`, whose fields begin at `start`.

    The last variable-length field is located from the end of the key, so most keys need no search.
    """
    variable = [position for position, field in enumerate(fields) if not key_width(field.type)]
    if not variable:
        _add_numbers(source, indent, raw, start, fields, names, wanted, exact=True)
        return
    last = variable[-1]
    at = ""
    begin = 0
    for position in variable:
        if not any(name in wanted for name in names[begin:]):
            return
        run = slice(begin, position)
        width = sum(key_width(field.type) for field in fields[run])
        if any(name in wanted for name in names[run]):
            where, skip = (f"{raw}, {at}", 0) if at else (raw, start)
            _add_numbers(source, indent, where, skip, fields[run], names[run], wanted, exact=False)
        first = f"{at} + {width}" if at and width else at or str(start + width)
        terminator = _TERMINATORS[fields[position].type]
        if position == last:
            tail = sum(key_width(field.type) for field in fields[position + 1 :])
            _add_text(source, indent, f"{raw}[{first}:-{tail + terminator}]", fields[position], names[position], wanted)
            if tail and any(name in wanted for name in names[position + 1 :]):
                rest = slice(position + 1, len(fields))
                _add_numbers(source, indent, f"{raw}[-{tail}:]", 0, fields[rest], names[rest], wanted, exact=True)
            continue
        if width or not at:
            source.add(indent, f"begin = {first}")
            first = "begin"
        end = f"end{position}"
        source.add(indent, f"{end} = {raw}.index({bytes(terminator)!r}, {first})")
        _add_text(source, indent, f"{raw}[{first}:{end}]", fields[position], names[position], wanted)
        source.add(indent, f"at = {end} + {terminator}")
        at, begin = "at", position + 1


def _add_text(
    source: GeneratedSource, indent: int, piece: str, field: Field, name: str, wanted: Container[str]
) -> None:
    if name not in wanted:
        return
    if field.type is FieldType.STRING:
        source.add(indent, f"{name} = {piece}.decode()")
    else:
        source.add(indent, rf'{name} = {piece}.replace(b"\0\xff", b"\0")')


def _add_numbers(
    source: GeneratedSource,
    indent: int,
    raw: str,
    skip: int,
    fields: Sequence[Field],
    names: Sequence[str],
    wanted: Container[str],
    *,
    exact: bool,
) -> None:
    targets = [(field, name) for field, name in zip(fields, names, strict=True) if name in wanted]
    if not targets:
        return
    slots: list[Slot] = [(f"{skip}s", None)] if skip else []
    slots += [
        (FIELD_TYPES[field.type].key, name if name in wanted else None)
        for field, name in zip(fields, names, strict=True)
    ]
    source.add_unpack(indent, ">", slots, raw, exact=exact)
    for field, name in targets:
        if bias := key_bias(field.type):
            source.add(indent, f"{name} = {from_number(field.type, f'({name} - {bias})')}")
