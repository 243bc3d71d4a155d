"""The rule of what a field accepts: one checker per type, and the sizes that limits count.

Backends may check faster, but what this module accepts and returns is the contract.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn, TypeAlias

from structable.spi.errors import FieldSizeLimitError, InvalidFieldError
from structable.spi.fields import Field, FieldType
from structable.spi.showing import shown
from structable.spi.specification import TableSpecification

__all__ = [
    "MAX_KEY_AND_INDEX_SIZE",
    "MAX_KEY_SIZE",
    "MAX_ROW_SIZE",
    "Key",
    "Value",
    "check_changes",
    "check_columns",
    "check_index_sizes",
    "check_key",
    "check_limit",
    "check_row",
    "check_row_size",
    "check_value",
    "value_size",
]

Value: TypeAlias = bool | int | float | decimal.Decimal | str | bytes | dt.date | dt.datetime | None
Key: TypeAlias = tuple[Value, ...] | Mapping[str, Value]

MAX_KEY_SIZE = 2_000
"""Bytes of a primary key, and likewise of one indexed value."""
MAX_KEY_AND_INDEX_SIZE = 2_500
"""Bytes of a primary key and one indexed value together."""
MAX_ROW_SIZE = 8 * 1024 * 1024
"""Bytes of a whole row, its key included, after the merge with what was there."""

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


def _double(value: object, field: Field) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _wrong_type(value, "a float")
    try:
        return float(value)
    except OverflowError:
        _refuse(f"{shown(value)} is beyond a 64-bit float")


def _float(value: object, field: Field) -> float:
    number = _double(value, field)
    try:
        return float(_FLOAT_32.unpack(_FLOAT_32.pack(number))[0])
    except OverflowError:
        _refuse(f"{number!r} is beyond a 32-bit float")


def _decimal(value: object, field: Field) -> decimal.Decimal:
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
    return str.__str__(value)  # of a subclass, as enumerations are, the text and not what the subclass shows


def _bytes(value: object, field: Field) -> bytes:
    if not isinstance(value, bytes):
        _wrong_type(value, "bytes")
    return bytes(value)


def _date(value: object, field: Field) -> dt.date:
    if isinstance(value, dt.datetime) or not isinstance(value, dt.date):
        _wrong_type(value, "a datetime.date without a time")
    return dt.date(value.year, value.month, value.day)


def _timestamp(value: object, field: Field) -> dt.datetime:
    if not isinstance(value, dt.datetime):
        _wrong_type(value, "an aware datetime.datetime")
    if value.utcoffset() is None:
        _refuse(f"{shown(value)} has no time zone; an aware datetime is needed")
    if getattr(value, "nanosecond", 0):
        _refuse(f"{shown(value)} has nanoseconds; a timestamp has microseconds")
    try:
        # Built anew: `fold` and subclasses carry no instant, and equal instants must be equal everywhere.
        instant = value.astimezone(dt.UTC)
    except (OverflowError, ValueError):
        _refuse(f"{shown(value)} is out of range in UTC")
    return _plain(instant, dt.UTC)


def _timestamp_ntz(value: object, field: Field) -> dt.datetime:
    if not isinstance(value, dt.datetime):
        _wrong_type(value, "a naive datetime.datetime")
    if value.tzinfo is not None:
        _refuse(f"{shown(value)} has a time zone; a naive datetime is needed")
    return _plain(value, None)


def _plain(value: dt.datetime, zone: dt.tzinfo | None) -> dt.datetime:
    """Return a datetime of the standard library's own; subclasses may be finer, or no time at all."""
    if getattr(value, "nanosecond", 0):
        _refuse(f"{shown(value)} has nanoseconds; a timestamp has microseconds")
    try:
        return dt.datetime(
            value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond, zone
        )
    except (TypeError, ValueError):
        _refuse(f"{shown(value)} is no point in time")


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
    """Return a non-null value in the form in which it is kept, e.g. a FLOAT rounded, a TIMESTAMP in UTC.

    Parameters
    ----------
    table : str
        The table's name, for the message.
    field : Field
        What the value is for.
    value : object
        Anything; None is refused (null is the caller's matter).

    Raises
    ------
    InvalidFieldError
        If the value is not one of the field's type.
    """
    try:
        return _CHECKERS[field.type](value, field)
    except _Refused as refusal:
        raise InvalidFieldError(table, field.name, str(refusal)) from None


