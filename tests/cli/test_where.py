"""The language of `--where`: what each form means, and where an error is."""

import datetime as dt

import pytest

from structable.cli.language.errors import UsageProblem
from structable.cli.language.selection import parse_where
from structable.spi import Field, Filter, TableSpecification, col
from structable.spi.authors import bind_filter
from tests.cli.support.samples import EVERYTHING

WORDS = TableSpecification("words", [Field.int(name) for name in ("not", "In", "startswith", "null", "x")], ["x"])


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("i == 3", col("i") == 3),
        ("i = 3", col("i") == 3),
        ("i != 3", col("i") != 3),
        ("i <> 3", col("i") != 3),
        ("i<-3", col("i") < -3),
        ("i <= +3", col("i") <= 3),
        ("i>3", col("i") > 3),
        ("i >= 3", col("i") >= 3),
        ("d == 1.5e-3", col("d") == 1.5e-3),
        ("d == .5", col("d") == 0.5),
        ("d == inf", col("d") == float("inf")),
        ("truth == true", col("truth") == True),  # noqa: E712
        ("raw == 0x0aFF", col("raw") == b"\x0a\xff"),
        ("day == 2024-05-31", col("day") == dt.date(2024, 5, 31)),
        ("day == '2024-05-31'", col("day") == dt.date(2024, 5, 31)),
        ("at >= 2024-05-31T08:30:00Z", col("at") >= dt.datetime(2024, 5, 31, 8, 30, tzinfo=dt.UTC)),
        ("text == 'it''s'", col("text") == "it's"),
        ('text == "it\'s"', col("text") == "it's"),
        ('text == "say ""hi"""', col("text") == 'say "hi"'),
        ("text == ''", col("text") == ""),
        ("text == 'a\\n and or ('", col("text") == "a\\n and or ("),
        ("text is null", col("text").is_null()),
        ("text IS None", col("text").is_null()),
        ("text is not null", col("text").is_not_null()),
        ("i in (1, 2,3)", col("i").isin([1, 2, 3])),
        ("i in [1]", col("i").isin([1])),
        ("i in ()", col("i").isin([])),
        ("text not in ('a', 'b')", ~col("text").isin(["a", "b"])),
        ("i between 1 and 3 and b == 1", col("i").between(1, 3) & (col("b") == 1)),
        ("i not between 1 and 3", ~col("i").between(1, 3)),
        ("text startswith 'ab'", col("text").startswith("ab")),
        ("startswith(text, 'ab')", col("text").startswith("ab")),
        ("text not startswith 'ab'", ~col("text").startswith("ab")),
        ("raw startswith 0xff", col("raw").startswith(b"\xff")),
        ("i == 1 or b == 2 and s == 3", (col("i") == 1) | ((col("b") == 2) & (col("s") == 3))),
        ("(i == 1 or b == 2) and s == 3", ((col("i") == 1) | (col("b") == 2)) & (col("s") == 3)),
        ("not i == 1 and b == 2", ~(col("i") == 1) & (col("b") == 2)),
        ("NOT (i == 1 AND b == 2)", ~((col("i") == 1) & (col("b") == 2))),
        ("not not i == 1", ~~(col("i") == 1)),
        ("`i` == 1", col("i") == 1),
        ("text != k", col("text") != col("k")),
        ("i = `i` and not text>=k", (col("i") == col("i")) & ~(col("text") >= col("k"))),
    ],
)
def test_meaning(text: str, meaning: Filter) -> None:
    assert bind_filter(EVERYTHING, parse_where(EVERYTHING, text)) == bind_filter(EVERYTHING, meaning)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("In in (1)", col("In").isin([1])),
        ("`not` == 1", col("not") == 1),
        ("not `not` is null", ~col("not").is_null()),
        ("startswith == 1", col("startswith") == 1),
        ("null is not null", col("null").is_not_null()),
        ("`not` == `null`", col("not") == col("null")),
    ],
)
def test_fields_may_be_called_like_words_of_the_language(text: str, meaning: Filter) -> None:
    assert bind_filter(WORDS, parse_where(WORDS, text)) == bind_filter(WORDS, meaning)


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("", 1, "empty"),
        ("   ", 1, "empty"),
        ("i", 2, "a comparison is expected after the field 'i', not the end"),
        ("i 3", 3, "a comparison is expected"),
        ("i ==", 5, "a value for the field 'i' is expected here, not the end"),
        ("i == == 3", 6, "a value for the field 'i' is expected here, not '=='"),
        ("i == 3 4", 8, "'4' is not expected here; 'and', 'or' or the end is"),
        ("i == 3 and", 11, "a field is expected here, not the end"),
        ("(i == 3", 8, "')' is expected to close the parenthesis"),
        ("i == 3)", 7, "')' is not expected"),
        ("I == 3", 1, "'I' is not a field of table 'everything'; the fields are k, truth"),
        ("3 == i", 1, "'3' is not a field"),
        ("'i' == 3", 1, "a field is expected here, not 'i'"),
        ("i == x", 6, "field 'i': 'x' is not a whole number"),
        ("i == text", 6, "'i' is of type int and cannot be compared with 'text', which is of type string"),
        ("i == `x`", 6, "'x' is not a field"),
        ("i between 1 and i", 17, "'i' is not a whole number"),
        ("b == 1000", 6, "out of the range"),
        ("text == abc", 9, "must be quoted: 'abc'"),
        ("i == 1 and text == 'abc", 20, "the quote is not closed"),
        ("é", 1, "not a field"),
        ("i == 1 ; drop", 8, "';' has no meaning here"),
        ("i == 1\n  and\n b = {", 19, "'{' has no meaning here"),
        ("i == null", 6, "write 'i is [not] null'"),
        ("i is 3", 6, "'null' is expected after 'is'"),
        ("i not 3", 7, "'in', 'between' or 'startswith' is expected after 'not'"),
        ("i in 3", 6, "'(' is expected after 'in'"),
        ("i in (1 2)", 9, "',' is expected or ')' after a value of 'in'"),
        ("i in (1,)", 9, "a value for the field"),
        ("i in (1", 8, "',' is expected"),
        ("i between 1 or 3", 13, "'and' is expected between"),
        ("i startswith 3", 14, "takes string and bytes"),
        ("startswith(text 'a')", 17, "',' is expected after the field"),
        ("text startswith 'a' + 'b'", 21, "'+' has no meaning"),
        ("(" * 100 + "i == 3", 51, "nested more than 50 deep"),
        ("not " * 100_000 + "i == 3", 201, "nested more than 50 deep"),
        ("__import__('os')", 1, "not a field"),
    ],
)
def test_error_names_the_column(text: str, column: int, reason: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        parse_where(EVERYTHING, text)
    message = str(caught.value)
    assert message.startswith(f"--where, column {column}: ")
    assert reason in message


def test_long_chains_are_flat() -> None:
    where = bind_filter(EVERYTHING, parse_where(EVERYTHING, " or ".join(f"i == {number}" for number in range(20_000))))
    assert len(list(where.fields() if where is not None else ())) == 20_000
