"""`RowEncoder`: users' rows to PostgreSQL's binary forms, generated for each set of fields.

A generated function encodes the rows that `check_row` would accept unchanged. It leaves all others to `check_row`,
which accepts them or raises the error.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from structable.backends.base.field_types import FIELD_TYPES
from structable.spi import Field, FieldType, TableSpecification, Value
from structable.spi.authors import MAX_KEY_AND_INDEX_SIZE, MAX_KEY_SIZE, MAX_ROW_SIZE, check_row

from .types import DATE_ORIGIN, TIMESTAMP_NTZ_ORIGIN, TIMESTAMP_ORIGIN, encode_value, stored_type, stored_width

Pieces = tuple[bytes | None, ...]
"""The binary forms of some fields' values."""

_FAILURES = (ValueError, TypeError, LookupError, ArithmeticError, struct.error)

SLACK = 64
"""The maximum difference between a value's size in the contract and the length of its binary form, if shorter."""


def at_most(pieces: Pieces) -> int:
    """Return an upper bound of the size of some fields, from their binary forms."""
    return SLACK * (len(pieces) - pieces.count(None)) + sum(map(len, filter(None, pieces)))


class RowEncoder:
    """Encodes rows that name exactly the fields `names`, which include the key, into pieces in the same order."""

    def __init__(self, spec: TableSpecification, names: tuple[str, ...]) -> None:
        self._spec = spec
        self._names = names
        self._fields = [spec.field(name) for name in names]

    @cached_property
    def fast(self) -> Callable[[Mapping[str, Value]], Pieces | None]:
        """The function from a row to pieces; it returns None for a row that `pieces` must check."""
        return _generate(self._spec, self._fields, copied=False)

    @cached_property
    def most(self) -> int:
        """The result of `at_most` for pieces without None; 0 if it depends on the pieces."""
        widths = [stored_width(one) for one in self._fields]
        return SLACK * len(widths) + sum(widths) if all(widths) else 0

    @cached_property
    def pieces(self) -> Callable[[Mapping[str, Value]], Pieces]:
        """The function from a row to the binary values of its fields; it raises the errors of `check_row`."""
        fast = self.fast

        def pieces(row: Mapping[str, Value]) -> Pieces:
            found = fast(row)
            return self._checked(row) if found is None else found

        return pieces

    @cached_property
    def copied(self) -> Callable[[Mapping[str, Value]], bytes]:
        """The function from a row to its form in a binary COPY; it raises the errors of `check_row`."""

        def with_nulls(row: Mapping[str, Value]) -> bytes:
            found: bytes | None = self._copied_with_nulls(row)
            return _copied(self._checked(row)) if found is None else found

        return _generate_full(self._spec, self._fields, with_nulls)

    @cached_property
    def _copied_with_nulls(self) -> Callable[[Mapping[str, Value]], bytes | None]:
        return _generate(self._spec, self._fields, copied=True)

    def _checked(self, row: Mapping[str, Value]) -> Pieces:
        checked = check_row(self._spec, row)
        return tuple([encode_value(field, checked[field.name]) for field in self._fields])


_COUNT = struct.Struct(">h")
_LENGTH = struct.Struct(">i")
_NULL = _LENGTH.pack(-1)


def _copied(pieces: Pieces) -> bytes:
    parts = [_NULL if piece is None else _LENGTH.pack(len(piece)) + piece for piece in pieces]
    return _COUNT.pack(len(pieces)) + b"".join(parts)


def generate_key_encoder(fields: Sequence[Field]) -> Callable[[object], Pieces | None]:
    """Return the function from a tuple of key values to pieces; None if `check_key` must decide."""
    constants = _constants(copied=False)
    lines = ["def encode(key):", f"    if key.__class__ is not tuple or len(key) != {len(fields)}: return None"]
    lines.append("    try:")
    if fields:
        lines.append(f"        {', '.join(f'v{place}' for place in range(len(fields)))}, = key")
    sizes: dict[str, str] = {}
    for position, field in enumerate(fields):
        name = f"v{position}"
        sizes[field.name] = f"s{position}" if not field.type.width else ""
        lines.append(f"        if {name}.__class__ is not {FIELD_TYPES[field.type].python.__name__}: return None")
        if field.type in (FieldType.TIMESTAMP, FieldType.TIMESTAMP_NTZ):
            lines.append(f"        if {name}.fold: return None")  # the key is returned in rows, which have no fold
        lines += [f"        {line}" for line in _encoded(field, name, position, constants, copied=False)]
    if any(sizes.values()):
        lines.append(f"        if {_size(fields, sizes)} > {MAX_KEY_SIZE}: return None")
    lines.append(f"        return ({''.join(f'v{place}, ' for place in range(len(fields)))})")
    lines += ["    except FAILURES:", "        return None"]
    exec(compile("\n".join(lines), "<generated encode>", "exec"), constants)  # noqa: S102
    return constants["encode"]  # type: ignore[no-any-return]


