"""Filters on record batches are true of the rows that `compile_filter` finds."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from structable.backends.ordered.arrow.batch_filters import compile_batch_filter
from structable.spi import Field, FieldType, Filter, TableSpecification, col
from structable.spi.arrow import arrow_schema
from structable.spi.authors import UnboundFilterError, bind_filter, compile_filter
from structable.testing.conformance.samples import TYPES
from tests.ordered.strategies import COMPARISONS, conditions

FLOATS = [-1.5, -0.0, 0.0, 0.5, float("inf"), float("-inf"), float("nan")]
MOMENTS = [
    datetime.datetime(1, 1, 1),
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime.datetime(2026, 1, 2),
]
VALUES: dict[str, list[Any]] = {
    "boolean": [False, True],
    "byte": [-128, -1, 0, 127],
    "short": [-(2**15), 0, 2**15 - 1],
    "int": [-(2**31), 0, 2**31 - 1],
    "long": [-(2**63), -1, 0, 2**63 - 1],
    "float": FLOATS,
    "double": [*FLOATS, 0.1],
    "string": ["", "a", "ab", "b", "é", "\U0001f600", "\uffff"],
    "bytes": [b"", b"a", b"ab", b"\xff", b"a\0", b"\xff\xfe"],
    "decimal": [Decimal("-1.500"), Decimal(0), Decimal("0.001"), Decimal("999999999.999")],
    "date": [datetime.date(1, 1, 1), datetime.date(1970, 1, 1), datetime.date(2026, 1, 2)],
    "timestamp": [moment.replace(tzinfo=datetime.UTC) for moment in MOMENTS],
    "timestamp_ntz": MOMENTS,
}
ROWS = st.fixed_dictionaries(
    {"id": st.just(0), **{name: st.none() | st.sampled_from(values) for name, values in VALUES.items()}}
)


@st.composite
def leaves(draw: st.DrawFn) -> Filter:
    name = draw(st.sampled_from(list(VALUES)))
    column, values = col(name), st.sampled_from(VALUES[name])
    kinds: list[Callable[[], Filter]] = [
        lambda: draw(st.sampled_from(COMPARISONS))(column, draw(values)),
        lambda: column.isin(draw(st.lists(values, max_size=3))),
        column.is_null,
        column.is_not_null,
    ]
    if name in ("string", "bytes"):
        kinds.append(lambda: column.startswith(draw(values)))
    return draw(st.sampled_from(kinds))()


FILTERS = conditions(leaves(), 6)


@given(rows=st.lists(ROWS, max_size=12), where=FILTERS)
def test_batches_and_rows_agree(rows: list[dict[str, Any]], where: Filter) -> None:
    bound = bind_filter(TYPES, where)
    assert bound is not None
    batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(TYPES))
    predicate = compile_filter(TYPES, bound, TYPES.field_names)
    expected = [predicate([row[name] for name in TYPES.field_names]) for row in rows]
    assert compile_batch_filter(TYPES, bound)(batch).to_pylist() == expected


@pytest.mark.parametrize("name", VALUES)
def test_each_leaf_agrees_on_each_type(name: str) -> None:
    rows = [dict.fromkeys(TYPES.field_names) | {"id": 0, name: value} for value in (*VALUES[name], None)]
    batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(TYPES))
    wheres = [compare(col(name), value) for compare in COMPARISONS for value in VALUES[name]]
    wheres += [col(name).isin(VALUES[name][begin:]) for begin in range(len(VALUES[name]) + 1)]
    if name in ("string", "bytes"):
        wheres += [col(name).startswith(value) for value in VALUES[name]]
    for where in [*wheres, *(~one for one in wheres)]:
        bound = bind_filter(TYPES, where)
        assert bound is not None
        predicate = compile_filter(TYPES, bound, [name])
        found = compile_batch_filter(TYPES, bound)(batch).to_pylist()
        assert found == [predicate([row[name]]) for row in rows], str(where)


@pytest.mark.parametrize("name", VALUES)
def test_two_columns_agree_on_each_type(name: str) -> None:
    own = TYPES.field(name)
    finer = Field.decimal("b", 38, 5) if own.type is FieldType.DECIMAL else replace(own, name="b")
    spec = TableSpecification("t", [Field.long("id"), replace(own, name="a"), finer], ["id"])
    values = [*VALUES[name], None]
    pairs = [{"id": 0, "a": a, "b": b} for a in values for b in values]
    batch = pa.RecordBatch.from_pylist(pairs, schema=arrow_schema(spec))
    for where in [compare(col(one), col(other)) for compare in COMPARISONS for one, other in (("a", "b"), ("b", "a"))]:
        for condition in (where, ~where):
            bound = bind_filter(spec, condition)
            assert bound is not None
            predicate = compile_filter(spec, bound, ["a", "b"])
            found = compile_batch_filter(spec, bound)(batch).to_pylist()
            assert found == [predicate([row["a"], row["b"]]) for row in pairs], str(condition)


def test_an_unknown_filter_is_refused() -> None:
    with pytest.raises(UnboundFilterError):
        compile_batch_filter(TYPES, Filter())
