"""Converts values to text and back, by the field's type; the same for JSON.

The command line, `--where` and CSV share the text form, and parsing a formatted value gives the same value.
docs/cli.md holds the table. Null has no text: each format defines how it is written.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import decimal
import math
import re
import struct
from collections.abc import Callable
from typing import TypeAlias

from ._errors import InvalidFieldError
from ._fields import Field, FieldType
from ._value_checks import check_value, lost_digits
from ._values import EXACT, Value

JsonValue: TypeAlias = bool | int | float | str | None

_INTEGER = re.compile(r"([+-]?[0-9]+)(\.0*)?")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[+-]?(nan|inf(inity)?)", re.IGNORECASE)
_HEX = re.compile(r"0[xX](([0-9a-fA-F]{2})*)")
_FRACTION = re.compile(r"[.,]([0-9]+)")
_FLOAT_32 = struct.Struct("<f")
_SHOWN = 60
_FRACTIONS = (FieldType.FLOAT, FieldType.DOUBLE, FieldType.DECIMAL)


class LiteralError(ValueError):
    """A text is not a value of the field; the message describes valid ones."""


def parse_value(field: Field, text: str) -> Value:
    """Return the value of a text, never null, or raise `LiteralError`."""
    value = checked_value(field, _PARSERS[field.type](text))
    # Smaller whole numbers are exact in both types of floats.
    if isinstance(value, float) and (value == 0 or 1 << 24 <= abs(value) < math.inf):
        _check_digits(field, text, value)
    return value


def _check_digits(field: Field, text: str, value: float) -> None:
    """Refuse a whole number that lost digits, and a number that became 0; other fractions may be rounded."""
    number = _decimal(text)
    _, digits, exponent = number.as_tuple()
    kept = len("".join(map(str, digits)).strip("0"))
    whole = isinstance(exponent, int) and (exponent >= 0 or not any(digits[exponent:]))
    # As long as the text, which may be the shortest of the float or have more digits than it.
    if whole and decimal.Decimal(f"{value:.{max(kept - 1, 0)}e}") != number:
        raise LiteralError(lost_digits(field, number))
    if value == 0 != number:
        raise LiteralError(f"{shown_text(text)} is nearer to 0 than any {field.type.value}")


def checked_value(field: Field, value: object) -> Value:
    """Return a value in its stored form, or raise `LiteralError`."""
    try:
        return check_value("", field, value)
    except InvalidFieldError as error:
        raise LiteralError(error.reason) from None


def shown_text(text: object) -> str:
    """Return a text for a message, cut if it is long."""
    shown = repr(text)
    return shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 3]}..."


def escaped_text(text: str) -> str:
    """Return a text with its control characters escaped, as a terminal may show it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def _boolean(text: str) -> bool:
    truth = {"true": True, "false": False}.get(text.lower())
    if truth is None:
        raise LiteralError(f"{shown_text(text)} is neither true nor false")
    return truth


def _integer(text: str) -> int:
    match = _INTEGER.fullmatch(text)
    if not match or len(text) > 100:
        raise LiteralError(f"{shown_text(text)} is not a whole number")
    return int(match[1])


def _float(text: str) -> float:
    if _NUMBER.fullmatch(text):
        number = float(text)
        if math.isinf(number):
            raise LiteralError(f"{shown_text(text)} is beyond a 64-bit float")
        return number
    if not _NOT_FINITE.fullmatch(text):
        raise LiteralError(f"{shown_text(text)} is neither a number nor nan, inf or -inf")
    found = float(text)
    return math.nan if math.isnan(found) else found  # without the sign that C writes


def _decimal(text: str) -> decimal.Decimal:
    if not _NUMBER.fullmatch(text):
        raise LiteralError(f"{shown_text(text)} is not a decimal number")
    try:
        return decimal.Decimal(text, EXACT)  # the program's own context may have no traps
    except ArithmeticError:
        raise LiteralError(f"{shown_text(text)} has an exponent that is out of range") from None


def _bytes(text: str) -> bytes:
    match = _HEX.fullmatch(text)
    if not match:
        raise LiteralError(f"{shown_text(text)} is not a byte string, which is 0x and two hexadecimal digits a byte")
    return bytes.fromhex(match[1])


def _date(text: str) -> dt.date:
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        pass
    try:
        moment = parse_time(text, "")
    except LiteralError:
        raise LiteralError(f"{shown_text(text)} is not a date like 2024-05-31") from None
    return day_of(text, moment)


