"""Checks of arguments that many calls have: lists, flags, and names of fields."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from structable.spi._error_texts import not_a_field, shown
from structable.spi._errors import InvalidFieldError
from structable.spi._fields import Field
from structable.spi._ranges import Range
from structable.spi._specification import TableSpecification


def check_many(spec: TableSpecification, argument: str, given: object) -> list[Any]:
    """Return the elements of an iterable as a list.

    Parameters
    ----------
    spec : TableSpecification
        The table.
    argument : str
        The argument's name, for the message: "rows", "keys", "ranges".
    given : iterable
        The argument.

    Raises
    ------
    InvalidFieldError
        If it is not iterable, or is a string, bytes, or a single range.
    """
    if given.__class__ is tuple or given.__class__ is list:
        return list(given)  # the usual argument, which needs no other check
    if isinstance(given, str | bytes | Range) or not isinstance(given, Iterable):
        raise InvalidFieldError(spec.name, argument, f"{shown(given)} is not a list of {argument}")
    return list(given)


def check_flag(spec: TableSpecification, argument: str, given: object) -> bool:
    """Return a boolean argument.

    Raises
    ------
    InvalidFieldError
        If it is not a bool: a generator, for example, would count as true.
    """
    if isinstance(given, bool):
        return given
    raise InvalidFieldError(spec.name, argument, f"{shown(given)} is neither True nor False")


def check_field(spec: TableSpecification, name: object) -> Field:
    """Return the field of a name.

    Raises
    ------
    InvalidFieldError
        If the table has no such field.
    """
    if not isinstance(name, str) or name not in spec:
        given = name if isinstance(name, str) else shown(name)
        raise InvalidFieldError(spec.name, given, not_a_field(spec.field_names))
    return spec.field(name)


def check_columns(spec: TableSpecification, columns: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return columns as a tuple without repetition, None for all.

    Raises
    ------
    InvalidFieldError
        If the list is empty, or one of its elements is not a field.
    """
    if columns is None:
        return None
    if isinstance(columns, str | bytes) or not isinstance(columns, Iterable):
        raise InvalidFieldError(spec.name, "columns", f"{shown(columns)} is not a list of field names")
    names = tuple(columns)
    if not names:
        raise InvalidFieldError(spec.name, "columns", "the list is empty; name at least one field, or leave it out")
    return tuple(dict.fromkeys(check_field(spec, name).name for name in names))


def check_changed_field(spec: TableSpecification, name: object) -> Field:
    """Return a field that a change names.

    Raises
    ------
    InvalidFieldError
        If it is not a field outside the key.
    """
    field = check_field(spec, name)
    if field.name in spec.primary_key:
        raise InvalidFieldError(spec.name, field.name, "is part of the primary key and cannot be changed")
    return field


def check_indexed_field(spec: TableSpecification, name: object) -> Field:
    """Return a field that has an index.

    Raises
    ------
    InvalidFieldError
        If it has none, or is not a field.
    """
    field = check_field(spec, name)
    if field.name not in spec.indexes:
        indexed = ", ".join(spec.indexes) or "none"
        raise InvalidFieldError(spec.name, field.name, f"has no index; the indexed fields are: {indexed}")
    return field
