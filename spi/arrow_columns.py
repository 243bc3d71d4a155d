"""Columns as Arrow: the type of a field, and columns of other types cast to it. Imports pyarrow."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .errors import InvalidFieldError
from .fields import Field, FieldType
from .value_checks import check_value, lost_digits

__all__ = ["CastError", "arrow_type", "cast_column"]

_TYPES: dict[FieldType, pa.DataType] = {
    FieldType.BOOLEAN: pa.bool_(),
    FieldType.BYTE: pa.int8(),
    FieldType.SHORT: pa.int16(),
    FieldType.INT: pa.int32(),
    FieldType.LONG: pa.int64(),
    FieldType.FLOAT: pa.float32(),
    FieldType.DOUBLE: pa.float64(),
    FieldType.STRING: pa.string(),
    FieldType.BYTES: pa.binary(),
    FieldType.DATE: pa.date32(),
    FieldType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    FieldType.TIMESTAMP_NTZ: pa.timestamp("us"),
}
_FLOATS = frozenset((FieldType.FLOAT, FieldType.DOUBLE))
_NUMBERS = _FLOATS | {FieldType.BYTE, FieldType.SHORT, FieldType.INT, FieldType.LONG, FieldType.DECIMAL}
_FIRST_AND_LAST = {
    FieldType.DATE: (dt.date.min, dt.date.max),
    FieldType.TIMESTAMP: (dt.datetime.min.replace(tzinfo=dt.UTC), dt.datetime.max.replace(tzinfo=dt.UTC)),
    FieldType.TIMESTAMP_NTZ: (dt.datetime.min, dt.datetime.max),
}
_NONE: frozenset[FieldType] = frozenset()
_OF_EXTENSIONS = {
    "arrow.bool8": frozenset((FieldType.BOOLEAN,)),
    "arrow.json": frozenset((FieldType.STRING,)),
    "arrow.uuid": frozenset((FieldType.BYTES, FieldType.STRING)),
}


class CastError(ValueError):
    """A column does not fit a field.

    `position` is that of the first value that does not fit, counted from 0; None if no value is at fault.
    """

    def __init__(self, reason: str, position: int | None = None) -> None:
        super().__init__(reason)
        self.position = position


def arrow_type(field: Field) -> pa.DataType:
    """Return the Arrow type of a field."""
    if field.type is FieldType.DECIMAL:
        return pa.decimal128(field.precision or 0, field.scale or 0)
    return _TYPES[field.type]


def cast_column(field: Field, column: pa.Array[Any]) -> pa.Array[Any]:
    """Return a column in the Arrow type of a field; only floats for FLOAT change, which are rounded to 32 bits.

    Raises
    ------
    CastError
        For a type that the field does not take, a value that the cast would change, or damaged data.
    """
    wanted = arrow_type(field)
    if column.type == wanted:
        return column
    if field.type not in _fields_of(column.type):
        raise CastError(f"is of the Arrow type {column.type}; {wanted} is needed{_remedy(field, column.type)}")
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


def _fields_of(kind: pa.DataType) -> frozenset[FieldType]:
    """Return the field types that take columns of an Arrow type, as far as their values fit."""
    found = _NONE
    if isinstance(kind, pa.DictionaryType | pa.RunEndEncodedType):
        found = _fields_of(kind.value_type)
    elif isinstance(kind, pa.BaseExtensionType):
        found = _OF_EXTENSIONS.get(kind.extension_name, _NONE)
    elif pa.types.is_null(kind):
        found = frozenset(FieldType)
    elif pa.types.is_boolean(kind):
        found = frozenset((FieldType.BOOLEAN,))
    elif pa.types.is_integer(kind):
        found = _NUMBERS
    elif pa.types.is_floating(kind):
        found = _FLOATS
    elif pa.types.is_decimal(kind):
        found = frozenset((FieldType.DECIMAL,))
    elif _is_text(kind):
        found = frozenset((FieldType.STRING,))
    elif _is_binary(kind):
        found = frozenset((FieldType.BYTES,))
    elif pa.types.is_date(kind):
        found = frozenset((FieldType.DATE,))
    elif isinstance(kind, pa.TimestampType):
        found = frozenset((FieldType.TIMESTAMP_NTZ if kind.tz is None else FieldType.TIMESTAMP,))
    return found


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _is_binary(kind: pa.DataType) -> bool:
    fixed = pa.types.is_fixed_size_binary(kind)
    return fixed or pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)


def _remedy(field: Field, kind: pa.DataType) -> str:
    """Return what to do with a column of a type that the field does not take."""
    if isinstance(kind, pa.DictionaryType | pa.RunEndEncodedType):
        return _remedy(field, kind.value_type)
    if pa.types.is_time(kind):
        return "; there is no time of day: write it as a long, such as its microseconds"
    if pa.types.is_duration(kind) or pa.types.is_interval(kind):
        return "; write its number of units as a long"
    if pa.types.is_nested(kind):
        return "; write it as JSON into a string, or its members as columns"
    if isinstance(kind, pa.TimestampType) and field.type is FieldType.TIMESTAMP:
        return "; it has no time zone: give it one"
    if isinstance(kind, pa.TimestampType) and field.type is FieldType.TIMESTAMP_NTZ:
        return "; its values are instants: convert them to local times, or declare a timestamp"
    return "; cast it before"


def _plain(column: pa.Array[Any]) -> pa.Array[Any]:
    """Return what a column stores, without encodings: many functions of Arrow have none for views and dictionaries."""
    if isinstance(column, pa.ExtensionArray):
        return _plain(column.storage)
    if isinstance(column, pa.DictionaryArray):
        return _plain(column.dictionary).take(column.indices)
    if isinstance(column, pa.RunEndEncodedArray):
        ends: Any = column.run_ends
        runs: Any = pa.RunEndEncodedArray.from_arrays(ends, pa.array(range(len(column.values))))
        places: Any = pc.call_function("run_end_decode", [runs.slice(column.offset, len(column))])
        return _plain(column.values).take(places)
    if _is_text(column.type):
        return column.cast(pa.string())
    return column.cast(pa.binary()) if _is_binary(column.type) else column


def _cast(field: Field, column: pa.Array[Any]) -> pa.Array[Any]:
    """Cast what a column stores; raises pa.ArrowInvalid if a value would change."""
    wanted = arrow_type(field)
    kind = column.type
    if pa.types.is_binary(kind) and field.type is FieldType.STRING:  # arrow.uuid
        texts = [None if one is None else str(uuid.UUID(bytes=one)) for one in column.to_pylist()]
        return pa.array(texts, pa.string())
    if pa.types.is_integer(kind) and field.type is FieldType.BOOLEAN:  # arrow.bool8
        return pc.not_equal(column, pa.scalar(0, kind))
    if pa.types.is_integer(kind) and field.type in _FLOATS:
        return _exact_floats(column, wanted)
    if pa.types.is_integer(kind) and field.type is FieldType.DECIMAL:
        column = column.cast(pa.decimal128(20, 0))  # as wide as any integer; Arrow wants room for them in the result
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
    except pa.ArrowInvalid:  # also for a large one that is a float, such as 2**60
        values = column.to_pylist()
        floats: Any = pa.array([None if one is None else float(one) for one in values], pa.float64())
        cast = floats.cast(wanted, safe=False)
        if cast.to_pylist() != values:
            raise
        return cast  # type: ignore[no-any-return]


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
    """Return why a value does not fit."""
    kind = column.type
    if pa.types.is_date64(kind) or isinstance(kind, pa.TimestampType):
        return _misfit_of_time(column, position)
    value = column[position].as_py()
    if isinstance(value, int) and field.type in _FLOATS:
        return lost_digits(field, value)
    try:
        check_value("", field, Decimal(value) if field.type is FieldType.DECIMAL else value)
    except InvalidFieldError as error:
        return error.reason
    return f"{value!r} cannot be cast to {field.type_text}"


def _misfit_of_time(column: pa.Array[Any], position: int) -> str:
    kind: Any = column.type
    unit: Any = kind.unit if isinstance(kind, pa.TimestampType) else "ms"
    number = column.view(pa.int64()).slice(position, 1)
    # Without the zone, which the machine may not know.
    text = number.view(pa.timestamp(unit)).cast(pa.string())[0].as_py()
    if text.startswith("<"):  # Arrow writes no year beyond 32767
        text = f"{number[0]} {unit} since 1970"
    elif getattr(kind, "tz", None):
        text += "Z"
    if unit == "ns":
        return f"{text} is finer than a microsecond"
    if kind != pa.date64() or not number[0].as_py() % 86_400_000:
        return f"{text} is outside of the years 1 to 9999"
    return f"{text} is not a whole day"
