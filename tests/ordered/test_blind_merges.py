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
    Value,
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


BAD: list[dict[str, Value]] = [
    {"page": "a", "hits": "x"},
    {"page": "a", "hits": MOST + 1},
    {"hits": 1},
    {"page": "a", "nobody": 1},
]
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


@pytest.mark.parametrize("merge", MERGES)
def test_merge_and_increment_conflict(storage: Storage, merge: str) -> None:
    for merge_first in (True, False):
        one, other = storage.transaction(), storage.transaction()
        MERGES[merge]((one if merge_first else other).table("counters"), 1)
        (other if merge_first else one).table("counters").increment(("a",), "hits")
        one.commit()
        with pytest.raises(TransactionConflictError):
            other.commit()


@pytest.mark.parametrize("many", [False, True])
def test_merge_with_an_increment_is_a_write(storage: Storage, many: bool) -> None:
    """In one transaction, in either order; other rows stay as they are."""

    def increment(table: StructuredTable) -> None:
        if many:
            table.increment_many([(("a",), "hits", 1), (("b",), "hits", 1)])
        else:
            table.increment(("a",), "hits")

    def merge(table: StructuredTable) -> None:
        table.upsert_many([{"page": "a", "hits": 10}, {"page": "c", "hits": 10}])

    for steps in ((increment, merge), (merge, increment)):
        with storage.transaction() as tx:
            for step in steps:
                step(tx.table("counters"))
            assert hits(tx.table("counters"))["a"] in (11, 22)
    assert hits(storage.table("counters")) == {"a": 22, "c": 20, **({"b": 2} if many else {})}


def test_merge_of_a_written_row_is_that_write(storage: Storage) -> None:
    with storage.transaction() as tx:
        table = tx.table("counters")
        table.replace({"page": "a", "hits": 5, "most": 1.5})
        table.upsert({"page": "a", "hits": 1, "most": 1.0})
        table.upsert({"page": "b", "hits": 1})
        table.delete(("b",))
        table.upsert({"page": "b", "hits": 2})
    assert hits(storage.table("counters")) == {"a": 6, "b": 2}
    one, other = storage.transaction(), storage.transaction()
    one.table("counters").upsert({"page": "b", "hits": 1})
    other.table("counters").replace({"page": "b", "hits": 1})
    other.table("counters").upsert({"page": "b", "hits": 1})
    one.commit()
    with pytest.raises(TransactionConflictError):
        other.commit()


def test_overflow_at_the_commit_writes_nothing(storage: Storage, table: StructuredTable) -> None:
    table.upsert({"page": "a", "hits": MOST})
    tx = storage.transaction()
    tx.table("counters").upsert_many([{"page": "a", "hits": 1}, {"page": "b", "hits": 1}])
    with pytest.raises(InvalidFieldError, match="hits"):
        tx.commit()
    assert hits(table) == {"a": MOST}


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


def test_refused_row_changes_nothing(storage: Storage) -> None:
    with storage.transaction() as tx:
        table = tx.table("counters")
        for bad in BAD:
            with pytest.raises(InvalidFieldError):
                table.upsert(bad)
            with pytest.raises(InvalidFieldError):
                table.upsert_many([{"page": "b", "hits": 1}, bad])
            with pytest.raises(InvalidFieldError):
                table.apply_changes([("+I", {"page": "b", "hits": 1}), ("+U", bad)])
        assert hits(table) == {}


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


def test_table_with_an_index_is_not_blind(storage: Storage) -> None:
    storage.admin.create_or_update(COUNTERS.evolve(indexes=["hits"]))
    one, other = storage.transaction(), storage.transaction()
    for transaction in (one, other):
        transaction.table("counters").upsert({"page": "a", "hits": 1})
    one.commit()
    with pytest.raises(TransactionConflictError):
        other.commit()
    assert [row.page for row in storage.table("counters").scan_index("hits", 1)] == ["a"]
