"""The ranges, filters and other arguments that a scan accepts, and their normal form."""

import math
from typing import Any

import pytest

from structable.spi import (
    Field,
    Filter,
    InvalidFieldError,
    Range,
    TableSpecification,
    Value,
    bind_filter,
    check_limit,
    check_range,
    col,
    compile_filter,
)
from structable.spi.operations import Scan
from structable.spi.rules.scans import ScanRequest, check_splits
from structable.spi.values import NAN

ITEMS = TableSpecification(
    "items",
    [Field.string("kind"), Field.int("number"), Field.string("status"), Field.double("weight")],
    ["kind", "number"],
    ["status"],
)


def test_bounds_are_prefixes_of_the_key() -> None:
    assert check_range(ITEMS, Range({"kind": "a"}, ("b", 2))) == Range(("a",), ("b", 2))
    assert check_range(ITEMS, Range((), ())) == Range(None, (), True, False)
    for wrong in (
        Range(("a", 1, "x")),
        Range({"number": 1}),
        Range(("a", None)),
        Range(("a", "1")),
        Range(["a"]),  # type: ignore[arg-type]
        Range("a"),  # type: ignore[arg-type]
        Range(("a",), None, 1),  # type: ignore[arg-type]
        ("a",),
    ):
        with pytest.raises(InvalidFieldError):
            check_range(ITEMS, wrong)


ROWS: list[tuple[Value, ...]] = [
    (kind, number, status, weight)
    for kind in ("a", "b")
    for number in (-1, 0, 1)
    for status in (None, "", "x", "xy")
    for weight in (None, -0.0, 2.5, math.inf, NAN)
]
FILTERS = [
    col("kind") == "a",
    col("number") > 0,
    col("status").startswith("x"),
    col("status").isin(["x", ""]),
    col("status").isin([]),
    col("status").is_null(),
    col("weight") >= 2.5,
    col("weight") == NAN,
    col("weight").isin([NAN, 0.0]),
    col("weight").between(0.0, 3.0),
    (col("status") == "x") | (col("weight") < 1.0),
    (col("status") != "x") & ~((col("number") == 0) | col("weight").is_null()),
]


def true_rows(where: Filter) -> set[int]:
    bound = bind_filter(ITEMS, where)
    assert bound is not None
    predicate = compile_filter(ITEMS, bound, ITEMS.field_names)
    return {number for number, row in enumerate(ROWS) if predicate(row)}


@pytest.mark.parametrize("where", FILTERS, ids=str)
def test_a_negated_filter_is_true_of_the_other_rows_but_never_of_null(where: Filter) -> None:
    rows, others = true_rows(where), true_rows(~where)
    assert not rows & others
    assert true_rows(~~where) == rows
    null = [col(name).is_null() for name in set(where.fields())]
    unknown = set().union(*(true_rows(one) for one in null))
    assert set(range(len(ROWS))) - rows - others <= unknown


def test_bound_filters_are_flat_and_negate_leaves_only() -> None:
    where = bind_filter(ITEMS, ~((col("kind") == "a") | ~((col("number") < 1) & col("status").is_null())))
    assert str(where) == "kind != 'a' and number < 1 and status is null"
    assert bind_filter(ITEMS, None) is None


@pytest.mark.parametrize(
    "where",
    [
        col("colour") == "red",
        col("colour").isin([]),
        col("colour").is_null(),
        col("number") == "1",
        col("number") == None,  # noqa: E711 - the comparison under test
        col("number").startswith("1"),
        col("number").isin([1, None]),
        "number == 1",
        True,
    ],
    ids=str,
)
def test_filters_that_do_not_fit_are_refused(where: object) -> None:
    with pytest.raises(InvalidFieldError):
        bind_filter(ITEMS, where)


def nested(levels: int) -> Filter:
    where: Filter = col("status") == "x"
    for _ in range(levels):
        where = (where & (col("number") > 0)) | (col("status") == "a")
    return where


