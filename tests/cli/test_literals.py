"""Text and JSON of values: written text reads back as the value; wrong text is refused, with the right form."""

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from structable.cli.formats.json_rows import row_from_json, row_to_json
from structable.cli.formats.text_columns import column_from_text, column_to_text
from structable.spi import Field, Value
from structable.spi.arrow import CastError, arrow_type
from structable.spi.authors import check_value
from structable.spi.text import LiteralError, format_value, parse_value, value_from_json, value_to_json
from tests.cli.support.samples import EVERYTHING, ROWS

VALUES: dict[str, st.SearchStrategy[object]] = {
    "truth": st.booleans(),
    "b": st.integers(-128, 127),
    "s": st.integers(-(2**15), 2**15 - 1),
    "i": st.integers(-(2**31), 2**31 - 1),
    "l": st.integers(-(2**63), 2**63 - 1),
    "f": st.floats(width=32),
    "d": st.floats(),
    "money": st.decimals("-9999999999999999", "9999999999999999", places=4, allow_nan=False),
    "text": st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    "raw": st.binary(),
    "day": st.dates(),
    "at": st.datetimes(timezones=st.just(dt.UTC)),
    "local": st.datetimes(),
}


def same(one: Value, other: Value) -> bool:
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return one == other and repr(one) == repr(other)


@pytest.mark.parametrize("name", VALUES)
@given(data=st.data())
def test_text_of_a_value_is_read_back(name: str, data: st.DataObject) -> None:
    field = EVERYTHING.field(name)
    value = check_value("t", field, data.draw(VALUES[name]))
    assert same(parse_value(field, format_value(field, value)), value)


@pytest.mark.parametrize("name", VALUES)
@given(data=st.data())
def test_json_of_a_value_is_read_back(name: str, data: st.DataObject) -> None:
    field = EVERYTHING.field(name)
    value = check_value("t", field, data.draw(VALUES[name]))
    document = json.loads(json.dumps(value_to_json(field, value), allow_nan=False))
    assert same(value_from_json(field, document), value)


@pytest.mark.parametrize("name", VALUES)
@given(data=st.data())
def test_columns_have_the_texts_of_their_values(name: str, data: st.DataObject) -> None:
    field = EVERYTHING.field(name)
    values = [check_value("t", field, value) for value in data.draw(st.lists(VALUES[name], max_size=5))]
    texts = [format_value(field, value) for value in values]
    column: Any = pa.array([None, *values], arrow_type(field))
    assert column_to_text(field, column).to_pylist() == [None, *texts]
    read = column_from_text(field, pa.array([None, *texts], pa.string()))
    assert read.type == column.type
    assert all(map(same, read.to_pylist(), column.to_pylist()))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["k"])