def check_key(spec: TableSpecification, key: object) -> tuple[Value, ...]:
    """Return a whole primary key as a checked tuple in key order.

    Parameters
    ----------
    spec : TableSpecification
        The table.
    key : tuple or mapping
        All key fields and nothing else.

    Raises
    ------
    InvalidFieldError
        If a field is missing, unknown, null or of a wrong type.
    FieldSizeLimitError
        If the key is over 2,000 bytes.
    """
    names = spec.primary_key
    if isinstance(key, Mapping):
        for name in key:
            if name not in names:
                raise InvalidFieldError(spec.name, str(name), f"is not a key field; the key is ({', '.join(names)})")
        for name in names:
            if name not in key:
                raise InvalidFieldError(spec.name, name, f"is missing in the key {shown(dict(key))}")
        values = tuple(key[name] for name in names)
    elif isinstance(key, tuple):
        if len(key) != len(names):
            wanted = f"({', '.join(names)})"
            raise InvalidFieldError(
                spec.name, "primary key", f"{shown(key)} has {len(key)} values; the key is {wanted}"
            )
        values = key
    else:
        raise InvalidFieldError(
            spec.name, "primary key", f"{shown(key)} is neither a tuple nor a mapping of ({', '.join(names)})"
        )
    checked = tuple(_key_value(spec.name, field, value) for field, value in zip(spec.key_fields, values, strict=True))
    size = sum(value_size(field, value) for field, value in zip(spec.key_fields, checked, strict=True))
    if size > MAX_KEY_SIZE:
        raise FieldSizeLimitError(spec.name, "primary key", size, MAX_KEY_SIZE)
    return checked


def _key_value(table: str, field: Field, value: object) -> Value:
    if value is None:
        raise InvalidFieldError(table, field.name, "is part of the primary key and must not be null")
    return check_value(table, field, value)


def check_row(spec: TableSpecification, row: object) -> dict[str, Value]:
    """Return the fields that a row names, checked; key fields must all be there, others may be missing or None.

    Parameters
    ----------
    spec : TableSpecification
        The table.
    row : mapping of str to Value
        What to write.

    Raises
    ------
    InvalidFieldError
        If a field is unknown, of a wrong type or out of range, or a key field is missing or null.
    FieldSizeLimitError
        If key, indexed values or the named fields together are over a limit.
    """
    if not isinstance(row, Mapping):
        raise InvalidFieldError(spec.name, "row", f"{shown(row)} is not a mapping of field names to values")
    for name in spec.primary_key:
        if name not in row:
            raise InvalidFieldError(spec.name, name, "is part of the primary key and is missing in the row")
    checked: dict[str, Value] = {}
    for name, value in row.items():
        checked[name] = _field_value(spec, name, value)
    check_row_size(spec, checked)
    return checked


def _field_value(spec: TableSpecification, name: object, value: object) -> Value:
    if not isinstance(name, str) or name not in spec:
        raise InvalidFieldError(spec.name, str(name), f"is not a field; the fields are {', '.join(spec.field_names)}")
    field = spec.field(name)
    if name in spec.primary_key:
        return _key_value(spec.name, field, value)
    return None if value is None else check_value(spec.name, field, value)


