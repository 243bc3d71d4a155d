"""The stored form of field types: PostgreSQL's type, and the binary form of a value."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from psycopg.types.numeric import DecimalBinaryDumper
from sqlalchemy import types as sql
from sqlalchemy.dialects import postgresql

from structable.backends.base.field_types import FIELD_TYPES
from structable.spi import Field, FieldType
from structable.spi.plain_values import own_class

__all__ = [
    "DATE_ORIGIN",
    "NUMPY_CODES",
    "PACKED",
    "SHIFTS",
    "TIMESTAMP_NTZ_ORIGIN",
    "TIMESTAMP_ORIGIN",
    "StoredType",
    "array",
    "encode_value",
    "numeric",
    "stored_type",
    "stored_width",
]

DATE_ORIGIN = dt.date(2000, 1, 1).toordinal()
TIMESTAMP_ORIGIN = own_class(dt.datetime)(2000, 1, 1, tzinfo=dt.UTC)
TIMESTAMP_NTZ_ORIGIN = TIMESTAMP_ORIGIN.replace(tzinfo=None)
_MICROSECOND = dt.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class StoredType:
    """PostgreSQL's type of a field."""

    name: str  # in SQL, without collation
    core: sql.TypeEngine[Any]
    oid: int
    array_oid: int  # of arrays of the type


_TYPES = {
    FieldType.BOOLEAN: StoredType("boolean", sql.Boolean(), 16, 1000),
    FieldType.BYTE: StoredType("smallint", sql.SmallInteger(), 21, 1005),
    FieldType.SHORT: StoredType("smallint", sql.SmallInteger(), 21, 1005),
    FieldType.INT: StoredType("integer", sql.Integer(), 23, 1007),
    FieldType.LONG: StoredType("bigint", sql.BigInteger(), 20, 1016),
    FieldType.FLOAT: StoredType("real", sql.REAL(), 700, 1021),
    FieldType.DOUBLE: StoredType("double precision", sql.DOUBLE_PRECISION(), 701, 1022),
    FieldType.STRING: StoredType("text", sql.Text(collation="C"), 25, 1009),
    FieldType.BYTES: StoredType("bytea", postgresql.BYTEA(), 17, 1001),
    FieldType.DATE: StoredType("date", sql.Date(), 1082, 1182),
    FieldType.TIMESTAMP: StoredType("timestamp with time zone", sql.TIMESTAMP(timezone=True), 1184, 1185),
    FieldType.TIMESTAMP_NTZ: StoredType("timestamp without time zone", sql.TIMESTAMP(), 1114, 1115),
}


def stored_type(field: Field) -> StoredType:
    """Return the PostgreSQL type of a field."""
    if field.type is FieldType.DECIMAL:
        core = sql.Numeric(field.precision, field.scale)
        return StoredType(f"numeric({field.precision},{field.scale})", core, 1700, 1231)
    return _TYPES[field.type]


PACKED: dict[FieldType, str] = {
    kind: "h" if kind is FieldType.BYTE else form.number
    for kind, form in FIELD_TYPES.items()
    if form.number and kind not in (FieldType.BOOLEAN, FieldType.DECIMAL)
}
"""The `struct` formats of the numbers that represent fixed-width values; big-endian."""
NUMPY_CODES: dict[FieldType, str] = {
    kind: f">{'i2' if kind is FieldType.BYTE else FIELD_TYPES[kind].numpy}" for kind in PACKED
}
"""The same as NumPy dtypes."""
_DAYS = DATE_ORIGIN - dt.date(1970, 1, 1).toordinal()
_MICROSECONDS = _DAYS * 86_400_000_000
SHIFTS = {FieldType.DATE: _DAYS, FieldType.TIMESTAMP: _MICROSECONDS, FieldType.TIMESTAMP_NTZ: _MICROSECONDS}
"""The offset of Arrow's numbers, which count from 1970, from the server's."""

_DECIMALS = DecimalBinaryDumper(Decimal)


def numeric(value: Decimal) -> bytes:
    """Return the binary form of a decimal."""
    return bytes(_DECIMALS.dump(value) or b"")


_ENCODERS: dict[FieldType, Callable[[Any], bytes]] = {
    FieldType.BOOLEAN: lambda value: b"\x01" if value else b"\x00",
    FieldType.STRING: str.encode,
    FieldType.BYTES: bytes,
    FieldType.DECIMAL: numeric,
    FieldType.DATE: lambda value: struct.pack(">i", value.toordinal() - DATE_ORIGIN),
    FieldType.TIMESTAMP: lambda value: struct.pack(">q", (value - TIMESTAMP_ORIGIN) // _MICROSECOND),
    FieldType.TIMESTAMP_NTZ: lambda value: struct.pack(">q", (value - TIMESTAMP_NTZ_ORIGIN) // _MICROSECOND),
    **{
        kind: struct.Struct(f">{PACKED[kind]}").pack
        for kind in (FieldType.BYTE, FieldType.SHORT, FieldType.INT, FieldType.LONG, FieldType.FLOAT, FieldType.DOUBLE)
    },
}


def encode_value(field: Field, value: object) -> bytes | None:
    """Return the binary form of a checked value; None for null."""
    return None if value is None else _ENCODERS[field.type](value)


_WIDTHS = {16: 1, 21: 2, 23: 4, 20: 8, 700: 4, 701: 8, 1082: 4, 1184: 8, 1114: 8}
"""The size of values, by the number of the type, if it is constant."""
_LENGTH = struct.Struct(">i")
_LENGTHS = {oid: _LENGTH.pack(width) for oid, width in _WIDTHS.items()}
_NULL = _LENGTH.pack(-1)
_ARRAY = struct.Struct(">iiIii")


def stored_width(field: Field) -> int:
    """Return the size of a field's values, in the binary form and in a row of a table; 0 if they vary."""
    return _WIDTHS.get(stored_type(field).oid, 0)


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
