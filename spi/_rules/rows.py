"""The keys and rows that a table accepts, and their sizes."""

from __future__ import annotations

from collections.abc import Mapping

from structable.spi._error_texts import shown
from structable.spi._errors import FieldSizeLimitError, InvalidFieldError
from structable.spi._fields import Field
from structable.spi._specification import TableSpecification
from structable.spi._value_checks import check_value
from structable.spi._values import MAX_KEY_AND_INDEX_SIZE, MAX_KEY_SIZE, MAX_ROW_SIZE, Value, value_size

from .arguments import check_field


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
        The row to write.

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
    checked = {name: _field_value(spec, name, value) for name, value in row.items()}
    check_row_size(spec, checked)
    return checked


def _field_value(spec: TableSpecification, name: object, value: object) -> Value:
    field = check_field(spec, name)
    if field.name in spec.primary_key:
        return _key_value(spec.name, field, value)
    return None if value is None else check_value(spec.name, field, value)


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
    """Check the limits of a key together with indexed values, all given in bytes by `value_size`.

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
