"""The order-preserving form of key fields, as source for generated encoders and decoders.

    BOOLEAN                0 or 1, one byte
    BYTE SHORT INT LONG    big-endian, the sign bit flipped, in the width of the type
    DATE                   days since 1970 as an INT
    TIMESTAMP(_NTZ)        microseconds since 1970 as a LONG
    STRING                 UTF-8 and 0x00, which no string holds
    BYTES                  every 0x00 as 0x00 0xFF, and 0x00 0x00 at the end

Each form ends by itself, and compares bytewise as the values do; so do tuples of them.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Sequence

from structable.spi import Field, FieldType

from .scalars import from_number, to_number, wrong_class
from .source import Source

__all__ = ["add_key_checks", "add_key_decoder", "key_expression", "key_width", "shortest_form"]

_FORMATS = {
    FieldType.BOOLEAN: "?",
    FieldType.BYTE: "B",
    FieldType.SHORT: "H",
    FieldType.INT: "I",
    FieldType.LONG: "Q",
    FieldType.DATE: "I",
    FieldType.TIMESTAMP: "Q",
    FieldType.TIMESTAMP_NTZ: "Q",
}
_TERMINATORS = {FieldType.STRING: 1, FieldType.BYTES: 2}


def key_width(kind: FieldType) -> int:
    """Return the bytes of a type's form; 0 if it depends on the value."""
    return struct.calcsize(f">{_FORMATS[kind]}") if kind in _FORMATS else 0


def shortest_form(kind: FieldType) -> int:
    """Return the least bytes that a type's form takes."""
    return key_width(kind) or _TERMINATORS[kind]


def _bias(kind: FieldType) -> int:
    return 0 if kind is FieldType.BOOLEAN else 1 << (8 * key_width(kind) - 1)


def add_key_checks(source: Source, indent: int, fields: Sequence[Field], names: Sequence[str]) -> None:
    """Add lines that return None unless the variables hold values in the very form in which they are kept.

    Ranges of integers are left to the packing, which raises struct.error; lone surrogates to the encoding, which
    raises a ValueError; sizes to the caller.
    """
    for field, name in zip(fields, names, strict=True):
        tests = [wrong_class(field, name)]
        match field.type:
            case FieldType.STRING:
                tests.append(f'"\\0" in {name}')
            case FieldType.TIMESTAMP:
                tests.append(f"{name}.tzinfo is not UTC or {name}.fold")
            case FieldType.TIMESTAMP_NTZ:
                tests.append(f"{name}.tzinfo is not None or {name}.fold")
        source.add(indent, f"if {' or '.join(tests)}: return None")


def key_expression(source: Source, head: bytes, fields: Sequence[Field], names: Sequence[str]) -> str:
    """Return the source of the key: the constant `head`, then the forms of the variables. It may assign to them."""
    parts: list[str] = []
    # Fixed-width fields that follow one another are one pack, with the constant head or the terminator before them.
    run, arguments = (f"{len(head)}s", [source.constant("head", head)]) if head else ("", [])

    def end_run() -> None:
        if arguments and run == f"{len(head)}s":
            parts.append(arguments[0])
        elif arguments:
            parts.append(f"{source.constant('pack', struct.Struct('>' + run).pack)}({', '.join(arguments)})")
        elif run:
            parts.append(repr(bytes(len(run))))

    for field, name in zip(fields, names, strict=True):
        if field.type in _FORMATS:
            run += _FORMATS[field.type]
            number, bias = to_number(field.type, name), _bias(field.type)
            arguments.append(f"{number} + {bias}" if bias else number)
            continue
        end_run()
        parts.append(f"{name}.encode()" if field.type is FieldType.STRING else rf'{name}.replace(b"\0", b"\0\xff")')
        run, arguments = "x" * _TERMINATORS[field.type], []
    end_run()
    return " + ".join(parts) or 'b""'


def add_key_decoder(
    source: Source,
    indent: int,
    raw: str,
    start: int,
    fields: Sequence[Field],
    names: Sequence[str],
    wanted: Container[str],
) -> None:
    """Add lines that decode the wanted variables out of the bytes variable `raw`, where the fields begin at `start`.

    The last field of variable length is found from the end of the key, so that the usual key is not searched at all.
    """
    variable = [position for position, field in enumerate(fields) if field.type not in _FORMATS]
    if not variable:
        _add_unpack(source, indent, f"({raw})", start, fields, names, wanted, "unpack")
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
            place, skip = (f"({raw}, {at})", 0) if at else (f"({raw})", start)
            _add_unpack(source, indent, place, skip, fields[run], names[run], wanted, "unpack_from")
        first = f"{at} + {width}" if at and width else at or str(start + width)
        terminator = _TERMINATORS[fields[position].type]
        if position == last:
            tail = sum(key_width(field.type) for field in fields[position + 1 :])
            _add_text(source, indent, f"{raw}[{first}:-{tail + terminator}]", fields[position], names[position], wanted)
            if tail and any(name in wanted for name in names[position + 1 :]):
                rest = slice(position + 1, len(fields))
                _add_unpack(source, indent, f"({raw}[-{tail}:])", 0, fields[rest], names[rest], wanted, "unpack")
            continue
        if width or not at:
            source.add(indent, f"begin = {first}")
            first = "begin"
        end = f"end{position}"
        source.add(indent, f"{end} = {raw}.index({bytes(terminator)!r}, {first})")
        _add_text(source, indent, f"{raw}[{first}:{end}]", fields[position], names[position], wanted)
        source.add(indent, f"at = {end} + {terminator}")
        at, begin = "at", position + 1


def _add_text(source: Source, indent: int, piece: str, field: Field, name: str, wanted: Container[str]) -> None:
    if name not in wanted:
        return
    if field.type is FieldType.STRING:
        source.add(indent, f"{name} = {piece}.decode()")
    else:
        source.add(indent, rf'{name} = {piece}.replace(b"\0\xff", b"\0")')


def _add_unpack(
    source: Source,
    indent: int,
    call: str,
    skip: int,
    fields: Sequence[Field],
    names: Sequence[str],
    wanted: Container[str],
    method: str,
) -> None:
    text = ">" + (f"{skip}x" if skip else "")
    targets = []
    for field, name in zip(fields, names, strict=True):
        if name in wanted:
            text += _FORMATS[field.type]
            targets.append((field, name))
        else:
            text += f"{key_width(field.type)}x"
    if not targets:
        return
    unpack = source.constant("unpack", getattr(struct.Struct(text), method))
    source.add(indent, f"{', '.join(name for _, name in targets)}, = {unpack}{call}")
    for field, name in targets:
        if bias := _bias(field.type):
            source.add(indent, f"{name} = {from_number(field.type, f'({name} - {bias})')}")
