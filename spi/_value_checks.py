"""Checks of values: one checker per type.

Backends may check faster, but this module's results are the contract.
"""

from __future__ import annotations

import datetime as dt
import decimal
import struct
from collections.abc import Callable
from typing import NoReturn

from ._error_texts import shown
from ._errors import InvalidFieldError
from ._fields import Field, FieldType
from ._plain_values import USE_NONE, is_aware, is_missing, plain_date, plain_datetime
from ._values import Value

_FLOAT_32 = struct.Struct("<f")


class _Refused(Exception):
    """Carries a reason from a type's checker to `check_value`, which knows table and field."""


def _refuse(reason: str) -> NoReturn:
    raise _Refused(reason)


def _wrong_type(value: object, wanted: str) -> NoReturn:
    _refuse(f"{shown(value)} is of type {type(value).__name__}; {wanted} is needed")


def _boolean(value: object, field: Field) -> bool:
    if not isinstance(value, bool):
        _wrong_type(value, "a bool")
    return value


def _integer(value: object, field: Field) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        _wrong_type(value, "an int")
    bound = 1 << (field.type.integer_bits - 1)
    if not -bound <= value < bound:
        _refuse(f"{shown(value)} is out of the range of {field.type.value}, {-bound} to {bound - 1}")
    return int(value)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _wrong_type(value, "a float")
    try:
        return float(value)
    except OverflowError:
        _refuse(f"{shown(value)} is beyond a 64-bit float")


def _double(value: object, field: Field) -> float:
    number = _number(value)
    if isinstance(value, int) and value != number:
        _refuse(lost_digits(field, value))
    return number


def lost_digits(field: Field, value: object) -> str:
    """Return the reason for refusing a whole number that a FLOAT or DOUBLE would round."""
    return f"{shown(value)} has more digits than a {32 if field.type is FieldType.FLOAT else 64}-bit float keeps"


def _float(value: object, field: Field) -> float:
    number = _number(value)
    try:
        return float(_FLOAT_32.unpack(_FLOAT_32.pack(number))[0])
    except OverflowError:
        _refuse(f"{number!r} is beyond a 32-bit float")


def _decimal(value: object, field: Field) -> decimal.Decimal:
    if isinstance(value, int) and not isinstance(value, bool):
        bound = 10 ** ((field.precision or 0) - (field.scale or 0))
        if not -bound < value < bound:  # before it becomes a Decimal, which may take long
            _refuse(f"{shown(value)} does not fit {field.type_text} exactly")
        value = decimal.Decimal(value)
    if not isinstance(value, decimal.Decimal):
        _wrong_type(value, "a decimal.Decimal")
    precision, scale = field.precision or 0, field.scale or 0
    if not value.is_finite():
        _refuse(f"{value} is not a finite number")
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if not any(digits):
        return decimal.Decimal((0, (0,), -scale))
    # Trailing zeros carry no value: 1.50 fits a scale of 1, and 1E+2 is 100.
    kept = len(digits)
    while exponent < -scale and digits[kept - 1] == 0:
        kept, exponent = kept - 1, exponent + 1
    digits = digits[:kept]
    if exponent < -scale or len(digits) + exponent > precision - scale:
        _refuse(f"{shown(value)} does not fit {field.type_text} exactly")
    return decimal.Decimal((sign, digits + (0,) * (exponent + scale), -scale))


def _string(value: object, field: Field) -> str:
    if not isinstance(value, str):
        _wrong_type(value, "a str")
    if "\0" in value:
        _refuse(f"{shown(value)} holds a NUL character, which a string must not")
    try:
        value.encode()
    except UnicodeEncodeError:
        _refuse(f"{shown(value)} holds a lone surrogate, which UTF-8 cannot encode")
    return str.__str__(value)  # the text itself: a subclass, like an enumeration, may print another one


def _bytes(value: object, field: Field) -> bytes:
    if not isinstance(value, bytes):
        _wrong_type(value, "bytes")
    return bytes(value)


def _date(value: object, field: Field) -> dt.date:
    if isinstance(value, dt.datetime) or not isinstance(value, dt.date):
        _wrong_type(value, "a datetime.date without a time")
    return plain_date(value)


def _timestamp(value: object, field: Field) -> dt.datetime:
    if not is_aware(value):
        if not isinstance(value, dt.datetime) or is_missing(value):
            _wrong_type(value, "an aware datetime.datetime")
        _refuse(f"{shown(value)} has no time zone; an aware datetime is needed")
    try:
        # `fold` carries no instant, and equal instants must be equal everywhere.
        return plain_datetime(value).astimezone(dt.UTC).replace(fold=0)
    except OverflowError:
        _refuse(f"{shown(value)} is out of range in UTC")
    except ValueError as error:
        _refuse(str(error))


def _timestamp_ntz(value: object, field: Field) -> dt.datetime:
    if not isinstance(value, dt.datetime) or is_missing(value):
        _wrong_type(value, "a naive datetime.datetime")
    if value.tzinfo is not None:
        _refuse(f"{shown(value)} has a time zone; a naive datetime is needed")
    try:
        return plain_datetime(value).replace(fold=0)
    except ValueError as error:
        _refuse(str(error))


_CHECKERS: dict[FieldType, Callable[[object, Field], Value]] = {
    FieldType.BOOLEAN: _boolean,
    FieldType.BYTE: _integer,
    FieldType.SHORT: _integer,
    FieldType.INT: _integer,
    FieldType.LONG: _integer,
    FieldType.FLOAT: _float,
    FieldType.DOUBLE: _double,
    FieldType.DECIMAL: _decimal,
    FieldType.STRING: _string,
    FieldType.BYTES: _bytes,
    FieldType.DATE: _date,
    FieldType.TIMESTAMP: _timestamp,
    FieldType.TIMESTAMP_NTZ: _timestamp_ntz,
}


def check_value(table: str, field: Field, value: object) -> Value:
    """Return a non-null value in its stored form, e.g. a FLOAT rounded, a TIMESTAMP in UTC.

    Parameters
    ----------
    table : str
        The table's name, for the message.
    field : Field
        The field.
    value : object
        Any object; None is rejected, as the caller handles null.

    Raises
    ------
    InvalidFieldError
        If the value is not one of the field's type.
    """
    try:
        return _CHECKERS[field.type](value, field)
    except _Refused as refusal:
        hint = f"; {USE_NONE}" if is_missing(value) else ""
        raise InvalidFieldError(table, field.name, f"{refusal}{hint}") from None
