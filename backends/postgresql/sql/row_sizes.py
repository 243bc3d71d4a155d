"""Sizes of rows as SQL expressions, and changes that fail if they make a row too large or a number overflow."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import sqlalchemy as sa

from structable.spi import Field, FieldType
from structable.spi.values import MAX_ROW_SIZE

from .binding import TableBinding
from .names import literal

__all__ = ["TOO_LARGE", "TOO_LARGE_VALUE", "guarded", "number", "raised", "row_size", "size_of"]

TOO_LARGE = "structable row of "
"""Begins the text that a statement tries in vain to read as a number if a row would be too large; its size follows."""

TOO_LARGE_VALUE = "structable value of "
"""The same if an indexed value would be too large; the name of its field and the size follow."""


def number(value: int) -> sa.ColumnElement[int]:
    """Return a number as an expression."""
    return sa.literal_column(str(value), sa.Integer())


def row_size(binding: TableBinding, new: Mapping[str, sa.ColumnElement[Any]]) -> sa.ColumnElement[int]:
    """Return the size of a row after the fields in `new` have been changed, as an expression."""
    return size_of(binding, [(field, new.get(field.name, binding.core.c[field.name])) for field in binding.spec.fields])


def size_of(binding: TableBinding, values: Sequence[tuple[Field, sa.ColumnElement[Any]]]) -> sa.ColumnElement[int]:
    """Return the size of values in the contract, as an expression."""
    terms: list[sa.ColumnElement[Any]] = []
    for field, value in values:
        if field.type in (FieldType.STRING, FieldType.BYTES):
            terms.append(sa.func.coalesce(sa.func.octet_length(value), number(0)))
        elif field.name in binding.spec.primary_key:
            terms.append(number(field.type.width))
        else:
            terms.append(sa.case((value.is_(None), number(0)), else_=number(field.type.width)))
    return reduce(operator.add, terms)


def guarded(binding: TableBinding, new: Mapping[str, sa.ColumnElement[Any]]) -> dict[str, sa.ColumnElement[Any]]:
    """Return changes of fields, of which the first fails if the row would be too large."""
    size = row_size(binding, new)
    return {
        name: value if place else sa.case((size <= number(MAX_ROW_SIZE), value), (_failing(size).is_(None), sa.null()))
        for place, (name, value) in enumerate(new.items())
    }


def _failing(size: sa.ColumnElement[int]) -> sa.ColumnElement[int]:
    """Return an expression that fails, with a size in its error."""
    return sa.cast(sa.literal_column(literal(TOO_LARGE), sa.Text()).op("||")(sa.cast(size, sa.Text())), sa.Integer())


def raised(binding: TableBinding, name: str, amount: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """Return a field plus an amount, an expression that fails on overflow, or if the row would be too large."""
    field, column = binding.spec.field(name), binding.core.c[name]
    if field.type is FieldType.BYTE:
        # The type has 16 bits, of which the lower 8 stay free.
        shift = sa.literal_column("256::smallint", sa.SmallInteger())
        total: sa.ColumnElement[Any] = (column * shift + amount * shift) // shift
    else:
        total = column + amount
    if binding.width_without(()) is not None:
        return sa.case((column.is_(None), amount), else_=total)
    size = row_size(binding, {}) + number(field.type.width)
    fits = size <= number(MAX_ROW_SIZE)
    return sa.case((column.is_not(None), total), (fits, amount), (_failing(size).is_(None), sa.null()))
