import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from structable.spark_bridge.filters import translate_filter
from tests.spark.support.samples import EVERYTHING

NAN = float("nan")


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (EqualTo(("medium",), 1), "medium == 1"),
        (EqualTo(("wide",), NAN), "wide == nan"),
        (EqualTo(("price",), Decimal("1.50")), "price == Decimal('1.50')"),
        (EqualTo(("raw",), b"\x00"), "raw == b'\\x00'"),
        (EqualNullSafe(("medium",), 1), "medium == 1"),
        (EqualNullSafe(("medium",), None), "medium is null"),
        (GreaterThan(("text",), "a"), "text > 'a'"),
        (GreaterThanOrEqual(("day",), dt.date(2020, 1, 1)), "day >= datetime.date(2020, 1, 1)"),
        (LessThan(("flag",), True), "flag < True"),
        (LessThanOrEqual(("local",), dt.datetime(2020, 1, 1)), "local <= datetime.datetime(2020, 1, 1, 0, 0)"),
        (In(("medium",), (1, 2)), "medium in [1, 2]"),
        (IsNull(("medium",)), "medium is null"),
        (IsNotNull(("medium",)), "medium is not null"),
        (StringStartsWith(("text",), "ab"), "text starts with 'ab'"),
        (Not(EqualTo(("medium",), 1)), "not (medium == 1)"),
        (Not(EqualNullSafe(("medium",), 1)), "medium != 1 or medium is null"),
        (Not(EqualNullSafe(("medium",), None)), "not (medium is null)"),
        (Not(In(("medium",), (1, 2))), "not (medium in [1, 2])"),
        (Not(StringStartsWith(("text",), "ab")), "not (text starts with 'ab')"),
    ],
)
def test_conditions_that_mean_the_same_are_taken_over(condition: Filter, expected: str) -> None:
    assert str(translate_filter(EVERYTHING, condition)) == expected


@pytest.mark.parametrize(
    "condition",
    [
        EqualTo(("medium",), None),
        EqualTo(("medium",), 2**31),
        EqualTo(("medium",), True),
        EqualTo(("medium",), "1"),
        EqualTo(("text",), "a\0"),
        EqualTo(("text",), "\ud800"),
        EqualTo(("price",), Decimal("1.005")),
        EqualTo(("instant",), dt.datetime(2020, 1, 1)),
        EqualTo(("absent",), 1),
        EqualTo(("medium", "nested"), 1),
        GreaterThan(("single",), 1e300),
        In(("medium",), ()),
        In(("medium",), (1, None)),
        In(("medium",), (1, 2**31)),
        In(("wide",), (1.0, 2.0)),
        StringStartsWith(("raw",), "ab"),
        StringContains(("text",), "ab"),
        StringEndsWith(("text",), "ab"),
        Not(StringContains(("text",), "ab")),
        Not(In(("medium",), (1, None))),
        Not(EqualNullSafe(("absent",), 1)),
    ],
)
def test_conditions_that_may_differ_stay_with_spark(condition: Filter) -> None:
    assert translate_filter(EVERYTHING, condition) is None


def test_a_condition_that_spark_adds_later_stays_with_spark() -> None:
    class Resembles(Filter):
        attribute = ("text",)
        value: Any = "a"

    assert translate_filter(EVERYTHING, Resembles()) is None
