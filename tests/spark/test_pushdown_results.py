import random
from decimal import Decimal

import pyarrow as pa
import pytest

from structable.spark_bridge.jvm.scan_requests import ReadRequest, Top
from structable.spark_bridge.read.pushdown import parse_aggregation, spark_batches
from structable.spark_bridge.read.split_results import chosen
from structable.spi import Field, TableSpecification
from structable.spi.arrow import partial_aggregates, rows_to_batches
from structable.spi.authors import check_aggregation

SALES = TableSpecification(
    "sales",
    [Field.long("id"), Field.string("shop"), Field.long("n"), Field.decimal("price", 10, 2)],
    primary_key=["id"],
)


def batches(values: list[object], kind: pa.DataType, size: int = 2) -> list[pa.RecordBatch]:
    schema = pa.schema([("c", kind)])
    parts = [values[start : start + size] for start in range(0, len(values), size)]
    return [pa.record_batch([pa.array(part, kind)], schema=schema) for part in parts]


def schema_of(*kinds: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(f"c{place}", kind) for place, kind in enumerate(kinds)])


def parts(text: str, rows: list[dict[str, object]], schema: pa.Schema) -> list[tuple[object, ...]]:
    aggregation = parse_aggregation(text)
    checked = check_aggregation(SALES, aggregation)
    assert checked is not None
    read = rows_to_batches(SALES, rows, checked.fields)  # type: ignore[arg-type]  # of values
    found = [
        one for batch in partial_aggregates(SALES, checked, read) for one in spark_batches(aggregation, batch, schema)
    ]
    assert all(batch.schema == schema for batch in found)
    return [tuple(row.values()) for batch in found for row in batch.to_pylist()]


def test_aggregates_of_the_jvm() -> None:
    price, one = '["column", "price"]', '["number", "1.50"]'
    text = (
        '{"group_by": ["shop"], "functions": [["count"], ["count", ["column", "n"]], ["sum", ["column", "n"]],'
        f' ["max", ["column", "n"]], ["sum", ["*", {price}, ["-", {one}, {price}]]], ["sum", {price}]]}}'
    )
    kinds: list[pa.DataType] = [pa.string(), *[pa.int64()] * 4, pa.decimal128(21, 6), pa.decimal128(10, 2)]
    schema = schema_of(*kinds)
    rows: list[dict[str, object]] = [
        {"id": 1, "shop": "a", "n": 3, "price": Decimal("0.25")},
        {"id": 2, "shop": "a", "n": None, "price": Decimal("2.00")},
    ]
    assert parts(text, rows, schema) == [("a", 2, 1, 3, 3, Decimal("-0.6875"), Decimal("2.25"))]


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_beyond_the_types_of_spark_come_in_parts(sign: int) -> None:
    """Spark adds them up in its own way: to an error, to null, or wrapped."""
    text = '{"group_by": [], "functions": [["sum", ["column", "n"]], ["sum", ["column", "price"]], ["count"]]}'
    schema = schema_of(pa.int64(), pa.decimal128(10, 2), pa.int64())
    rows: list[dict[str, object]] = [
        {"id": number, "n": sign * (2**63 - 1), "price": sign * Decimal("99999999.99")} for number in range(3)
    ]
    found = parts(text, rows, schema)
    assert len(found) == 3
    assert sum(row[0] for row in found) == sign * 3 * (2**63 - 1)  # type: ignore[misc]
    assert sum(row[1] for row in found) == sign * Decimal("299999999.97")  # type: ignore[misc]
    assert [row[2] for row in found] == [3, 0, 0]


def limited(request: ReadRequest, values: list[object], *order: str) -> list[object]:
    found = chosen(iter(batches(values, pa.int64())), request, order)
    return [row["c"] for batch in found for row in batch.to_pylist()]


def test_a_limit_ends_the_split() -> None:
    given = iter(batches([1, 2, 3, 4, 5, 6], pa.int64()))
    assert sum(batch.num_rows for batch in chosen(given, ReadRequest(limit=3), ())) == 3
    assert next(given).to_pylist() == [{"c": 5}, {"c": 6}]
    assert limited(ReadRequest(limit=4), [1, 2, 3, 4, 5]) == [1, 2, 3, 4]
    assert limited(ReadRequest(limit=9), [1, 2, 3]) == [1, 2, 3]
    assert limited(ReadRequest(), [1, 2, 3]) == [1, 2, 3]


@pytest.mark.parametrize("limit", [1, 3, 7, 100])
def test_the_first_rows_of_an_order(limit: int) -> None:
    values: list[object] = [*random.Random(limit).choices(range(20), k=40), None, 5, None]
    numbers = sorted(value for value in values if isinstance(value, int))
    nulls = [None, None]
    for descending in (False, True):
        run = numbers[::-1] if descending else numbers
        for first, expected in ((True, [*nulls, *run]), (False, [*run, *nulls])):
            request = ReadRequest(limit=limit, top=Top(("c",), descending, first))
            assert limited(request, values, "k", "c") == expected[:limit]
    ascending = ReadRequest(limit=limit, top=Top(("c",), descending=False, nulls_first=True))
    assert limited(ascending, [1, 2, 3, 4], "c", "k") == [1, 2, 3, 4][:limit]
    assert limited(ascending, [4, 3, 1, 2]) == [1, 2, 3, 4][:limit]
