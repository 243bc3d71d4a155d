"""Every path of a scan returns the result of filtering and sorting all rows, own writes included."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from structable.spi import Column, Field, Filter, Range, Row, Storage, StructuredTable, TableSpecification, col, connect
from structable.spi.authors import bind_filter, compile_filter
from tests.ordered.strategies import COMPARISONS, conditions

SPEC = TableSpecification(
    "t",
    [Field.string("a"), Field.int("b"), Field.bytes("c"), Field.int("v"), Field.string("s"), Field.double("d")],
    ["a", "b", "c"],
    ["v", "s"],
)
STRINGS = st.sampled_from(["", "a", "aa", "ab", "b", "é"])
INTS = st.integers(-2, 3)
BYTES = st.sampled_from([b"", b"\0", b"\0\xff", b"\1", b"a"])
DOUBLES = st.sampled_from([-1.5, -0.0, 0.0, 2.0, float("nan"), float("inf")])
VALUES: dict[str, st.SearchStrategy[Any]] = {"a": STRINGS, "b": INTS, "c": BYTES, "v": INTS, "s": STRINGS, "d": DOUBLES}

ROWS = st.fixed_dictionaries(
    {
        "a": STRINGS,
        "b": INTS,
        "c": BYTES,
        "v": st.none() | INTS,
        "s": st.none() | STRINGS,
        "d": st.none() | DOUBLES,
    }
)


WAYS: list[Callable[[Column, Any], Filter]] = [
    *COMPARISONS,
    lambda column, value: column.isin([value]),
    lambda column, value: column.isin([]),
    lambda column, value: column.between(value, value),
    lambda column, value: column.is_null(),
    lambda column, value: column.is_not_null(),
]


@st.composite
def leaves(draw: st.DrawFn) -> Filter:
    name = draw(st.sampled_from(list(VALUES)))
    column, value = col(name), draw(VALUES[name])
    chance = draw(st.integers(0, 9))
    if chance == 0:
        return column.isin(draw(st.lists(VALUES[name], max_size=3)))
    if chance == 1:
        return column.between(value, draw(VALUES[name]))
    if chance == 2 and isinstance(value, str | bytes):
        return column.startswith(value)
    compare: Callable[[Column, Any], Filter] = draw(st.sampled_from(WAYS))
    return compare(column, value)


FILTERS = conditions(leaves(), 5)
BOUNDS = st.one_of(
    st.none(), st.just(()), st.tuples(STRINGS), st.tuples(STRINGS, INTS), st.tuples(STRINGS, INTS, BYTES)
)
RANGES = st.builds(Range, BOUNDS, BOUNDS, st.booleans(), st.booleans())
PREFIXES = st.builds(Range.prefix, st.one_of(st.tuples(STRINGS), st.tuples(STRINGS, INTS)))
WHOLE_KEYS = st.builds(Range.prefix, st.tuples(STRINGS, INTS, BYTES))
RANGE_LISTS = st.one_of(
    st.lists(RANGES, min_size=1, max_size=3), st.lists(PREFIXES, max_size=4), st.lists(WHOLE_KEYS, max_size=8)
)


def in_range(key: tuple[Any, ...], wanted: Range) -> bool:
    begin, end = wanted.begin, wanted.end
    if begin is not None:
        head = key[: len(begin)]
        if not (head >= begin if wanted.begin_inclusive else head > begin):  # type: ignore[operator]
            return False
    if end is not None:
        head = key[: len(end)]
        if not (head <= end if wanted.end_inclusive else head < end):  # type: ignore[operator]
            return False
    return True


@pytest.fixture(scope="module")
def storage() -> Iterator[Storage]:
    with connect("memory://") as storage:
        storage.admin.create(SPEC)
        yield storage


def fill(table: StructuredTable, rows: list[dict[str, Any]]) -> None:
    table.delete_all(Range.all())
    table.upsert_many(rows)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    committed=st.lists(ROWS, max_size=15),
    own=st.lists(st.tuples(ROWS, st.booleans()), max_size=6),
    ranges=RANGE_LISTS,
    where=st.none() | FILTERS,
    order_by=st.none() | st.sampled_from(["a", "b", "c", "v", "s"]),
    reverse=st.booleans(),
    limit=st.none() | st.integers(0, 5),
    limit_per_range=st.none() | st.integers(0, 3),
)
def test_every_path_returns_the_same_rows(
    storage: Storage,
    committed: list[dict[str, Any]],
    own: list[tuple[dict[str, Any], bool]],
    ranges: list[Range],
    where: Filter | None,
    order_by: str | None,
    reverse: bool,
    limit: int | None,
    limit_per_range: int | None,
) -> None:
    fill(storage.table("t"), committed)
    rows: dict[tuple[Any, ...], dict[str, Any]] = {(row["a"], row["b"], row["c"]): row for row in committed}
    transaction = storage.transaction()
    try:
        table = transaction.table("t")
        for row, deleted in own:
            key = (row["a"], row["b"], row["c"])
            if deleted:
                table.delete(key)
                rows.pop(key, None)
            else:
                table.upsert(row)
                rows[key] = row
        expected = [key for key in rows if any(in_range(key, one) for one in ranges)]
        bound = bind_filter(SPEC, where)
        if bound is not None:
            names = SPEC.field_names
            predicate = compile_filter(SPEC, bound, names)
            expected = [key for key in expected if predicate([rows[key][name] for name in names])]
        if order_by is not None:
            expected.sort(key=lambda key: ((value := rows[key][order_by]) is not None, value or type(value)(), key))
        else:
            expected.sort()
        if reverse:
            expected.reverse()
        found = list(
            table.multi_scan(ranges, where=where, order_by=order_by, reverse=reverse, limit=limit, columns=["v", "d"])
        )
        assert [row.key for row in found] == expected[:limit]
        for read in found:
            assert_same(read, rows[read.key])
        assert table.count(ranges, where) == len(expected)
        firsts = {key for one in ranges for key in [key for key in expected if in_range(key, one)][:limit_per_range]}
        found = list(
            table.multi_scan(
                ranges, where=where, order_by=order_by, reverse=reverse, limit=limit, limit_per_range=limit_per_range
            )
        )
        assert [row.key for row in found] == [key for key in expected if key in firsts][:limit]
    finally:
        transaction.rollback()


def assert_same(row: Row, expected: dict[str, Any]) -> None:
    for name in ("v", "d"):
        assert row[name] == expected[name] or (row[name] != row[name] and expected[name] != expected[name])


@pytest.mark.parametrize(
    ("where", "path"),
    [
        ((col("a") == "x") & (col("b") == 1) & (col("c") == b""), "key lookup"),
        ((col("a") == "x") & col("b").isin([1, 2]) & (col("c") == b"") & (col("v") == 1), "key lookup"),
        ((col("a") == "x") & col("b").isin([1, 2]) & (col("c") >= b""), "key range scan"),
        (col("a") == "x", "key range scan"),
        (col("a").startswith("x"), "key range scan"),
        (col("v") == 1, "index scan on v"),
        (col("v").between(1, 2), "index scan on v"),
        (col("s").startswith("x"), "index scan on s"),
        ((col("v") == 1) & (col("a") == "x"), "index scan on v"),
        (col("d") > 1, "full scan"),
        ((col("a") == "x") & (col("a") == "y"), "empty"),
        (col("a").isin([]), "empty"),
    ],
)
def test_the_explanation_names_the_path(storage: Storage, where: Filter, path: str) -> None:
    explanation = storage.table("t").explain(where=where)
    assert str(explanation).startswith(f"{path} of t" if " on " not in path else path)


def test_a_range_that_is_a_whole_key_is_a_lookup(storage: Storage) -> None:
    table = storage.table("t")
    for whole in (
        Range.prefix(("x", 1, b"")),
        Range.prefix({"c": b"", "b": 1, "a": "x"}),
        Range(("x", 1, b""), ("x", 1, b""), True, True),
    ):
        assert table.explain(whole).path == "key lookup"
        assert table.explain(whole, where=col("v") == 1, order_by="s").path == "key lookup"
        assert table.explain(whole, where=col("a") == "y").path == "empty"
    assert table.explain(Range(("x", 1, b""), ("x", 1, b""))).path == "empty"
    assert table.explain(Range.prefix(("x", 1))).path == "key range scan"