def test_json_of_a_row_is_read_back(row: dict[str, Value]) -> None:
    text = row_to_json(EVERYTHING, row, EVERYTHING.field_names)
    read = row_from_json(EVERYTHING, text)
    assert read.keys() == row.keys()
    assert all(same(read[name], row[name]) for name in row)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("truth", True, "true"),
        ("f", 0.10000000149011612, "0.1"),
        ("d", 1e300, "1e+300"),
        ("d", -math.inf, "-inf"),
        ("money", Decimal("1.5000"), "1.5000"),
        ("raw", b"\x0a\xff", "0x0aff"),
        ("raw", b"", "0x"),
        ("day", dt.date(2024, 5, 31), "2024-05-31"),
        ("at", dt.datetime(2024, 5, 31, 8, 30, tzinfo=dt.UTC), "2024-05-31T08:30:00Z"),
        ("local", dt.datetime(2024, 5, 31, 8, 30, 0, 5), "2024-05-31T08:30:00.000005"),
    ],
)
def test_texts_are_the_documented_ones(name: str, value: Value, text: str) -> None:
    assert format_value(EVERYTHING.field(name), value) == text


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("truth", "FALSE", False),
        ("i", "+7", 7),
        ("i", "181.0", 181),
        ("d", ".5", 0.5),
        ("day", "2024-05-31 00:00:00.000", dt.date(2024, 5, 31)),
        ("d", "-Infinity", -math.inf),
        ("money", "1e2", Decimal("100.0000")),
        ("raw", "0XAb", b"\xab"),
        ("at", "2024-05-31T10:30:00+02:00", dt.datetime(2024, 5, 31, 8, 30, tzinfo=dt.UTC)),
        ("at", "2024-05-31 08:30:00.1234560Z", dt.datetime(2024, 5, 31, 8, 30, 0, 123456, dt.UTC)),
        ("local", "2024-05-31", dt.datetime(2024, 5, 31)),
    ],
)
def test_other_spellings_are_read(name: str, text: str, value: Value) -> None:
    assert parse_value(EVERYTHING.field(name), text) == value


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("truth", "1", "neither true nor false"),
        ("i", "", "whole number"),
        ("i", " 1", "whole number"),
        ("i", "1_000", "whole number"),
        ("i", "٣", "whole number"),
        ("i", "1.5", "whole number"),
        ("i", "1e3", "whole number"),
        ("day", "2024-05-31T08:30:00", "not midnight"),
        ("day", "2024-05-31T00:00:00Z", "not midnight"),
        ("i", "9" * 5000, "whole number"),
        ("b", "128", "-128 to 127"),
        ("f", "1e39", "32-bit"),
        ("d", "1e309", "64-bit"),
        ("d", "one", "neither a number nor nan"),
        ("money", "0.00001", "does not fit decimal"),
        ("money", "1e999999999999999999999", "exponent"),
        ("money", "nan", "not a decimal"),
        ("raw", "ab", "0x and two"),
        ("raw", "0xa", "0x and two"),
        ("text", "a\0b", "NUL"),
        ("text", "\udc80", "surrogate"),
        ("day", "2023-02-29", "like 2024-05-31"),
        ("at", "2024-05-31T08:30:00", "no time zone"),
        ("at", "2024-05-31T08:30:00.0000001Z", "finer than a microsecond"),
        ("at", "0001-01-01T00:00:00+02:00", "out of range"),
        ("local", "2024-05-31T08:30:00Z", "has a time zone"),
        ("local", "yesterday", "like 2024-05-31T08:30:00"),
    ],
)
def test_wrong_texts_are_refused(name: str, text: str, reason: str) -> None:
    with pytest.raises(LiteralError, match=reason):
        parse_value(EVERYTHING.field(name), text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("day", "2023-02-29"),
        ("day", "0000-01-01"),
        ("at", "2024-05-31T24:00:00Z"),
        ("local", "2024-05-31T23:59:60"),
        ("l", "9223372036854775808"),
        ("b", "128"),
        ("d", "1e309"),
    ],
)
def test_wrong_cells_are_refused_with_their_place(name: str, text: str) -> None:
    field = EVERYTHING.field(name)
    good = format_value(field, next(row[name] for row in ROWS if row["k"] == "most"))
    with pytest.raises(CastError) as caught:
        column_from_text(field, pa.array([good, None, text], pa.string()))
    assert caught.value.position == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "a JSON object is needed"),
        ('{"nope": 1}', "'nope' is not a field"),
        ('{"k": "a", "k": "b"}', "'k' appears twice"),
        ('{"i": "1"}', "is a string; a int is needed"),
        ('{"i": 1.5}', "field 'i'"),
        ('{"i": true}', "field 'i'"),
        ('{"truth": 0}', "field 'truth'"),
        ('{"text": 5}', "field 'text'"),
        ('{"text": {"a": 1}}', "is not a value"),
        ('{"raw": "0xff!"}', "not base64"),
        ('{"d": 1e400}', "64-bit"),
        ('{"d": 1e99999999999999999999}', "exponent"),
        ('{"money": 1.00001}', "does not fit"),
    ],
)
def test_wrong_json_is_refused(text: str, reason: str) -> None:
    with pytest.raises(LiteralError, match=reason):
        row_from_json(EVERYTHING, text)


def test_json_numbers_are_exact() -> None:
    row = row_from_json(EVERYTHING, '{"money": 1234567890123456.7891, "i": 3.0, "d": 3, "f": 0.1}')
    assert row == {"money": Decimal("1234567890123456.7891"), "i": 3, "d": 3.0, "f": 0.10000000149011612}


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(LiteralError, match="nested"):
        row_from_json(EVERYTHING, '{"k": ' + "[" * 200_000)


def test_float_text_is_short() -> None:
    field = Field.float("x")
    assert [format_value(field, value) for value in (16777216.0, 0.0, -0.0)] == ["16777216.0", "0.0", "-0.0"]
