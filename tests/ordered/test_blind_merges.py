"""Merges of a blind table: what they do without having read the row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from structable.spi import (
    Field,
    InvalidFieldError,
    Isolation,
    Range,
    Storage,
    StructuredTable,
    TableSpecification,
    TransactionConflictError,
    connect,
)

COUNTERS = TableSpecification(
    "counters",
    [Field.string("page"), Field.int("hits"), Field.byte("small"), Field.double("most")],
    ["page"],
    options={
        "merge-engine": "aggregation",
        "fields.hits.aggregate-function": "sum",
        "fields.small.aggregate-function": "sum",
        "fields.most.aggregate-function": "max",
        "remove-record-on-delete": "true",
    },
)
MOST = (1 << 31) - 1


@pytest.fixture(params=["memory", "leveldb"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    with connect("memory://" if request.param == "memory" else f"leveldb://{tmp_path}/store") as storage:
        storage.admin.create(COUNTERS)
        yield storage


@pytest.fixture
def table(storage: Storage) -> StructuredTable:
    return storage.table("counters")


def hits(table: StructuredTable) -> dict[str, object]:
    return {str(row.page): row.hits for row in table.scan()}


Merge = Callable[[StructuredTable, int], object]
MERGES: dict[str, Merge] = {
    "upsert": lambda table, amount: table.upsert({"page": "a", "hits": amount}),
    "upsert_many": lambda table, amount: table.upsert_many([{"page": "a", "hits": 0}, {"page": "a", "hits": amount}]),
    "apply_changes": lambda table, amount: table.apply_changes([("-U", {"page": "a", "hits": -amount})]),
}


@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize("exists", [False, True])
def test_overlapping_merges_all_commit(storage: Storage, merge: str, exists: bool, isolation: Isolation) -> None:
    table = storage.table("counters")
    if exists:
        table.upsert({"page": "a", "hits": 5})
    transactions = [storage.transaction(isolation) for _ in range(4)]
    for number, transaction in enumerate(transactions):
        MERGES[merge](transaction.table("counters"), 10**number)
    for transaction in transactions:
        transaction.commit()
    assert hits(table) == {"a": 1_116 if exists else 1_111}


def test_overflow_of_a_written_row_has_no_effect(storage: Storage, table: StructuredTable) -> None:
    with storage.transaction() as tx:
        inside = tx.table("counters")
        inside.replace({"page": "a", "hits": MOST})
        for pages in ("ba", "a"):
            with pytest.raises(InvalidFieldError, match="hits"):
                inside.upsert_many([{"page": page, "hits": 1} for page in pages])
    assert hits(table) == {"a": MOST}


def test_overflow_found_by_a_read_is_raised_again_by_the_commit(storage: Storage, table: StructuredTable) -> None:
    table.upsert({"page": "a", "hits": MOST})
    tx = storage.transaction()
    tx.table("counters").upsert({"page": "a", "hits": 1})
    with pytest.raises(InvalidFieldError, match="hits"):
        tx.table("counters").read(("a",))
    with pytest.raises(InvalidFieldError, match="hits"):
        tx.commit()
    assert hits(table) == {"a": MOST}


def test_operands_that_fit_one_after_the_other_only(storage: Storage, table: StructuredTable) -> None:
    table.upsert({"page": "a", "small": -128})
    with storage.transaction() as tx:
        for _ in range(2):
            tx.table("counters").upsert({"page": "a", "small": 120})
    row = table.read(("a",))
    assert row is not None
    assert row.small == 112


def test_change_that_deletes_is_a_write(storage: Storage, table: StructuredTable) -> None:
    table.upsert({"page": "a", "hits": 5})
    one, other = storage.transaction(), storage.transaction()
    one.table("counters").upsert({"page": "a", "hits": 1})
    other.table("counters").apply_changes([("+U", {"page": "a", "hits": 1}), ("-D", {"page": "a"})])
    assert hits(other.table("counters")) == {}
    one.commit()
    with pytest.raises(TransactionConflictError):
        other.commit()
    assert hits(table) == {"a": 6}


def test_reads_and_writes_see_the_merges_of_the_transaction(storage: Storage, table: StructuredTable) -> None:
    table.upsert_many([{"page": page, "hits": 1} for page in "abc"])
    with storage.transaction() as tx:
        inside = tx.table("counters")
        inside.upsert_many([{"page": page, "hits": 10} for page in "bcd"])
        assert hits(inside) == {"a": 1, "b": 11, "c": 11, "d": 10}
        assert [row.hits for row in inside.multi_read([("d",), ("a",), ("b",)])] == [1, 11, 10]
        assert inside.count() == 4
        assert inside.compare_and_swap(("b",), "hits", 11, 50)
        assert inside.delete_all(Range.prefix(("c",))) == 1
        inside.update({"page": "d", "hits": 7})
        inside.upsert({"page": "d", "hits": 1})
    assert hits(table) == {"a": 1, "b": 50, "d": 8}
