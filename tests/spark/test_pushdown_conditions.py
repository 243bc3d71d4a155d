import datetime as dt
import json
from decimal import Decimal

import pytest

from structable.spark_bridge.read.pushdown import parse_filter
from structable.spi import Filter, col
from structable.spi.authors import bind_filter
from tests.spark.support.samples import EVERYTHING, UTC


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (["=", "medium", 1], "medium == 1"),
        (["=", "wide", "NaN"], "wide == nan"),
        (["=", "wide", "-Infinity"], "wide == -inf"),
        (["=", "price", "1.50"], "price == Decimal('1.50')"),
        (["=", "raw", "AP8="], "raw == b'\\x00\\xff'"),
        (["<=>", "medium", 1], "medium == 1"),
        (["<>", "medium", 1], "medium != 1"),
        ([">", "text", "a"], "text > 'a'"),
        ([">=", "day", 18262], "day >= datetime.date(2020, 1, 1)"),
        (["<", "flag", True], "flag < True"),
        (["columns", "<", "large", "number"], "large < number"),
        (["not", ["columns", "=", "text", "name"]], "not (text == name)"),
        (["<=", "local", 0], "local <= datetime.datetime(1970, 1, 1, 0, 0)"),
        (["in", "medium", [1, 2]], "medium in [1, 2]"),
        (["null", "medium"], "medium is null"),
        (["starts", "text", "ab"], "text starts with 'ab'"),
        (["not", ["null", "medium"]], "medium is not null"),
        (["not", ["=", "medium", 1]], "not (medium == 1)"),
        (["not", ["<=>", "medium", 1]], "medium != 1 or medium is null"),
        (["not", ["in", "medium", [1, 2]]], "not (medium in [1, 2])"),
        (["not", ["not", ["<=>", "medium", 1]]], "medium == 1"),
        (["and", ["=", "tiny", 1]], "tiny == 1"),
        (["or", ["=", "tiny", 1], ["=", "small", 2], ["null", "text"]], "tiny == 1 or small == 2 or text is null"),
        (["not", ["or", ["<=>", "tiny", 1], ["null", "text"]]], "(tiny != 1 or tiny is null) and text is not null"),
        (["not", ["and", ["=", "tiny", 1], ["null", "text"]]], "not (tiny == 1) or text is not null"),
    ],
)
def test_conditions_of_the_jvm(condition: list[object], expected: str) -> None:
    where = parse_filter(EVERYTHING, json.dumps(condition))
    assert str(where) == expected
    assert bind_filter(EVERYTHING, where) is not None


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (["=", "day", -719162], col("day") == dt.date(1, 1, 1)),
        (["=", "day", 2932896], col("day") == dt.date(9999, 12, 31)),
        (["=", "instant", -62135596800000000], col("instant") == dt.datetime(1, 1, 1, tzinfo=UTC)),
        (["=", "local", 253402300799999999], col("local") == dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
        (["=", "huge", "-0.0000000001"], col("huge") == Decimal("-0.0000000001")),
        (["=", "large", -(2**63)], col("large") == -(2**63)),
    ],
)
def test_extreme_values_are_exact(condition: list[object], expected: Filter) -> None:
    assert parse_filter(EVERYTHING, json.dumps(condition)) == expected
