"""The changes of a row that a table accepts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from structable.spi._changes import Change, RowKind, UpdateMessage
from structable.spi._error_texts import shown
from structable.spi._errors import InvalidFieldError
from structable.spi._fields import Field
from structable.spi._specification import TableSpecification
from structable.spi._value_checks import check_value
from structable.spi._values import Value

from .arguments import check_changed_field, check_many
from .keyless import check_kind
from .rows import check_key, check_row, check_row_size


def check_changes(spec: TableSpecification, changes: object) -> dict[str, Value]:
    """Return checked changes of fields outside the primary key, the argument of `update_all` and `compare_and_swap`.

    Raises
    ------
    InvalidFieldError
        If a field is unknown, a key field, of a wrong type or out of range.
    FieldSizeLimitError
        If an indexed value, or the changes together, are over a limit.
    """
    if not isinstance(changes, Mapping):
        raise InvalidFieldError(spec.name, "changes", f"{shown(changes)} is not a mapping of field names to values")
    checked: dict[str, Value] = {}
    for name, value in changes.items():
        field = check_changed_field(spec, name)
        checked[name] = None if value is None else check_value(spec.name, field, value)
    check_row_size(spec, checked)
    return checked


def check_default(spec: TableSpecification, row: Mapping[str, Value], default: Mapping[str, Value]) -> dict[str, Value]:
    """Return the row that `update` puts for an absent row, before its changes.

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


def update_with_default(given: object, default: Mapping[str, Value] | None) -> tuple[Any, Mapping[str, Value] | None]:
    """Return the row of an element of `update_many`, and its default: the message's own, else the call's."""
    if not isinstance(given, UpdateMessage):
        return given, default
    return given.update, default if given.default is None else given.default


def check_swap(spec: TableSpecification, name: object, expected: object, value: object) -> tuple[Value, Value]:
    """Return the checked values of `compare_and_swap`.

    Raises
    ------
    InvalidFieldError, FieldSizeLimitError
        If the name is not a field outside the key, or a value does not fit it.
    """
    field = check_changed_field(spec, name)
    wanted, new = (None if one is None else check_value(spec.name, field, one) for one in (expected, value))
    check_row_size(spec, {field.name: wanted})
    check_row_size(spec, {field.name: new})
    return wanted, new


def check_increment(spec: TableSpecification, name: object, amount: object) -> tuple[Field, int]:
    """Return the checked field and amount of an increment.

    Raises
    ------
    InvalidFieldError
        If the name is not an integer field outside the key, or the amount is not in the field's range.
    """
    field = check_changed_field(spec, name)
    if not field.type.integer_bits:
        reason = f"is of type {field.type.value}; only integer fields can be incremented"
        raise InvalidFieldError(spec.name, field.name, reason)
    checked = check_value(spec.name, field, amount)
    assert isinstance(checked, int)
    return field, checked


def check_increments(spec: TableSpecification, increments: object) -> list[tuple[tuple[Value, ...], Field, int]]:
    """Return the checked keys, fields and amounts of `increment_many`.

    Raises
    ------
    InvalidFieldError, FieldSizeLimitError
        If the argument is not a list of triples, or one of them does not fit the table.
    """
    checked: list[tuple[tuple[Value, ...], Field, int]] = []
    for one in check_many(spec, "increments", increments):
        if not isinstance(one, Sequence) or isinstance(one, str | bytes) or len(one) != 3:
            raise InvalidFieldError(spec.name, "increments", f"{shown(one)} is not a tuple (key, field, amount)")
        key, name, amount = one
        checked.append((check_key(spec, key), *check_increment(spec, name, amount)))
    return checked


def incremented(table: str, field: Field, before: Value, amount: int) -> int:
    """Return the value of a field after an increment; null counts as 0.

    Raises
    ------
    InvalidFieldError
        On overflow.
    """
    start = before if isinstance(before, int) else 0
    total, bits = start + amount, field.type.integer_bits
    if not -(1 << (bits - 1)) <= total < 1 << (bits - 1):
        raise InvalidFieldError(table, field.name, f"{start} incremented by {amount} overflows {bits} bits")
    return total


def check_row_changes(spec: TableSpecification, changes: object) -> list[tuple[RowKind, dict[str, Value]]]:
    """Return the checked kinds and rows of `apply_changes`.

    Raises
    ------
    InvalidFieldError, FieldSizeLimitError
        If the argument is not a list of changes, or one of them has no kind or a row that does not fit the table.
    UnsupportedOperationError
        If the table takes no rows of this kind.
    """
    return [(kind, check_row(spec, row)) for kind, row in check_row_kinds(spec, changes)]


def check_row_kinds(spec: TableSpecification, changes: object) -> list[tuple[RowKind, Any]]:
    """Return the checked kinds of `apply_changes`, with the rows as they were given.

    Raises
    ------
    InvalidFieldError
        If the argument is not a list of changes, or one of them has no kind.
    UnsupportedOperationError
        If the table takes no rows of this kind.
    """
    checked: list[tuple[RowKind, Any]] = []
    for one in check_many(spec, "changes", changes):
        if isinstance(one, Change):
            given, row = one.kind, one.row
        elif isinstance(one, Sequence) and not isinstance(one, str | bytes) and len(one) == 2:
            given, row = one
        else:
            raise InvalidFieldError(spec.name, "changes", f"{shown(one)} is neither a Change nor a tuple (kind, row)")
        try:
            kind = RowKind.of(given)
        except ValueError as error:
            raise InvalidFieldError(spec.name, "changes", str(error)) from None
        check_kind(spec, kind)
        checked.append((kind, row))
    return checked
