"""The normal form of a scan's arguments. The suite has the rules of what is accepted."""

from typing import Any

import pytest

from structable.spi import Field, Filter, InvalidFieldError, Range, TableSpecification, Value, col
from structable.spi.authors import Scan, ScanRequest, bind_filter, check_limit, check_splits

ITEMS = TableSpecification(
    "items",
    [Field.string("kind"), Field.int("number"), Field.string("status"), Field.double("weight")],
    ["kind", "number"],
    ["status"],
)


def test_bound_filters_are_flat_and_negate_leaves_only() -> None:
    where = bind_filter(ITEMS, ~((col("kind") == "a") | ~((col("number") < 1) & col("status").is_null())))
    assert str(where) == "kind != 'a' and number < 1 and status is null"
    assert bind_filter(ITEMS, None) is None


def nested(levels: int) -> Filter:
    where: Filter = col("status") == "x"
    for _ in range(levels):
        where = (where & (col("number") > 0)) | (col("status") == "a")
    return where


def test_filters_nest_deeply_or_are_refused() -> None:
    assert bind_filter(ITEMS, nested(50)) is not None
    for levels in (51, 10_000):
        with pytest.raises(InvalidFieldError, match="nested"):
            bind_filter(ITEMS, nested(levels))
    negated = col("status") == "x"
    for _ in range(10_000):
        negated = ~negated
    assert bind_filter(ITEMS, negated) == bind_filter(ITEMS, col("status") == "x")


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


def test_limits_and_splits_are_whole_numbers() -> None:
    assert check_limit(ITEMS, 0) == 0
    with pytest.raises(InvalidFieldError, match="limit"):
        check_limit(ITEMS, -(10**5_000))
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
