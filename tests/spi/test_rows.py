"""Errors name the field and the value of a bad key, row or change. The rules themselves are in the suite."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any, cast

import pytest

from structable.spi import Field, InvalidFieldError, TableSpecification, Value
from structable.spi.authors import check_columns, check_default, check_key, check_row, incremented

ITEMS = TableSpecification(
    "items",
    [Field.string("kind"), Field.int("number"), Field.string("status"), Field.bytes("body")],
    ["kind", "number"],
    ["status"],
)
ROW: dict[str, Value] = {"kind": "a", "number": 1, "status": None}
PROBLEMS: dict[str, Callable[[], object]] = {
    r"has 1 values; the key is \(kind, number\)": lambda: check_key(ITEMS, ("a",)),
    "is neither a tuple nor a mapping": lambda: check_key(ITEMS, ["a", 1]),
    "field 'number': is missing in the key": lambda: check_key(ITEMS, defaultdict(str, {"kind": "a"})),
    "field 'status': is not a key field": lambda: check_key(ITEMS, {"kind": "a", "number": 1, "status": "x"}),
    "field 'number': is part of the primary key and must not be null": lambda: check_key(ITEMS, ("a", None)),
    "field 'number': '1' is of type str; an int is needed": lambda: check_key(ITEMS, ("a", "1")),
    "field 'number': is part of the primary key and is missing": lambda: check_row(ITEMS, {"kind": "a"}),
    "field 'colour': is not a field; the fields are kind, number, status, body": lambda: check_row(
        ITEMS, {**ROW, "colour": "red"}
    ),
    "field '5': is not a field": lambda: check_row(ITEMS, {**ROW, cast(str, 5): "red"}),
    "field 'kind': is part of the primary key and must not be null": lambda: check_row(ITEMS, {**ROW, "kind": None}),
    "is not a mapping of field names to values": lambda: check_row(ITEMS, [ROW]),
    "the default is for 2, the row for 1": lambda: check_default(ITEMS, ROW, {"number": 2}),
    "field 'n': 1 incremented by 127 overflows 8 bits": lambda: incremented("items", Field.byte("n"), 1, 127),
    "very many digits": lambda: check_columns(ITEMS, cast(Any, [10**5_000])),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_refusal_names_the_problem(problem: str) -> None:
    with pytest.raises(InvalidFieldError, match=problem):
        PROBLEMS[problem]()
