"""The Arrow type of a field, and the fields that take columns of a type. Imports pyarrow."""

from __future__ import annotations

import pyarrow as pa

from ._fields import Field, FieldType

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
_NUMBERS = frozenset(kind for kind in FieldType if kind.integer_bits or kind.floating or kind is FieldType.DECIMAL)
_NONE: frozenset[FieldType] = frozenset()
_OF_EXTENSIONS = {
    "arrow.bool8": frozenset((FieldType.BOOLEAN,)),
    "arrow.json": frozenset((FieldType.STRING,)),
    "arrow.uuid": frozenset((FieldType.BYTES, FieldType.STRING)),
}


class CastError(ValueError):
    """A column does not fit a field.

    `position` is the index of the first value that does not fit, from 0; None if no value is at fault.
    """

    def __init__(self, reason: str, position: int | None = None) -> None:
        super().__init__(reason)
        self.position = position


def arrow_type(field: Field) -> pa.DataType:
    """Return the Arrow type of a field."""
    if field.type is FieldType.DECIMAL:
        return pa.decimal128(field.precision or 0, field.scale or 0)
    return _TYPES[field.type]


def refused_type(field: Field, kind: pa.DataType) -> str:
    """Return what to do with a column of a type that the field does not take; nothing if it takes the type."""
    return "" if field.type in _fields_of(kind) else _remedy(field, kind)


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
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        found = _NUMBERS
    elif is_text(kind):
        found = frozenset((FieldType.STRING,))
    elif is_binary(kind):
        found = frozenset((FieldType.BYTES,))
    elif pa.types.is_date(kind):
        found = frozenset((FieldType.DATE, FieldType.TIMESTAMP_NTZ))
    elif isinstance(kind, pa.TimestampType):
        naive = frozenset((FieldType.TIMESTAMP_NTZ, FieldType.DATE))
        found = naive if kind.tz is None else frozenset((FieldType.TIMESTAMP,))
    return found


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type holds texts."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def is_binary(kind: pa.DataType) -> bool:
    """Return whether a type holds bytes."""
    fixed = pa.types.is_fixed_size_binary(kind)
    return fixed or pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)


def _remedy(field: Field, kind: pa.DataType) -> str:
    """Return what to do with a column of a type that the field does not take."""
    if isinstance(kind, pa.DictionaryType | pa.RunEndEncodedType):
        return _remedy(field, kind.value_type)
    if pa.types.is_time(kind):
        return "; there is no time of day; write it as a long, such as its microseconds"
    if pa.types.is_duration(kind) or pa.types.is_interval(kind):
        return "; write its number of units as a long"
    if pa.types.is_nested(kind):
        return "; write it as JSON into a string, or its members as columns"
    if isinstance(kind, pa.TimestampType) and field.type is FieldType.TIMESTAMP:
        return "; it has no time zone; give it one"
    if isinstance(kind, pa.TimestampType) and field.type in (FieldType.TIMESTAMP_NTZ, FieldType.DATE):
        return "; its values are instants; convert them to local times, or declare a timestamp"
    return "; cast it before"
