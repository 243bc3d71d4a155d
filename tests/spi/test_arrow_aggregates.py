"""Partial aggregates of Arrow batches: what they add up to, exactly, and how much they keep."""

import datetime as dt
import random
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from structable.spi import AggregateExpression, Aggregation, Field, InvalidFieldError, TableSpecification, Value, col
from structable.spi.arrow import aggregate_schema, arrow_schema, partial_aggregates, rows_to_batches
from structable.spi.authors import check_aggregation

count, total, least, greatest = (
    AggregateExpression.count,
    AggregateExpression.sum,
    AggregateExpression.min,
    AggregateExpression.max,
)
SALES = TableSpecification(
    "sales",
    [
        Field.long("id"),
        Field.string("shop"),
        Field.int("pieces"),
        Field.long("serial"),
        Field.decimal("price", 15, 2),
        Field.decimal("discount", 15, 2),
        Field.decimal("huge", 38, 0),
        Field.bytes("mark"),
        Field.boolean("paid"),
        Field.date("day"),
        Field.double("weight"),
    ],
    primary_key=["id"],
)


def results(
    rows: Iterable[dict[str, Value]], functions: list[AggregateExpression], *group_by: str, size: int = 3
) -> list[tuple[Any, ...]]:
    aggregation = check_aggregation(SALES, Aggregation(functions, group_by))
    assert aggregation is not None
    batches = rows_to_batches(SALES, rows, aggregation.fields or ["id"], batch_size=size)
    found = list(partial_aggregates(SALES, aggregation, batches))
    schema = aggregate_schema(SALES, aggregation)
    assert all(batch.schema == schema and batch.num_rows for batch in found)
    return [tuple(row.values()) for batch in found for row in batch.to_pylist()]


def test_functions_of_groups() -> None:
    rows: list[dict[str, Any]] = [
        {"id": 1, "shop": "a", "pieces": 3, "price": Decimal("1.25"), "mark": b"\xff", "paid": True},
        {"id": 2, "shop": "a", "pieces": None, "price": Decimal("-0.50"), "mark": b"\x00\xff", "paid": False},
        {"id": 3, "shop": None, "pieces": 5},
        {"id": 4, "shop": "", "pieces": -(2**31), "day": dt.date(1, 1, 1)},
        {"id": 5, "shop": "a", "pieces": 4, "day": dt.date(9999, 12, 31)},
    ]
    functions = [count(), count("pieces"), total("pieces"), total("price"), least("mark"), greatest("mark")]
    functions += [greatest("paid"), least("paid"), greatest("day"), least("price")]
    found = {row[0]: row[1:] for row in results(rows, functions, "shop")}
    assert found == {
        "a": (3, 2, 7, Decimal("0.75"), b"\x00\xff", b"\xff", True, False, dt.date(9999, 12, 31), Decimal("-0.50")),
        None: (1, 1, 5, None, None, None, None, None, None, None),
        "": (1, 1, -(2**31), None, None, None, None, None, dt.date(1, 1, 1), None),
    }


def test_no_rows_are_one_group_without_fields_and_no_groups_with_them() -> None:
    assert results([], [count(), count("pieces"), total("pieces"), least("shop")]) == [(0, 0, None, None)]
    assert results([], [count()], "shop") == []
    assert results([], [], "shop") == []


def test_groups_without_functions_are_distinct_values() -> None:
    rows: list[dict[str, Value]] = [{"id": number, "shop": "ab"[number % 2], "paid": None} for number in range(9)]
    assert sorted(results(rows, [], "shop", "paid", size=100)) == [("a", None), ("b", None)]
    with pytest.raises(InvalidFieldError, match="neither functions nor groups"):
        check_aggregation(SALES, Aggregation())


def test_sums_of_integers_exceed_64_bits() -> None:
    rows: list[dict[str, Value]] = [{"id": number, "serial": 2**63 - 1} for number in range(5)]
    assert results(rows, [total("serial")]) == [(5 * (2**63 - 1),)]


def test_a_sum_beyond_38_digits_comes_in_parts() -> None:
    large = 10**38 - 1
    rows: list[dict[str, Value]] = [{"id": number, "huge": Decimal(large), "pieces": 1} for number in range(5)]
    rows += [{"id": 9, "huge": Decimal(-7), "pieces": None}]
    found = results(rows, [count(), total("huge"), count("pieces"), greatest("pieces"), total("pieces")])
    assert sum(int(row[1]) for row in found) == 5 * large - 7
    assert [(row[0], *row[2:]) for row in found] == [(6, 5, 1, 5)] + [(0, 0, None, None)] * 4