def day_of(text: str, moment: dt.datetime) -> dt.date:
    """Return the date of a midnight without a zone, which the text names, or raise `LiteralError`."""
    if moment.tzinfo is not None or moment.time() != dt.time():
        raise LiteralError(f"{shown_text(text)} is not midnight; this field keeps whole days, without a time zone")
    return moment.date()


def parse_time(text: str, example: str) -> dt.datetime:
    """Return a time, with a zone or without; the example is for the error."""
    fraction = _FRACTION.search(text)
    if fraction and fraction[1][6:].strip("0"):
        raise LiteralError(f"{shown_text(text)} is finer than a microsecond")
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        raise LiteralError(f"{shown_text(text)} is not a timestamp like {example}") from None


def _timestamp(text: str) -> dt.datetime:
    instant = parse_time(text, "2024-05-31T08:30:00Z")
    if instant.tzinfo is None:
        raise LiteralError(f"{shown_text(text)} has no time zone: end it in Z (for UTC) or an offset like +02:00")
    return instant


def _timestamp_ntz(text: str) -> dt.datetime:
    instant = parse_time(text, "2024-05-31T08:30:00")
    if instant.tzinfo is not None:
        raise LiteralError(f"{shown_text(text)} has a time zone, which this field does not keep")
    return instant


_PARSERS: dict[FieldType, Callable[[str], Value]] = {
    FieldType.BOOLEAN: _boolean,
    FieldType.BYTE: _integer,
    FieldType.SHORT: _integer,
    FieldType.INT: _integer,
    FieldType.LONG: _integer,
    FieldType.FLOAT: _float,
    FieldType.DOUBLE: _float,
    FieldType.DECIMAL: _decimal,
    FieldType.STRING: str,
    FieldType.BYTES: _bytes,
    FieldType.DATE: _date,
    FieldType.TIMESTAMP: _timestamp,
    FieldType.TIMESTAMP_NTZ: _timestamp_ntz,
}


def format_value(field: Field, value: Value) -> str:
    """Return the text of a value that is not null; `parse_value` reads it back."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return _shortest_float(value) if field.type is FieldType.FLOAT else repr(value)
        case decimal.Decimal():
            return format(value, "f")
        case bytes():
            return f"0x{value.hex()}"
        case dt.datetime():
            return value.astimezone(dt.UTC).isoformat()[:-6] + "Z" if value.tzinfo else value.isoformat()
        case dt.date():
            return value.isoformat()
    return str(value)


def _shortest_float(value: float) -> str:
    # A 32-bit float read as Python's 64-bit one has meaningless digits: 0.10000000149011612.
    if math.isfinite(value):
        for digits in range(6, 10):
            text = repr(float(f"{value:.{digits}g}"))
            if _FLOAT_32.unpack(_FLOAT_32.pack(float(text)))[0] == value:
                return text
    return repr(value)


def value_to_json(field: Field, value: Value) -> JsonValue:
    """Return the JSON form of a value: numbers, booleans and strings as such, bytes as base64, all else as text."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            text = format_value(field, value)
            return float(text) if math.isfinite(value) else text
        case bytes():
            return base64.b64encode(value).decode("ascii")
    return format_value(field, value)


def value_from_json(field: Field, value: object, parse: Callable[[Field, str], Value] = parse_value) -> Value:
    """Return the value of a JSON value, null included, or raise `LiteralError`; `parse` reads its strings."""
    kind = field.type
    if value is None:
        return None
    if kind is FieldType.BYTES and isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise LiteralError(f"{shown_text(value)} is not base64") from None
    if isinstance(value, str):
        if kind is FieldType.BOOLEAN or kind.integer_bits:
            raise LiteralError(f"{shown_text(value)} is a string; a {field.type_text} is needed")
        return parse(field, value)
    if isinstance(value, decimal.Decimal) and kind is not FieldType.DECIMAL:
        if kind.integer_bits and value.adjusted() < 20 and value == int(value):
            return checked_value(field, int(value))
        return parse_value(field, str(value))
    if kind in _FRACTIONS and isinstance(value, int | float) and not isinstance(value, bool):
        return parse_value(field, repr(value))
    if isinstance(value, list | dict):
        raise LiteralError(f"{shown_text(value)} is not a value; a {field.type_text} is needed")
    return checked_value(field, value)