def _constants(*, copied: bool) -> dict[str, Any]:
    return {
        "date": FIELD_TYPES[FieldType.DATE].python,
        "datetime": FIELD_TYPES[FieldType.TIMESTAMP].python,
        "UTC": dt.UTC,
        "ORIGIN": TIMESTAMP_ORIGIN,
        "ORIGIN_NTZ": TIMESTAMP_NTZ_ORIGIN,
        "MICROSECOND": dt.timedelta(microseconds=1),
        "FAILURES": _FAILURES,
        "NULL": _NULL if copied else None,
        "length": _LENGTH.pack,
    }


def _generate(
    spec: TableSpecification, fields: Sequence[Field], *, copied: bool
) -> Callable[[Mapping[str, Value]], Any]:
    """Return the function from a dict to pieces or COPY's form; its result is None if `check_row` must decide."""
    constants = _constants(copied=copied)
    lines = ["def encode(row):", f"    if row.__class__ is not dict or len(row) != {len(fields)}: return None"]
    lines.append("    try:")
    sizes: dict[str, str] = {}
    for position, field in enumerate(fields):
        name, key = f"v{position}", field.name in spec.primary_key
        lines.append(f"        {name} = row[{field.name!r}]")
        if field.type is FieldType.DECIMAL:
            lines.append(f"        if {name} is not None: return None")
            lines.append(f"        {name} = NULL")
            continue
        sizes[field.name] = f"s{position}" if field.type in (FieldType.STRING, FieldType.BYTES) else ""
        indent = "        "
        lines.append(f"{indent}if {name}.__class__ is {FIELD_TYPES[field.type].python.__name__}:")
        lines += [f"{indent}    {line}" for line in _encoded(field, name, position, constants, copied=copied)]
        lines.append(f"{indent}elif {name} is None and {not key}:")
        lines.append(f"{indent}    {name} = NULL" + (f"; s{position} = 0" if sizes[field.name] else ""))
        lines.append(f"{indent}else: return None")
    lines += [f"        if {test}: return None" for test in _limits(spec, fields, sizes)]
    names = [f"v{position}" for position in range(len(fields))]
    if copied:
        constants["head"] = _COUNT.pack(len(fields))
        lines.append(f"        return b''.join(({', '.join(['head', *names])}))")
    else:
        lines.append(f"        return ({''.join(f'{name}, ' for name in names)})")
    lines += ["    except FAILURES:", "        return None"]
    exec(compile("\n".join(lines), "<generated encode>", "exec"), constants)  # noqa: S102
    return constants["encode"]  # type: ignore[no-any-return]


def _encoded(field: Field, name: str, position: int, constants: dict[str, Any], *, copied: bool) -> list[str]:
    """Return lines that turn a value of the right class into its piece."""
    kind = field.type
    if kind is FieldType.BOOLEAN:
        constants["yes"], constants["no"] = (b"\0\0\0\1\1", b"\0\0\0\1\0") if copied else (b"\1", b"\0")
        return [f"{name} = yes if {name} else no"]
    if kind in (FieldType.STRING, FieldType.BYTES):
        lines = [f"if '\\0' in {name}: return None", f"{name} = {name}.encode()"] if kind is FieldType.STRING else []
        lines.append(f"s{position} = len({name})")
        return [*lines, f"{name} = length(s{position}) + {name}"] if copied else lines
    tests, value = _number(field, name)
    lines = [f"if {test}: return None" for test in tests]
    code = stored_type(field).packed
    pack = f"pack_{code}"
    if copied:
        constants[pack] = struct.Struct(f">i{code}").pack
        return [*lines, f"{name} = {pack}({struct.calcsize('>' + code)}, {value})"]
    constants[pack] = struct.Struct(f">{code}").pack
    return [*lines, f"{name} = {pack}({value})"]