def test_expressions_are_exact() -> None:
    rows: list[dict[str, Any]] = [
        {"id": number, "shop": "ab"[number % 2], "price": Decimal(number) / 4, "discount": Decimal(number % 7) / 100}
        for number in range(1000)
    ]
    rows[5]["price"] = None
    net = col("price") * (1 - col("discount"))
    functions = [total(net), total(net * (col("pieces") + 1)), total(net * net * 3), total(Decimal("0.5") - col("id"))]
    functions += [count(net), total(Decimal("0.25")), count(col("pieces") * 2)]
    found = {row[0]: row[1:] for row in results(rows, functions, "shop")}
    for shop in "ab":
        own = [row for row in rows if row["shop"] == shop]
        nets = [row["price"] * (1 - row["discount"]) for row in own if row["price"] is not None]
        halves = sum(Decimal("0.5") - row["id"] for row in own)
        assert found[shop] == (sum(nets), None, sum(3 * one * one for one in nets), halves, len(nets), 125, 0)
    assert str(functions[1]) == "sum((price * (1 - discount)) * (pieces + 1))"


def test_an_expression_may_exceed_38_digits_by_type_but_not_by_value() -> None:
    product = col("huge") * col("serial")
    small: list[dict[str, Value]] = [
        {"id": 1, "huge": Decimal(10**37), "serial": 9},
        {"id": 2, "huge": Decimal(3), "serial": 2**63 - 1},
        {"id": 3, "huge": None, "serial": 1},
    ]
    assert results(small, [total(product)]) == [(9 * 10**37 + 3 * (2**63 - 1),)]
    with pytest.raises(InvalidFieldError, match=r"huge . serial.*more than 38 digits"):
        results([*small, {"id": 4, "huge": Decimal(10**37), "serial": 10}], [total(product)])
    fine = Aggregation([total(col("price") * Decimal("0." + "1" * 38))])
    with pytest.raises(InvalidFieldError, match="40 digits after the point"):
        check_aggregation(SALES, fine)


@pytest.mark.parametrize("distinct", [3, 70_000, 10**9])
def test_few_groups_are_kept_and_many_are_given_again(distinct: int) -> None:
    chances = random.Random(distinct)
    aggregation = Aggregation([count(), total("serial")], ["pieces"])
    schema = arrow_schema(SALES, aggregation.fields)
    numbers = range(100) if distinct == 3 else range(60)

    def batches() -> Iterator[pa.RecordBatch]:
        for number in numbers:
            pieces = [chances.randrange(distinct) for _ in range(5000)]
            yield pa.record_batch([pa.array(pieces, pa.int32()), pa.array([number] * 5000)], schema=schema)

    seen: dict[int, list[int]] = {}
    rows = 0
    for batch in partial_aggregates(SALES, aggregation, batches()):
        rows += batch.num_rows
        for row in batch.to_pylist():
            group = seen.setdefault(row["pieces"], [0, 0])
            group[0] += row["count(*)"]
            group[1] += int(row["sum(serial)"])
    assert sum(group[0] for group in seen.values()) == 5000 * len(numbers)
    assert sum(group[1] for group in seen.values()) == 5000 * sum(numbers)
    assert rows == 3 if distinct == 3 else rows >= 0.5 * 5000 * len(numbers)


@pytest.mark.parametrize(
    ("aggregation", "message"),
    [
        (Aggregation([total("shop")]), "is of type string, which is not a number"),
        (Aggregation([total("weight")]), "depends on the order of the rows"),
        (Aggregation([least("weight")]), "is of type double, which has no min"),
        (Aggregation([count()], ["weight"]), "is of type double, by which rows cannot be grouped"),
        (Aggregation([count("unknown")]), "is not a field"),
        (Aggregation([count()], ["unknown"]), "is not a field"),
        (Aggregation([count()], "shop"), "group_by is 'shop'"),
        (Aggregation(["count(*)"]), "is not made by count, sum, min or max"),  # type: ignore[list-item]
        (Aggregation([total(col("price") * Decimal("NaN"))]), "is neither an int nor a finite Decimal"),
        (Aggregation([total(10**40 * col("price"))]), "more than 38 digits"),
        ("count", "is not an Aggregation"),
    ],
)
def test_what_does_not_fit_is_refused(aggregation: object, message: str) -> None:
    with pytest.raises(InvalidFieldError, match=message):
        check_aggregation(SALES, aggregation)


def test_constants_differ_by_their_digits() -> None:
    rows: list[dict[str, Value]] = [{"id": 1, "price": Decimal("2.50")}]
    functions = [total(col("price") * 1), total(col("price") * Decimal("1.0")), total(col("price") * Decimal(1))]
    assert [str(value) for value in results(rows, functions)[0]] == ["2.50", "2.500"]


def test_columns_and_an_aggregate_exclude_each_other() -> None:
    with pytest.raises(InvalidFieldError, match="name either columns or an aggregate"):
        check_aggregation(SALES, Aggregation([count()]), ["id"])
    twice = check_aggregation(SALES, Aggregation([count(), count()], ["shop", "shop"]))
    assert twice == Aggregation([count()], ["shop"])
    assert twice is not None
    assert twice.columns == ("shop", "count(*)")
