"""Conversion of single values to stored integers and back, as expressions for generated code."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable

from structable.backends.base.field_types import FIELD_TYPES
from structable.spi import Field, FieldType
from structable.spi.authors import EXACT, exact_context

EPOCH = FIELD_TYPES[FieldType.TIMESTAMP].python(1970, 1, 1, tzinfo=dt.UTC)
EPOCH_NTZ = EPOCH.replace(tzinfo=None)
EPOCH_ORDINAL = dt.date(1970, 1, 1).toordinal()


def wrong_class(field: Field, name: str) -> str:
    """Return the source of the test that a variable's class is not exactly the class of stored values of the field."""
    return f"{name}.__class__ is not {FIELD_TYPES[field.type].python.__name__}"


def unusual(field: Field, name: str) -> list[str]:
    """Return the tests that find, among values of the right class, those that cannot be stored as they are."""
    match field.type:
        case FieldType.STRING:
            return [f'"\\0" in {name}']
        case FieldType.TIMESTAMP:
            return [f"{name}.tzinfo is not UTC or {name}.fold"]
        case FieldType.TIMESTAMP_NTZ:
            return [f"{name}.tzinfo is not None or {name}.fold"]
    return []


def to_number(kind: FieldType, name: str) -> str:
    """Return the source of the integer that represents a date or a time: days, or microseconds, since 1970."""
    if kind is FieldType.DATE:
        return f"{name}.toordinal() - {EPOCH_ORDINAL}"
    if kind in (FieldType.TIMESTAMP, FieldType.TIMESTAMP_NTZ):
        epoch = "EPOCH" if kind is FieldType.TIMESTAMP else "EPOCH_NTZ"
        return f"({name} := {name} - {epoch}).days * 86400000000 + {name}.seconds * 1000000 + {name}.microseconds"
    return name


def from_number(kind: FieldType, number: str) -> str:
    """Return the source that converts an integer of `to_number` back to the value."""
    if kind is FieldType.DATE:
        return f"date.fromordinal({number} + {EPOCH_ORDINAL})"
    if kind is FieldType.TIMESTAMP:
        return f"EPOCH + timedelta(0, 0, {number})"
    if kind is FieldType.TIMESTAMP_NTZ:
        return f"EPOCH_NTZ + timedelta(0, 0, {number})"
    return number


def decimal_checker(field: Field) -> Callable[[decimal.Decimal], bytes]:
    """Return the encoder of a DECIMAL that raises ArithmeticError or ValueError if the value does not fit exactly."""
    precision, scale = field.precision or 0, field.scale or 0
    context = exact_context(precision)
    unit = decimal.Decimal((0, (1,), -scale))
    encode = decimal_encoder(field)

    def check(value: decimal.Decimal) -> bytes:
        return encode(context.quantize(value, unit))

    return check


def decimal_encoder(field: Field) -> Callable[[decimal.Decimal], bytes]:
    """Return the encoder of checked DECIMALs: 16 bytes, little-endian, of the value times 10 ** scale."""
    scale, scaleb = field.scale or 0, EXACT.scaleb

    def encode(value: decimal.Decimal) -> bytes:
        return int(scaleb(value, scale)).to_bytes(16, "little", signed=True)

    return encode


def decimal_decoder(field: Field) -> Callable[[bytes], decimal.Decimal]:
    """Return the inverse of `decimal_encoder`; it raises ValueError for numbers beyond the precision."""
    precision, scale = field.precision or 0, field.scale or 0
    beyond, scaleb = 10**precision, EXACT.scaleb

    def decode(raw: bytes) -> decimal.Decimal:
        number = int.from_bytes(raw, "little", signed=True)
        if not -beyond < number < beyond:
            raise ValueError(f"{number} does not fit {field.type_text}")
        return scaleb(decimal.Decimal(number), -scale)

    return decode
