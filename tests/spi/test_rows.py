"""The keys, rows and changes that a table accepts."""

from collections import defaultdict
from typing import cast

import pytest

from structable.spi import (
    Field,
    FieldSizeLimitError,
    InvalidFieldError,
    TableSpecification,
    Value,
    check_changes,
    check_columns,
    check_key,
    check_row,
)
from structable.spi.rules.changes import check_default, check_increment, check_swap, incremented

ITEMS = TableSpecification(
    "items",
    [Field.string("kind"), Field.int("number"), Field.string("status"), Field.bytes("body")],
    ["kind", "number"],
    ["status"],
)


@pytest.mark.parametrize("key", [("a", 1), {"kind": "a", "number": 1}, {"number": 1, "kind": "a"}])
def test_keys_are_tuples_or_mappings(key: object) -> None:
    assert check_key(ITEMS, key) == ("a", 1)


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (("a",), r"has 1 values; the key is \(kind, number\)"),
        (["a", 1], "is neither a tuple nor a mapping"),
        ({"kind": "a"}, "field 'number': is missing in the key"),
        (defaultdict(str, {"kind": "a"}), "field 'number': is missing in the key"),
        ({"kind": "a", "number": 1, "status": "x"}, "field 'status': is not a key field"),
        (("a", None), "field 'number': is part of the primary key and must not be null"),
        (("a", "1"), "field 'number': '1' is of type str; an int is needed"),
    ],
)
def test_other_keys_are_refused(key: object, problem: str) -> None:
    with pytest.raises(InvalidFieldError, match=problem):
        check_key(ITEMS, key)


def test_rows_name_the_whole_key_and_known_fields() -> None:
    row = {"kind": "a", "number": 1, "status": None}
    assert check_row(ITEMS, row) == row
    for wrong, problem in (
        ({"kind": "a"}, "field 'number': is part of the primary key and is missing"),
        (defaultdict(str, {"kind": "a"}), "field 'number': is part of the primary key and is missing"),
        ({**row, "colour": "red"}, "field 'colour': is not a field; the fields are kind, number, status, body"),
        ({**row, cast(str, 5): "red"}, "field '5': is not a field"),
        ({**row, "kind": None}, "field 'kind': is part of the primary key and must not be null"),
        ([row], "is not a mapping of field names to values"),
    ):
        with pytest.raises(InvalidFieldError, match=problem):
            check_row(ITEMS, wrong)


@pytest.mark.parametrize(
    ("row", "limit"),
    [
        ({"kind": "a" * 1_997}, 2_000),
        ({"status": "a" * 2_001}, 2_000),
        ({"kind": "a" * 996, "status": "a" * 1_501}, 2_500),
        ({"body": bytes(8 * 2**20)}, 8 * 2**20),
    ],
)
def test_sizes_over_a_limit_are_refused(row: dict[str, Value], limit: int) -> None:
    whole = {"kind": "a", "number": 1, **row}
    with pytest.raises(FieldSizeLimitError) as error:
        check_row(ITEMS, whole)
    assert error.value.limit == limit
    (name, value), *_ = row.items()
    assert isinstance(value, str | bytes)
    assert check_row(ITEMS, {**whole, name: value[: len(value) - (error.value.size - limit)]})


def test_changes_leave_the_key_alone() -> None:
    assert check_changes(ITEMS, {"status": "x", "body": None}) == {"status": "x", "body": None}
    for wrong in ({"kind": "b"}, {"colour": "red"}, {"status": 5}, ["status"]):
        with pytest.raises(InvalidFieldError):
            check_changes(ITEMS, wrong)


def test_defaults_are_for_the_same_key() -> None:
    row: dict[str, Value] = {"kind": "a", "number": 1, "status": "x"}
    assert check_default(ITEMS, row, {"body": b""}) == {"kind": "a", "number": 1, "body": b""}
    with pytest.raises(InvalidFieldError, match="the default is for 2, the row for 1"):
        check_default(ITEMS, row, {"number": 2})


def test_swaps_check_both_values() -> None:
    assert check_swap(ITEMS, "status", None, "x") == (None, "x")
    for name, expected, value in (("kind", "a", "b"), (["status"], "a", "b"), ("status", 1, "b"), ("status", "a", 1)):
        with pytest.raises(InvalidFieldError):
            check_swap(ITEMS, name, expected, value)


def test_increments_are_of_integers_and_do_not_overflow() -> None:
    counters = TableSpecification("counters", [Field.string("id"), Field.byte("n"), Field.double("x")], ["id"])
    field, amount = check_increment(counters, "n", 127)
    assert incremented("counters", field, None, amount) == 127
    with pytest.raises(InvalidFieldError, match="field 'n': 1 incremented by 127 overflows 8 bits"):
        incremented("counters", field, 1, amount)
    for name, wrong in (("n", 128), ("n", True), ("n", 1.0), ("x", 1), ("id", 1), ("colour", 1), (5, 1)):
        with pytest.raises(InvalidFieldError):
            check_increment(counters, name, wrong)


def test_columns_are_names_each_once() -> None:
    assert check_columns(ITEMS, None) is None
    assert check_columns(ITEMS, iter(["status", "kind", "status"])) == ("status", "kind")
    wrong: list[object] = [[["kind"]], [1], [10**5_000], 5, "kind", b"kind", []]
    for columns in wrong:
        with pytest.raises(InvalidFieldError):
            check_columns(ITEMS, columns)  # type: ignore[arg-type]
