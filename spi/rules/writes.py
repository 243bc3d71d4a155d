"""The rule of what single operations take, beyond what all rows have to be."""

from __future__ import annotations

from collections.abc import Mapping

from structable.spi.errors import InvalidFieldError
from structable.spi.showing import shown
from structable.spi.specification import TableSpecification

from .values import Value, check_row, check_row_size

__all__ = ["check_changed_field", "check_default", "check_incremented_field"]


def check_default(spec: TableSpecification, row: Mapping[str, Value], default: Mapping[str, Value]) -> dict[str, Value]:
    """Return what `update` puts for a checked row that is absent, before its changes.

    Raises
    ------
    InvalidFieldError, FieldSizeLimitError
        If it does not fit, also with the changes, or is for another key.
    """
    key = {name: row[name] for name in spec.primary_key}
    if not isinstance(default, Mapping):
        raise InvalidFieldError(spec.name, "default", f"{shown(default)} is not a mapping of field names to values")
    start = check_row(spec, {**key, **default})
    for name in spec.primary_key:
        if start[name] != key[name]:
            reason = f"the default is for {start[name]!r}, the row for {key[name]!r}; leave the key out of the default"
            raise InvalidFieldError(spec.name, name, reason)
    check_row_size(spec, {**start, **row})
    return start


def check_changed_field(spec: TableSpecification, field: object) -> str:
    """Return the name of a field that `compare_and_swap` changes.

    Raises
    ------
    InvalidFieldError
        If it is no field outside the key.
    """
    if not isinstance(field, str) or field not in spec:
        known = ", ".join(spec.field_names)
        raise InvalidFieldError(spec.name, shown(field), f"is not a field; the fields are {known}")
    if field in spec.primary_key:
        raise InvalidFieldError(spec.name, field, "is part of the primary key and cannot be changed")
    return field


def check_incremented_field(spec: TableSpecification, field: object) -> None:
    """Check the field of an increment.

    Raises
    ------
    InvalidFieldError
        If it is not an integer field outside the key.
    """
    if not isinstance(field, str) or field not in spec:
        known = ", ".join(spec.field_names)
        raise InvalidFieldError(spec.name, str(field), f"is not a field; the fields are {known}")
    kind = spec.field(field).type
    if field in spec.primary_key:
        raise InvalidFieldError(spec.name, field, "is part of the primary key and cannot be changed")
    if not kind.integer_bits:
        reason = f"is of type {kind.value}; only integer fields can be incremented"
        raise InvalidFieldError(spec.name, field, reason)