def _number(field: Field, name: str) -> tuple[list[str], str]:
    """Return tests that are true for values that need a full check, and the number as which a value is packed."""
    match field.type:
        case FieldType.BYTE:
            return [f"not -128 <= {name} <= 127"], name
        case FieldType.DATE:
            return [], f"{name}.toordinal() - {DATE_ORIGIN}"
        case FieldType.TIMESTAMP:
            return [f"{name}.tzinfo is not UTC"], f"({name} - ORIGIN) // MICROSECOND"
        case FieldType.TIMESTAMP_NTZ:
            return [f"{name}.tzinfo is not None"], f"({name} - ORIGIN_NTZ) // MICROSECOND"
        case _:
            return [], name


def _generate_full(
    spec: TableSpecification, fields: Sequence[Field], otherwise: Callable[[Mapping[str, Value]], bytes]
) -> Callable[[Mapping[str, Value]], bytes]:
    """Return the function from a dict to COPY's form that packs everything between two strings at once.

    Rows with a null, and other unusual rows, go to `otherwise`.
    """
    if any(field.type is FieldType.DECIMAL for field in fields):
        return otherwise
    constants = _constants(copied=True) | {"otherwise": otherwise}
    values = [f"v{position}" for position in range(len(fields))]
    texts: list[str] = []
    sizes: dict[str, str] = {}
    parts: list[str] = []
    layout, packed = ">h", [str(len(fields))]

    def close_run() -> None:
        pack = f"pack_{len(parts)}"
        constants[pack] = struct.Struct(layout).pack
        parts.append(f"{pack}({', '.join(packed)})")

    tests: list[str] = []
    for name, field in zip(values, fields, strict=True):
        tests.append(f"{name}.__class__ is not {FIELD_TYPES[field.type].python.__name__}")
        sizes[field.name] = ""
        if field.type in (FieldType.STRING, FieldType.BYTES):
            size = sizes[field.name] = f"s{name[1:]}"
            if field.type is FieldType.STRING:
                tests.append(f"'\\0' in {name}")
                texts.append(f"{name} = {name}.encode()")
            texts.append(f"{size} = len({name})")
            layout, packed = layout + "i", [*packed, size]
            close_run()
            parts.append(name)
            layout, packed = ">", []
            continue
        code = stored_type(field).packed
        found, number = _number(field, name)
        tests += found
        layout, packed = f"{layout}i{code}", [*packed, str(struct.calcsize(f">{code}")), number]
    if packed:
        close_run()
    lines = ["def encode(row):"]
    lines += [f"    if row.__class__ is not dict or len(row) != {len(fields)}: return otherwise(row)", "    try:"]
    lines += [f"        {name} = row[{field.name!r}]" for name, field in zip(values, fields, strict=True)]
    lines.append(f"        if not ({' or '.join(tests)}):")
    lines += [f"            {line}" for line in texts]
    lines.append(f"            if not ({' or '.join(_limits(spec, fields, sizes)) or False}):")
    lines.append(f"                return b''.join(({', '.join(parts)},))")
    lines += ["    except FAILURES:", "        pass", "    return otherwise(row)"]
    exec(compile("\n".join(lines), "<generated encode>", "exec"), constants)  # noqa: S102
    return constants["encode"]  # type: ignore[no-any-return]


def _limits(spec: TableSpecification, fields: Sequence[Field], sizes: dict[str, str]) -> list[str]:
    """Return tests that are true for rows that may be over a limit."""
    key = [field for field in fields if field.name in spec.primary_key]
    key_size = _size(key, sizes)
    tests = [f"{key_size} > {MAX_KEY_SIZE}"] if any(sizes.get(field.name) for field in key) else []
    for name in spec.indexes:
        if sizes.get(name):
            tests += [
                f"{sizes[name]} > {MAX_KEY_SIZE}",
                f"{key_size} + {sizes[name]} > {MAX_KEY_AND_INDEX_SIZE}",
            ]
    if any(sizes.values()):
        tests.append(f"{_size(fields, sizes)} > {MAX_ROW_SIZE}")
    return tests


def _size(fields: Sequence[Field], sizes: dict[str, str]) -> str:
    fixed = sum(field.type.width for field in fields)
    return " + ".join([str(fixed), *(sizes[field.name] for field in fields if sizes.get(field.name))])
