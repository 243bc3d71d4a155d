"""The stored form of field types, in one table: PostgreSQL's type, and the binary form of a value."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from psycopg.types.numeric import DecimalBinaryDumper

from structable.backends.base.field_types import FIELD_TYPES
from structable.spi import Field, FieldType
from structable.spi.authors import own_class

DATE_ORIGIN = dt.date(2000, 1, 1).toordinal()
TIMESTAMP_ORIGIN = own_class(dt.datetime)(2000, 1, 1, tzinfo=dt.UTC)
TIMESTAMP_NTZ_ORIGIN = TIMESTAMP_ORIGIN.replace(tzinfo=None)
_MICROSECOND = dt.timedelta(microseconds=1)
_DAYS = DATE_ORIGIN - dt.date(1970, 1, 1).toordinal()
_MICROSECONDS = _DAYS * 86_400_000_000
_DECIMALS = DecimalBinaryDumper(Decimal)


@dataclass(frozen=True, slots=True)
class StoredType:
    """One line of the table."""

    name: str  # in SQL, without collation
    oid: int
    array_oid: int  # of arrays of the type
    encode: Callable[[Any], bytes]
    """The function from a value to its binary form."""
    packed: str = ""
    """The `struct` format of the number that is the binary form, big-endian; empty if the width varies."""
    send: str = ""
    """The server's function that returns the binary form of a number."""
    shift: int = 0
    """The offset of Arrow's numbers, which count from 1970, from the server's."""
    bounds: tuple[int, int] | None = None
    """The contract's bounds where the server's type is wider: rows written by other SQL may exceed them."""

    @property
    def width(self) -> int:
        """The size of the binary form, and of a value in a row of a table; 0 if it varies."""
        return struct.calcsize(f">{self.packed}") if self.packed else 0

    @property
    def numpy(self) -> str:
        """The dtype of the number."""
        return ">" + {"?": "?", "f": "f4", "d": "f8"}.get(self.packed, f"i{self.width}")

    @property
    def sql(self) -> str:
        """The type of a column."""
        return 'text collate "C"' if self.name == "text" else self.name


def _since(kind: FieldType) -> tuple[int, tuple[int, int]]:
    """Return the shift and the bounds of numbers that count from 2000."""
    shift = _DAYS if kind is FieldType.DATE else _MICROSECONDS
    return shift, (FIELD_TYPES[kind].least - shift, FIELD_TYPES[kind].greatest - shift)


def _date(value: dt.date) -> bytes:
    return _PACK["i"](value.toordinal() - DATE_ORIGIN)


def _timestamp(value: dt.datetime) -> bytes:
    return _PACK["q"]((value - TIMESTAMP_ORIGIN) // _MICROSECOND)


def _timestamp_ntz(value: dt.datetime) -> bytes:
    return _PACK["q"]((value - TIMESTAMP_NTZ_ORIGIN) // _MICROSECOND)


def _numeric(value: Decimal) -> bytes:
    return bytes(_DECIMALS.dump(value) or b"")


_PACK: dict[str, Callable[[Any], bytes]] = {code: struct.Struct(f">{code}").pack for code in "?hiqfd"}
_NTZ = FieldType.TIMESTAMP_NTZ
_TYPES = {
    FieldType.BOOLEAN: StoredType("boolean", 16, 1000, _PACK["?"], "?", "boolsend"),
    FieldType.BYTE: StoredType("smallint", 21, 1005, _PACK["h"], "h", "int2send", bounds=(-128, 127)),
    FieldType.SHORT: StoredType("smallint", 21, 1005, _PACK["h"], "h", "int2send"),
    FieldType.INT: StoredType("integer", 23, 1007, _PACK["i"], "i", "int4send"),
    FieldType.LONG: StoredType("bigint", 20, 1016, _PACK["q"], "q", "int8send"),
    FieldType.FLOAT: StoredType("real", 700, 1021, _PACK["f"], "f", "float4send"),
    FieldType.DOUBLE: StoredType("double precision", 701, 1022, _PACK["d"], "d", "float8send"),
    FieldType.DECIMAL: StoredType("numeric", 1700, 1231, _numeric),
    FieldType.STRING: StoredType("text", 25, 1009, str.encode),
    FieldType.BYTES: StoredType("bytea", 17, 1001, bytes),
    FieldType.DATE: StoredType("date", 1082, 1182, _date, "i", "date_send", *_since(FieldType.DATE)),
    FieldType.TIMESTAMP: StoredType(
        "timestamp with time zone", 1184, 1185, _timestamp, "q", "timestamptz_send", *_since(FieldType.TIMESTAMP)
    ),
    _NTZ: StoredType("timestamp without time zone", 1114, 1115, _timestamp_ntz, "q", "timestamp_send", *_since(_NTZ)),
}


def stored_type(field: Field) -> StoredType:
    """Return the PostgreSQL type of a field."""
    found = _TYPES[field.type]
    if field.type is FieldType.DECIMAL:
        return replace(found, name=f"numeric({field.precision},{field.scale})")
    return found


def stored_width(field: Field) -> int:
    """Return the size of a field's values, in the binary form and in a row of a table; 0 if they vary."""
    return _TYPES[field.type].width


_ENCODERS = {kind: found.encode for kind, found in _TYPES.items()}


def encode_value(field: Field, value: object) -> bytes | None:
    """Return the binary form of a checked value; None for null."""
    return None if value is None else _ENCODERS[field.type](value)


_LENGTH = struct.Struct(">i")
_LENGTHS = {found.oid: _LENGTH.pack(found.width) for found in _TYPES.values() if found.width}
_NULL = _LENGTH.pack(-1)
_ARRAY = struct.Struct(">iiIii")


def array(oid: int, pieces: Sequence[bytes | None]) -> bytes:
    """Return the binary form of an array of values in binary form."""
    if not pieces:
        return struct.pack(">iiI", 0, 0, oid)
    pack = _LENGTH.pack
    has_nulls = None in pieces
    length = None if has_nulls else _LENGTHS.get(oid)
    if length is not None:
        body = length + length.join(pieces)  # type: ignore[arg-type]
    else:
        body = b"".join([_NULL if piece is None else pack(len(piece)) + piece for piece in pieces])
    return _ARRAY.pack(1, has_nulls, oid, len(pieces), 1) + body