def test_filters_nest_deeply_or_are_refused() -> None:
    assert ("b", 1, "x", None) in [ROWS[number] for number in true_rows(nested(50))]
    for levels in (51, 10_000):
        with pytest.raises(InvalidFieldError, match="nested"):
            bind_filter(ITEMS, nested(levels))
    negated = col("status") == "x"
    for _ in range(10_000):
        negated = ~negated
    assert true_rows(negated) == true_rows(col("status") == "x")


def test_a_request_holds_checked_arguments() -> None:
    scan = Scan([Range.prefix({"kind": "a"})], col("number") > 0, ["weight", "number"], "status", True, 2**70)
    request = ScanRequest.checked(ITEMS, scan)
    assert request.ranges == (Range.prefix(("a",)),)
    assert str(request.where) == "number > 0"
    assert request.columns == ("kind", "number", "weight")
    assert (request.order_by, request.reverse) == ("status", True)
    assert request.limit is not None
    assert request.limit > 2**60
    everything = ScanRequest.checked(ITEMS, Scan([Range()], order_by="kind"))
    assert everything == ScanRequest((Range(),), None, None, None, False, None)
    assert everything.conjuncts == ()


def test_a_request_for_an_index_value_keeps_the_filter() -> None:
    def condition(index: tuple[Any, Value], where: Filter | None = None) -> str:
        return str(ScanRequest.checked(ITEMS, Scan([Range()], where, indexed=index)).where)

    where = (col("number") > 0) & (col("weight") > 1.0)
    assert condition(("status", "x"), where) == "status == 'x' and number > 0 and weight > 1.0"
    assert condition(("status", None)) == "status is null"
    for index in (("number", 1), ("colour", "red"), ("status", 5), (["status"], "x")):
        with pytest.raises(InvalidFieldError):
            condition(index, where)


@pytest.mark.parametrize(
    "arguments",
    [
        {"ranges": Range()},
        {"ranges": "ab"},
        {"ranges": 5},
        {"where": "number > 0"},
        {"columns": "number"},
        {"order_by": "weight"},
        {"order_by": "colour"},
        {"order_by": ["number"]},
        {"reverse": 1},
        {"limit": -1},
        {"limit": True},
        {"limit": 1.0},
        {"limit": -(10**5_000)},
    ],
    ids=lambda arguments: next(iter(arguments)),
)
def test_other_arguments_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidFieldError):
        ScanRequest.checked(ITEMS, Scan(**{"ranges": [Range()], **arguments}))  # type: ignore[arg-type]


def test_limits_and_splits_are_whole_numbers() -> None:
    assert check_limit(ITEMS, 0) == 0
    check_splits(1)
    for splits in (0, True, 1.0, "1", None):
        with pytest.raises(ValueError, match="splits is "):
            check_splits(splits)


def test_whole_keys_are_the_distinct_keys_of_point_ranges() -> None:
    def keys(*ranges: Range) -> object:
        return ScanRequest.checked(ITEMS, Scan(ranges)).whole_keys(ITEMS)

    assert keys(Range.prefix(("a", 1)), Range.prefix({"kind": "b", "number": 2}), Range.prefix(("a", 1))) == (
        ("a", 1),
        ("b", 2),
    )
    assert keys() == ()
    for other in (Range.prefix(("a",)), Range.all(), Range(("a", 1), ("a", 1)), Range(("a", 1), ("a", 2), True, True)):
        assert keys(Range.prefix(("a", 1)), other) is None


def test_scans_of_single_ranges_have_the_smaller_limit() -> None:
    ranges = (Range.prefix(("a",)), Range.prefix(("b",)))
    for limit, per_range, expected in ((None, 3, 3), (2, 3, 2), (5, 3, 3)):
        request = ScanRequest.checked(ITEMS, Scan(ranges, limit=limit, limit_per_range=per_range))
        singles = [(one.ranges, one.limit, one.limit_per_range) for one in request.per_range]
        assert singles == [((range_,), expected, None) for range_ in request.ranges]
