"""Documents: equal values are equal texts, what JSON lacks is refused, and merging follows RFC 7386."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from structable.datasets import DocumentError
from structable.datasets.records.documents import Document, merged

ANY = Document("table", "field", Any)


def test_equal_values_are_equal_texts() -> None:
    assert ANY.encode({"b": [1, {"d": 2, "c": 3}], "a": None}) == '{"a":null,"b":[1,{"c":3,"d":2}]}'
    assert ANY.encode({"a": 1, "b": 2}) == ANY.encode({"b": 2, "a": 1})
    sets = Document("table", "field", set[str])
    assert sets.encode({"x", "y", "z"}) == '["x","y","z"]'


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, Decimal("NaN"), Decimal("Infinity")], ids=str)
def test_not_a_number_is_refused(number: object) -> None:
    for value in (number, [number], {"a": {"b": [number]}}):
        with pytest.raises(DocumentError, match="field"):
            ANY.encode(value)
    with pytest.raises(DocumentError):
        ANY.merge("{}", {"a": number})


def test_words_that_look_like_it_are_kept() -> None:
    assert ANY.decode(ANY.encode({"nan": "Infinity", "x": None})) == {"nan": "Infinity", "x": None}


def test_nul_travels() -> None:
    text = ANY.encode({"a": "\0"})
    assert "\0" not in text
    assert ANY.decode(text) == {"a": "\0"}


def test_value_of_other_type_is_refused() -> None:
    with pytest.raises(DocumentError):
        Document("table", "field", dict[str, int]).encode({"a": "b"})
    with pytest.raises(DocumentError):
        ANY.encode(object())


def test_integer_keys() -> None:
    numbers = Document("table", "field", dict[int, str])
    assert numbers.decode(numbers.encode({2: "b", 1: "a"})) == {1: "a", 2: "b"}


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [  # RFC 7386, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch(target: object, patch: object, result: object) -> None:
    assert merged(target, patch) == result


def test_merge_keeps_unknown_members() -> None:
    known = Document("table", "field", dict[str, object])
    assert known.merge('{"new":{"x":1},"old":2}', {"old": 3}) == '{"new":{"x":1},"old":3}'
    assert known.merge(None, {"a": 1}) == '{"a":1}'
    with pytest.raises(DocumentError):
        known.merge("{}", [1])  # type: ignore[arg-type]
