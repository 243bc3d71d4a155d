"""Casts columns of other Arrow types to the type of a field. Imports pyarrow."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ._arrow_types import CastError, arrow_type, is_binary, is_text, refused_type
from ._errors import InvalidFieldError
from ._fields import Field, FieldType
from ._value_checks import check_value, lost_digits

__all__ = ["CastError", "arrow_type", "cast_column"]

_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_FIRST_AND_LAST = {
    FieldType.DATE: (dt.date.min, dt.date.max),
    FieldType.TIMESTAMP: (dt.datetime.min.replace(tzinfo=dt.UTC), dt.datetime.max.replace(tzinfo=dt.UTC)),
    FieldType.TIMESTAMP_NTZ: (dt.datetime.min, dt.datetime.max),
}


def cast_column(field: Field, column: pa.Array[Any]) -> pa.Array[Any]:
    """Return a column in the Arrow type of a field, with the same values; only floats for FLOAT are rounded to 32 bits.

    Raises
    ------
    CastError
        For a type that the field does not take, a value that the cast would change, or damaged data.
    """
    wanted = arrow_type(field)
    if column.type == wanted:
        return column
    if remedy := refused_type(field, column.type):
        raise CastError(f"is of the Arrow type {column.type}; {wanted} is needed{remedy}")
    try:
        # A cast of damaged data may read beyond them. Times within a day of a date64 do no harm, and are found below.
        column.validate(full=not pa.types.is_date64(column.type))
        plain = _plain(column)
    except pa.ArrowException as error:
        raise CastError(f"the Arrow data are not valid: {error}") from error
    try:
        return _cast(field, plain)
    except pa.ArrowInvalid:
        position = _first_misfit(field, plain)
        raise CastError(_misfit(field, plain, position), position) from None


def _plain(column: pa.Array[Any]) -> pa.Array[Any]:
    """Return the values of a column without encodings: many functions of Arrow take no views and dictionaries."""
    if isinstance(column, pa.ExtensionArray):
        return _plain(column.storage)
    if isinstance(column, pa.DictionaryArray):
        return _plain(column.dictionary).take(column.indices)
    if isinstance(column, pa.RunEndEncodedArray):
        ends: Any = column.run_ends
        runs: Any = pa.RunEndEncodedArray.from_arrays(ends, pa.array(range(len(column.values))))
        places: Any = pc.call_function("run_end_decode", [runs.slice(column.offset, len(column))])
        return _plain(column.values).take(places)
    if is_text(column.type):
        return column.cast(pa.string())
    return column.cast(pa.binary()) if is_binary(column.type) else column


def _cast(field: Field, column: pa.Array[Any]) -> pa.Array[Any]:
    """Cast the values of a column; raises pa.ArrowInvalid if one would change."""
    wanted = arrow_type(field)
    kind = column.type
    if pa.types.is_binary(kind) and field.type is FieldType.STRING:  # arrow.uuid
        texts = [None if one is None else str(uuid.UUID(bytes=one)) for one in column.to_pylist()]
        return pa.array(texts, pa.string())
    if pa.types.is_integer(kind) and field.type is FieldType.BOOLEAN:  # arrow.bool8
        return pc.not_equal(column, pa.scalar(0, kind))
    if pa.types.is_integer(kind) and field.type.floating:
        return _exact_floats(column, wanted)
    if pa.types.is_integer(kind) and field.type is FieldType.DECIMAL:
        column = column.cast(pa.decimal128(20, 0))  # as wide as any integer; Arrow wants room for them in the result
    if pa.types.is_floating(kind) and field.type.integer_bits:
        return _whole_floats(column).cast(wanted)
    if pa.types.is_decimal(kind) and field.type.integer_bits:
        return _wide(column).cast(pa.int64()).cast(wanted)
    if (pa.types.is_floating(kind) and field.type is FieldType.DECIMAL) or (
        pa.types.is_decimal(kind) and field.type.floating
    ):
        return _one_by_one(field, column)
    if isinstance(kind, pa.TimestampType) and field.type is FieldType.DATE:
        column = _whole_days(column)
    if pa.types.is_date64(kind) and field.type is FieldType.TIMESTAMP_NTZ:
        column = column.cast(pa.date32())
    if pa.types.is_float64(kind) and field.type is FieldType.FLOAT:
        rounded: Any = column.cast(wanted, safe=False)
        if pc.any(pc.and_(pc.is_inf(rounded), pc.is_finite(column))).as_py():
            raise pa.ArrowInvalid("beyond a 32-bit float")
        return rounded  # type: ignore[no-any-return]
    cast = column.cast(wanted)
    if field.type in _FIRST_AND_LAST:
        first, last = (pa.scalar(one, wanted) for one in _FIRST_AND_LAST[field.type])
        if pc.any(pc.or_(pc.less(cast, first), pc.greater(cast, last))).as_py():
            raise pa.ArrowInvalid("outside of the years 1 to 9999")
    return cast


def _exact_floats(column: pa.Array[Any], wanted: pa.DataType) -> pa.Array[Any]:
    try:
        return column.cast(wanted)
    except pa.ArrowInvalid:  # raised even for large integers that a float holds, such as 2**60
        values = column.to_pylist()
        floats: Any = pa.array([None if one is None else float(one) for one in values], pa.float64())
        cast = floats.cast(wanted, safe=False)
        if cast.to_pylist() != values:
            raise
        return cast  # type: ignore[no-any-return]


def _whole_floats(column: pa.Array[Any]) -> pa.Array[Any]:
    """Return whole floats as 64-bit integers; raises for floats so large that rounding may have changed them."""
    doubles: Any = column.cast(pa.float64())
    if pc.any(pc.greater(pc.abs(doubles), pa.scalar(_most_exact(column.type)))).as_py():
        raise pa.ArrowInvalid("beyond the exact whole numbers")
    return doubles.cast(pa.int64())  # type: ignore[no-any-return]


def _most_exact(kind: pa.DataType) -> float:
    """Return the number up to which floats of a type represent all whole numbers."""
    return 2.0**53 if pa.types.is_float64(kind) else 2.0**24


def _wide(column: pa.Array[Any]) -> pa.Array[Any]:
    kind: Any = column.type
    return column.cast(pa.decimal128(38, kind.scale)) if kind.bit_width < 128 else column


def _one_by_one(field: Field, column: pa.Array[Any]) -> pa.Array[Any]:
    """Cast between decimals and floats: a float must be the decimal exactly, a decimal becomes the nearest float."""
    try:
        return pa.array(
            [None if one is None else _other_number(field, one) for one in column.to_pylist()], arrow_type(field)
        )
    except (InvalidFieldError, OverflowError) as error:
        raise pa.ArrowInvalid(str(error)) from None


def _other_number(field: Field, value: float | Decimal) -> object:
    if isinstance(value, float):
        return check_value("", field, Decimal.from_float(value))
    number: Any = check_value("", field, float(value))
    if value == int(value) and int(number) != int(value):
        raise InvalidFieldError("", field.name, lost_digits(field, value))
    return number


def _whole_days(column: pa.Array[Any]) -> pa.Array[Any]:
    """Return times without a zone, all at midnight, as dates."""
    kind: Any = column.type
    ticks: Any = column.view(pa.int64())
    a_day = pa.scalar(86_400 * _TICKS[kind.unit])
    days: Any = pc.divide(ticks, a_day)
    if pc.any(pc.not_equal(pc.multiply(days, a_day), ticks)).as_py():
        raise pa.ArrowInvalid("not a whole day")
    return days.cast(pa.int32()).cast(pa.date32())  # type: ignore[no-any-return]


def _first_misfit(field: Field, column: pa.Array[Any]) -> int:
    """Return the position of the first value that cannot be cast; there is one."""
    first, end = 0, len(column)
    while end - first > 1:
        middle = (first + end) // 2
        try:
            _cast(field, column.slice(first, middle - first))
        except pa.ArrowInvalid:
            end = middle
        else:
            first = middle
    return first


def _misfit(field: Field, column: pa.Array[Any], position: int) -> str:
    """Return the reason why a value does not fit."""
    kind = column.type
    if pa.types.is_date(kind) or isinstance(kind, pa.TimestampType):
        return _misfit_of_time(field, column, position)
    value = column[position].as_py()
    if field.type.floating and not isinstance(value, float):
        try:
            check_value("", field, float(value))
        except InvalidFieldError:
            return f"{value} is beyond a 32-bit float"
        return lost_digits(field, value)
    if field.type.integer_bits and not isinstance(value, int):
        if not math.isfinite(value) or value != int(value):
            return f"{value} is not a whole number"
        most = _most_exact(kind)
        if isinstance(value, float) and abs(value) > most:
            bits = 64 if pa.types.is_float64(kind) else 32
            return f"{value} is beyond {int(most)}, up to which a {bits}-bit float has all whole numbers"
        value = int(value)
    if isinstance(value, float) and field.type is FieldType.DECIMAL:
        return f"{value} does not fit {field.type_text} exactly"
    try:
        check_value("", field, Decimal(value) if field.type is FieldType.DECIMAL else value)
    except InvalidFieldError as error:
        return error.reason
    return f"{value!r} cannot be cast to {field.type_text}"


def _misfit_of_time(field: Field, column: pa.Array[Any], position: int) -> str:
    kind: Any = column.type
    if pa.types.is_date32(kind):
        return f"{column.slice(position, 1).cast(pa.string())[0]} is outside of the years 1 to 9999"
    unit: Any = kind.unit if isinstance(kind, pa.TimestampType) else "ms"
    number = column.view(pa.int64()).slice(position, 1)
    # Without the zone, which the machine may not know.
    text = number.view(pa.timestamp(unit)).cast(pa.string())[0].as_py()
    if text.startswith("<"):  # Arrow writes no year beyond 32767
        text = f"{number[0]} {unit} since 1970"
    elif getattr(kind, "tz", None):
        text += "Z"
    whole_day = not number[0].as_py() % (86_400 * _TICKS[unit])
    if (field.type is FieldType.DATE or kind == pa.date64()) and not whole_day:
        return f"{text} is not a whole day"
    if unit == "ns" and field.type is not FieldType.DATE:
        return f"{text} is finer than a microsecond"
    return f"{text} is outside of the years 1 to 9999"
