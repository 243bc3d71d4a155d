"""`upsert_many` of many new rows, which are copied in chunks, and of rows that cannot be copied."""

from collections.abc import Iterator
from typing import Any

import pytest

from structable.spi import (
    Field,
    FieldSizeLimitError,
    InvalidFieldError,
    Storage,
    StructuredTable,
    TableSpecification,
    connect,
)
from structable.spi.authors import MAX_KEY_SIZE

Rows = list[dict[str, Any]]

SPEC = TableSpecification("t", [Field.string("k"), Field.long("n"), Field.string("s"), Field.boolean("b")], ["k"])
MANY = 5_000


@pytest.fixture
def storage(postgresql_url: str) -> Iterator[Storage]:
    with connect(postgresql_url) as storage:
        storage.admin.create(SPEC)
        yield storage


def make(count: int, n: int = 0) -> Rows:
    return [{"k": f"{number:06}", "n": n + number, "s": "x" * (number % 50), "b": True} for number in range(count)]


def found(table: StructuredTable) -> Rows:
    return [dict(row) for row in table.scan()]


@pytest.mark.parametrize("count", [100, 101, 325, 326, 1_000, MANY])
def test_all_rows_arrive(storage: Storage, count: int) -> None:
    rows = make(count)
    rows[count // 2] |= {"s": None, "b": None}
    rows[-1] |= {"n": None}
    storage.table("t").upsert_many(rows)
    assert found(storage.table("t")) == rows


@pytest.mark.parametrize("place", [0, 99, 100, 2_345, MANY - 1])
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"n": "1"}, InvalidFieldError),
        ({"s": "a\0b"}, InvalidFieldError),
        ({"k": "x" * (MAX_KEY_SIZE + 1)}, FieldSizeLimitError),
        ({"more": 1}, InvalidFieldError),
    ],
    ids=["type", "zero", "size", "unknown"],
)
def test_a_row_that_does_not_fit_leaves_nothing(
    storage: Storage, place: int, wrong: dict[str, Any], error: type[Exception]
) -> None:
    rows = make(MANY)
    rows[place] |= wrong
    with storage.transaction() as tx:
        tx.table("t").upsert({"k": "before", "n": 1})
        with pytest.raises(error):
            tx.table("t").upsert_many(rows)
        tx.table("t").upsert({"k": "later", "n": 2})
    assert [row["k"] for row in found(storage.table("t"))] == ["before", "later"]


@pytest.mark.parametrize("place", [1, 100, 2_345, MANY - 1])
def test_a_key_that_comes_again_changes_what_it_left(storage: Storage, place: int) -> None:
    rows = make(MANY)
    rows[place] |= {"k": "000000", "n": -1}
    storage.table("t").upsert_many(rows)
    assert found(storage.table("t")) == [rows[place], *rows[1:place], *rows[place + 1 :]]


@pytest.mark.parametrize("place", [0, 100, MANY - 1])
def test_rows_that_are_there_are_changed(storage: Storage, place: int) -> None:
    rows = make(MANY)
    storage.table("t").upsert_many(rows[place : place + 1])
    changed = make(MANY, n=7)
    storage.table("t").upsert_many(changed)
    assert found(storage.table("t")) == changed


def test_rows_of_some_fields_among_whole_ones(storage: Storage) -> None:
    rows = make(MANY)
    del rows[2_345]["s"]
    storage.table("t").upsert_many(rows)
    assert found(storage.table("t")) == [{"s": None} | row for row in rows]


def test_rows_larger_than_one_chunk(storage: Storage) -> None:
    rows = make(120)
    rows[3]["s"] = rows[110]["s"] = "y" * (3 << 20)
    storage.table("t").upsert_many(rows)
    assert found(storage.table("t")) == rows
