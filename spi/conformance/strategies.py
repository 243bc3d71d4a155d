"""What the state machine draws from: tables of several types, rows, keys, ranges and conditions that often meet."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from hypothesis import strategies as st

from structable.spi import Field, FieldType, Range, TableSpecification, Value

from .conditions import OPERATORS, And, Between, Compare, Condition, IsIn, Not, Null, Or, StartsWith
from .model import kept
from .samples import EXTREMES, Record

__all__ = ["KEYABLE", "changes", "conditions", "key_ranges", "row_keys", "rows", "specifications", "values"]

KEYABLE = [kind for kind in FieldType if kind.keyable]

_POOLS: dict[FieldType, list[Value]] = {
    **EXTREMES,
    FieldType.FLOAT: [*EXTREMES[FieldType.FLOAT], 0.1, -0.0, 3],
    FieldType.DOUBLE: [*EXTREMES[FieldType.DOUBLE], -0.0, 3],
    FieldType.STRING: ["", "a", "aa", "ab", "a\x01", "a%", "b", "\u00e9", "\U0010ffff"],
    FieldType.BYTES: [b"", b"\x00", b"\x00\xff", b"a", b"a\x00", b"\xff", b"\xff\xff"],
    FieldType.TIMESTAMP: [
        *EXTREMES[FieldType.TIMESTAMP],
        dt.datetime(1970, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2))),
    ],
}
_IN_KEYS = 4
"""How many values of a type keys are made of: few, so that they meet."""


def values(field: Field, *, key: bool = False) -> st.SearchStrategy[Value]:
    """Values of a field, not null."""
    pool = _POOLS[field.type]
    return st.sampled_from(pool[-_IN_KEYS:] if key else pool)


@st.composite
def specifications(draw: st.DrawFn, name: str) -> TableSpecification:
    """Tables of one to three key fields and one to five others of any types, some of them indexed."""
    key_kinds = draw(st.lists(st.sampled_from(KEYABLE), min_size=1, max_size=3))
    kinds = draw(st.lists(st.sampled_from(list(FieldType)), min_size=1, max_size=4))
    fields = [Field(f"k{number}", kind) for number, kind in enumerate(key_kinds)]
    others = [Field.long("n")]
    for number, kind in enumerate(kinds):
        decimal = (38, 10) if kind is FieldType.DECIMAL else (None, None)
        others.append(Field(f"v{number}", kind, *decimal))
    candidates = [field.name for field in others if field.type.keyable]
    indexes = draw(st.lists(st.sampled_from(candidates), unique=True, max_size=3))
    order = draw(st.permutations([*fields, *others]))
    return TableSpecification(name, order, [field.name for field in fields], indexes)


def row_keys(spec: TableSpecification) -> st.SearchStrategy[tuple[Value, ...]]:
    """Whole keys."""
    return st.tuples(*(values(field, key=True) for field in spec.key_fields))


def changes(spec: TableSpecification, *, least: int = 0) -> st.SearchStrategy[Record]:
    """Values, or null, for some of the fields outside the key."""
    optional = {field.name: st.none() | values(field) for field in spec.value_fields}
    some: st.SearchStrategy[Record] = st.fixed_dictionaries({}, optional=optional)
    return some.filter(lambda drawn: len(drawn) >= least)


@st.composite
def rows(draw: st.DrawFn, spec: TableSpecification) -> Record:
    """Rows with a key and some of the other fields."""
    key = draw(row_keys(spec))
    return {**dict(zip(spec.primary_key, key, strict=True)), **draw(changes(spec))}


@st.composite
def key_ranges(draw: st.DrawFn, spec: TableSpecification) -> Range:
    """Ranges whose bounds are prefixes of any length."""
    bounds: list[tuple[Value, ...] | None] = []
    for _ in range(2):
        whole = draw(row_keys(spec))
        length = draw(st.integers(0, len(whole)))
        bound = tuple(kept(spec, name, value) for name, value in zip(spec.primary_key, whole[:length], strict=False))
        bounds.append(draw(st.sampled_from([None, bound])) if length else None)
    return Range(bounds[0], bounds[1], draw(st.booleans()), draw(st.booleans()))


def conditions(spec: TableSpecification) -> st.SearchStrategy[Condition]:
    """Conditions on any fields, up to a few levels deep."""
    return st.recursive(
        st.one_of(*(_leaves(spec, field) for field in spec.fields)),
        lambda parts: st.one_of(st.builds(Not, parts), st.builds(And, parts, parts), st.builds(Or, parts, parts)),
        max_leaves=4,
    )


def _leaves(spec: TableSpecification, field: Field) -> st.SearchStrategy[Condition]:
    some = values(field).map(lambda value: kept(spec, field.name, value))
    leaves: list[st.SearchStrategy[Condition]] = [
        st.builds(Compare, st.just(field.name), st.sampled_from(list(OPERATORS)), some),
        st.builds(Between, st.just(field.name), some, some),
        st.builds(IsIn, st.just(field.name), st.lists(some, max_size=3).map(tuple)),
        st.builds(Null, st.just(field.name), st.booleans()),
    ]
    if field.type in (FieldType.STRING, FieldType.BYTES):
        leaves.append(st.builds(StartsWith, st.just(field.name), some))
    return st.one_of(*leaves)


def with_key(spec: TableSpecification, key: tuple[Value, ...], fields: Mapping[str, Value]) -> Record:
    """Return a row of a key and other fields."""
    return {**dict(zip(spec.primary_key, key, strict=True)), **fields}