def check_changes(spec: TableSpecification, changes: object) -> dict[str, Value]:
    """Return checked changes of fields outside the primary key, as `update_all` and `compare_and_swap` take them.

    Raises
    ------
    InvalidFieldError
        If a field is unknown, a key field, of a wrong type or out of range.
    FieldSizeLimitError
        If an indexed value, or the changes together, are over a limit.
    """
    if not isinstance(changes, Mapping):
        raise InvalidFieldError(spec.name, "changes", f"{shown(changes)} is not a mapping of field names to values")
    for name in changes:
        if name in spec.primary_key:
            raise InvalidFieldError(spec.name, name, "is part of the primary key and cannot be changed")
    checked = {name: _field_value(spec, name, value) for name, value in changes.items()}
    check_row_size(spec, checked)
    return checked


def value_size(field: Field, value: Value) -> int:
    """Return the bytes that a checked value counts in limits: its fixed width, UTF-8 length or length; 0 for null."""
    if value is None:
        return 0
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode())
    if isinstance(value, bytes):
        return len(value)
    return field.type.width


def check_row_size(spec: TableSpecification, row: Mapping[str, Value]) -> None:
    """Check the limits of a row of checked values: key, indexed values, key and indexed value together, the whole row.

    Parameters
    ----------
    spec : TableSpecification
        The table.
    row : mapping of str to Value
        Checked values, of some or of all fields; missing fields count nothing.

    Raises
    ------
    FieldSizeLimitError
        With the size and the limit in bytes.
    """
    sizes = {name: value_size(spec.field(name), value) for name, value in row.items()}
    key_size = sum(sizes.get(name, 0) for name in spec.primary_key)
    if key_size > MAX_KEY_SIZE:
        raise FieldSizeLimitError(spec.name, "primary key", key_size, MAX_KEY_SIZE)
    check_index_sizes(spec, key_size, sizes)
    total = sum(sizes.values())
    if total > MAX_ROW_SIZE:
        raise FieldSizeLimitError(spec.name, "row", total, MAX_ROW_SIZE)


def check_index_sizes(spec: TableSpecification, key_size: int, sizes: Mapping[str, int]) -> None:
    """Check the limits of indexed values beside a key, all given in bytes by `value_size`.

    Raises
    ------
    FieldSizeLimitError
        With the size and the limit in bytes.
    """
    for name in spec.indexes:
        size = sizes.get(name, 0)
        if size > MAX_KEY_SIZE:
            raise FieldSizeLimitError(spec.name, name, size, MAX_KEY_SIZE)
        if key_size + size > MAX_KEY_AND_INDEX_SIZE:
            raise FieldSizeLimitError(spec.name, f"primary key with {name}", key_size + size, MAX_KEY_AND_INDEX_SIZE)


def check_columns(spec: TableSpecification, columns: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the columns asked for as a tuple without repetition, None for all.

    Raises
    ------
    InvalidFieldError
        If there are none, or one is not a field.
    """
    if columns is None:
        return None
    if isinstance(columns, str | bytes) or not isinstance(columns, Iterable):
        raise InvalidFieldError(spec.name, "columns", f"{shown(columns)} is not a list of field names")
    names = tuple(columns)
    if not names:
        raise InvalidFieldError(spec.name, "columns", "an empty list restricts nothing; name fields or leave it out")
    for name in names:
        if not isinstance(name, str) or name not in spec:
            known = ", ".join(spec.field_names)
            raise InvalidFieldError(spec.name, str(name), f"is not a field; the fields are {known}")
    return tuple(dict.fromkeys(map(str.__str__, names)))


def check_limit(spec: TableSpecification, limit: object) -> int | None:
    """Return a scan's limit, a number of rows; None is without limit.

    Raises
    ------
    InvalidFieldError
        If it is negative or not an int.
    """
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise InvalidFieldError(spec.name, "limit", f"{shown(limit)} is not a number of rows, 0 or more")
    return min(int(limit), sys.maxsize)


def is_nan(value: Value) -> bool:
    """Tell whether a value is the float NaN, which equals itself in the contract."""
    return isinstance(value, float) and math.isnan(value)
