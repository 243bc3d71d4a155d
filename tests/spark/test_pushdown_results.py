import datetime as dt
import random

import pyarrow as pa
import pytest

from structable.spark_bridge.partial_results import aggregated, chosen
from structable.spark_bridge.scan_requests import Aggregate, ScanRequest, Top


def batches(values: list[object], kind: pa.DataType, size: int = 2) -> list[pa.RecordBatch]:
    schema = pa.schema([("c", kind)])
    parts = [values[start : start + size] for start in range(0, len(values), size)]
    return [pa.record_batch([pa.array(part, kind)], schema=schema) for part in parts]


def results(values: list[object], kind: pa.DataType) -> list[object]:
    functions = [Aggregate("count", None), Aggregate("count", "c"), Aggregate("min", "c"), Aggregate("max", "c")]
    schema = pa.schema([("0", pa.int64()), ("1", pa.int64()), ("2", kind), ("3", kind)])
    (row,) = aggregated(iter(batches(values, kind)), functions, schema).to_pylist()
    return list(row.values())


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([], pa.int32(), [0, 0, None, None]),
        ([None, None, None], pa.string(), [3, 0, None, None]),
        ([3, None, -(2**63), 2**63 - 1], pa.int64(), [4, 3, -(2**63), 2**63 - 1]),
        ([True, None, False], pa.bool_(), [3, 2, False, True]),
        (["b", "\uffff", "\U0001f600", ""], pa.string(), [4, 4, "", "\U0001f600"]),
        ([b"\xff", b"\x00\xff", b""], pa.binary(), [3, 3, b"", b"\xff"]),
        ([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)], pa.date32(), [3, 2, dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    ],
)
def test_aggregates(values: list[object], kind: pa.DataType, expected: list[object]) -> None:
    assert results(values, kind) == expected


def limited(request: ScanRequest, values: list[object], *, ordered: bool) -> list[object]:
    found = chosen(iter(batches(values, pa.int64())), request, ordered=ordered)
    return [row["c"] for batch in found for row in batch.to_pylist()]


def test_a_limit_ends_the_split() -> None:
    given = iter(batches([1, 2, 3, 4, 5, 6], pa.int64()))
    assert sum(batch.num_rows for batch in chosen(given, ScanRequest(limit=3), ordered=True)) == 3
    assert next(given).to_pylist() == [{"c": 5}, {"c": 6}]
    assert limited(ScanRequest(limit=4), [1, 2, 3, 4, 5], ordered=False) == [1, 2, 3, 4]
    assert limited(ScanRequest(limit=9), [1, 2, 3], ordered=False) == [1, 2, 3]
    assert limited(ScanRequest(), [1, 2, 3], ordered=False) == [1, 2, 3]


@pytest.mark.parametrize("limit", [1, 3, 7, 100])
def test_the_first_rows_of_an_order(limit: int) -> None:
    values: list[object] = [*random.Random(limit).choices(range(20), k=40), None, 5, None]
    numbers = sorted(value for value in values if isinstance(value, int))
    nulls = [None, None]
    for descending in (False, True):
        run = numbers[::-1] if descending else numbers
        for first, expected in ((True, [*nulls, *run]), (False, [*run, *nulls])):
            request = ScanRequest(limit=limit, top=Top(("c",), descending, first, by_key=False))
            assert limited(request, values, ordered=True) == expected[:limit]
    ascending = ScanRequest(limit=limit, top=Top(("c",), descending=False, nulls_first=True, by_key=True))
    assert limited(ascending, [1, 2, 3, 4], ordered=True) == [1, 2, 3, 4][:limit]
    assert limited(ascending, [4, 3, 1, 2], ordered=False) == [1, 2, 3, 4][:limit]
