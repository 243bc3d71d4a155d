"""Hypothesis strategies for tables of the ordered stores, and for values of every field type with its extremes."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from structable.backends.ordered.table_schema import TableSchema
from structable.spi import Column, Field, FieldType, Filter, TableSpecification, Value

SPACE = b"\x00\xff\x07\x01"
KEYABLE = [kind for kind in FieldType if kind.keyable]

_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
_BYTES = st.binary(max_size=6) | st.lists(st.sampled_from([0, 1, 254, 255]), max_size=6).map(bytes)


def _integers(bits: int) -> st.SearchStrategy[int]:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return st.sampled_from([low, low + 1, -1, 0, 1, high - 1, high]) | st.integers(low, high)


def _single(number: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    """Decimals in their stored form."""
    beyond = 10**precision - 1
    numbers = st.sampled_from([-beyond, -1, 0, 1, beyond]) | st.integers(-beyond, beyond)
    return numbers.map(lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale)))


def values(field: Field) -> st.SearchStrategy[Value]:
    """Checked values of a field."""
    match field.type:
        case FieldType.BOOLEAN:
            return st.booleans()
        case FieldType.FLOAT:
            return st.floats(width=32).map(_single)
        case FieldType.DOUBLE:
            return st.floats()
        case FieldType.DECIMAL:
            return decimals(field.precision or 0, field.scale or 0)
        case FieldType.STRING:
            return _TEXT
        case FieldType.BYTES:
            return _BYTES
        case FieldType.DATE:
            return st.sampled_from([dt.date.min, dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date.max]) | st.dates()
        case FieldType.TIMESTAMP:
            return _instants().map(lambda instant: instant.replace(tzinfo=dt.UTC))
        case FieldType.TIMESTAMP_NTZ:
            return _instants()
    return _integers(field.type.integer_bits)


def _instants() -> st.SearchStrategy[dt.datetime]:
    extremes = [
        dt.datetime.min,
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
        dt.datetime(1970, 1, 1),
        dt.datetime.max,
    ]
    return st.sampled_from(extremes) | st.datetimes().map(lambda instant: instant.replace(fold=0))


@st.composite
def fields(draw: st.DrawFn, prefix: str, *, keyable: bool = False, min_size: int = 0, max_size: int = 6) -> list[Field]:
    """Fields of any types, named prefix0, prefix1..."""
    kinds = draw(
        st.lists(st.sampled_from(KEYABLE if keyable else list(FieldType)), min_size=min_size, max_size=max_size)
    )
    made = []
    for position, kind in enumerate(kinds):
        if kind is FieldType.DECIMAL:
            precision = draw(st.integers(1, 38))
            made.append(Field.decimal(f"{prefix}{position}", precision, draw(st.integers(0, precision))))
        else:
            made.append(Field(f"{prefix}{position}", kind))
    return made


def table(key: list[Field], others: list[Field] | None = None, indexes: tuple[str, ...] = ()) -> TableSchema:
    """A table at its first layout."""
    others = others or []
    spec = TableSpecification("t", [*key, *others], [field.name for field in key], indexes)
    return TableSchema(spec, SPACE, 0, {0: spec.value_fields}, {name: i for i, name in enumerate(indexes)})


def row_values(columns: list[Field], *, nulls: bool = False) -> st.SearchStrategy[tuple[Value, ...]]:
    """Tuples of checked values, with nulls where allowed."""
    return st.tuples(*(st.none() | values(field) if nulls else values(field) for field in columns))


def same(one: object, other: object) -> bool:
    """Tell whether two tuples or batches of values are identical, class and sign of zero included; NaN equals NaN."""
    return repr(one) == repr(other)


COMPARISONS: list[Callable[[Column, Any], Filter]] = [
    lambda column, value: column == value,
    lambda column, value: column != value,
    lambda column, value: column < value,
    lambda column, value: column <= value,
    lambda column, value: column > value,
    lambda column, value: column >= value,
]


def conditions(leaves: st.SearchStrategy[Filter], most: int) -> st.SearchStrategy[Filter]:
    """Filters of at most so many leaves."""
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(lambda one, other: one & other, inner, inner),
            st.builds(lambda one, other: one | other, inner, inner),
            st.builds(lambda one: ~one, inner),
        ),
        max_leaves=most,
    )
