"""Merges of blind tables on HBase: intents that readers fold, and versions that merges have made."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from structable.backends.hbase.failpoints import failpoints
from structable.spi import (
    Field,
    FieldSizeLimitError,
    InvalidFieldError,
    Storage,
    StructuredTable,
    TableSpecification,
    TransactionConflictError,
    connect,
    read_split,
)
from structable.spi.authors import MAX_ROW_SIZE

from .support.bank import quick
from .support.internals import drained, hold_finaliser

TABLE = TableSpecification(
    "t",
    [Field.int("k"), Field.byte("n"), Field.long("total"), Field.double("most")],
    ["k"],
    options={
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "fields.total.aggregate-function": "sum",
        "fields.most.aggregate-function": "max",
    },
)
MOST = 2**63 - 1
UPDATES = int(os.environ.get("STRUCTABLE_TEST_HOT_UPDATES", "2000"))


@pytest.fixture
def storage(hbase_url: str) -> Iterator[Storage]:
    with connect(quick(hbase_url)) as storage:
        storage.admin.create(TABLE)
        yield storage


@pytest.fixture(params=["versions", "intents"])
def finalised(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether committed values become versions, or stay intents."""
    if request.param == "intents":
        hold_finaliser(monkeypatch)
    return bool(request.param == "versions")


def settle(storage: Storage, finalised: bool) -> None:
    if finalised:
        drained(storage)


def row(storage: Storage) -> tuple[object, ...] | None:
    with storage.transaction(read_only=True) as tx:
        found = tx.table("t").read((0,))
    return None if found is None else (found.n, found.total, found.most)


def test_overlapping_merges_of_processes_all_commit(storage: Storage, hbase_url: str, finalised: bool) -> None:
    with connect(quick(hbase_url)) as other:
        for exists in (False, True):
            transactions = [one.transaction() for one in (storage, other, other, storage)]
            for number, tx in enumerate(transactions):
                assert tx.table("t").count() == exists
                tx.table("t").upsert({"k": 0, "total": 10**number, "most": float(number)})
            for tx in transactions:
                tx.commit()
            settle(storage, finalised)
            settle(other, finalised)
            assert row(storage) == row(other) == (None, 2_222 if exists else 1_111, 3.0)
        table = other.table("t")
        found = table.read((0,))
        assert found is not None
        assert found.total == 2_222


def test_steps_of_two_kinds_conflict(storage: Storage, finalised: bool) -> None:
    """Also where the row is a version made by steps of the kind that came last, and of the other before."""
    for first, second in (("merge", "increment"), ("increment", "merge")):
        storage.table("t").replace({"k": 0, "total": 0})
        settle(storage, finalised)
        early = storage.transaction()
        assert early.table("t").count() == 1
        later = []
        for kind in (first, second):
            with storage.transaction() as tx:
                step(tx.table("t"), kind)
            settle(storage, finalised)
            tx = storage.transaction()
            assert tx.table("t").count() == 1
            later.append((kind, tx))
        # Of the kind of the newest: those that began after the last of the other kind may commit.
        step(early.table("t"), second)
        with pytest.raises(TransactionConflictError):
            early.commit()
        (_, before), (_, after) = later
        step(before.table("t"), first)
        with pytest.raises(TransactionConflictError):
            before.commit()
        step(after.table("t"), second)
        after.commit()
        settle(storage, finalised)
        assert row(storage) == (None, 3, None)


def step(table: StructuredTable, kind: str) -> None:
    if kind == "merge":
        table.upsert({"k": 0, "total": 1})
    else:
        table.increment((0,), "total")


@pytest.mark.parametrize("kind", ["merge", "increment"])
def test_steps_after_a_deletion(storage: Storage, finalised: bool, kind: str) -> None:
    """The row counts as absent, also while its deletion is an intent."""
    storage.table("t").replace({"k": 0, "total": 7})
    settle(storage, finalised)
    storage.table("t").delete((0,))
    with storage.transaction() as tx:
        step(tx.table("t"), kind)
    settle(storage, finalised)
    assert row(storage) == (None, 1, None)


def test_write_and_merge_conflict(storage: Storage, finalised: bool) -> None:
    for merge_first in (True, False):
        storage.table("t").replace({"k": 0, "total": 0})
        settle(storage, finalised)
        one, other = storage.transaction(), storage.transaction()
        for tx in (one, other):
            assert tx.table("t").count() == 1
        (one if merge_first else other).table("t").upsert({"k": 0, "total": 1})
        (other if merge_first else one).table("t").replace({"k": 0, "total": 1})
        one.commit()
        with pytest.raises(TransactionConflictError):
            other.commit()
        assert row(storage) == (None, 1, None)


def test_no_order_of_commits_overflows(storage: Storage, finalised: bool) -> None:
    """Two merges that fit alone and not together are never both committed, whoever is the first."""
    storage.table("t").replace({"k": 0, "n": 100})
    settle(storage, finalised)
    one, other = storage.transaction(), storage.transaction()
    for tx in (one, other):
        assert tx.table("t").count() == 1
        tx.table("t").upsert({"k": 0, "n": 20})
    one.commit()
    with pytest.raises((InvalidFieldError, TransactionConflictError)):
        other.commit()
    assert row(storage) == (120, None, None)
    storage.table("t").upsert({"k": 0, "n": -120})
    for _ in range(2):
        storage.table("t").upsert({"k": 0, "n": 60})
    with pytest.raises(InvalidFieldError, match="'n'"):
        storage.table("t").upsert({"k": 0, "n": 8})
    assert row(storage) == (120, None, None)


def test_pending_increments_count_in_the_size_of_a_row(hbase_url: str) -> None:
    """Two increments of nulls that fit alone: while one is pending the other conflicts, afterwards it does not fit."""
    table = TableSpecification("t", [Field.int("k"), Field.string("text"), Field.long("a"), Field.long("b")], ["k"])
    with connect(quick(hbase_url)) as storage:
        storage.admin.create(table)
        storage.table("t").replace({"k": 0, "text": "t" * (MAX_ROW_SIZE - 4 - 12)})

        def increment_the_other() -> None:
            del failpoints["before_commit"]
            with pytest.raises(TransactionConflictError, match="together"), storage.transaction() as tx:
                tx.table("t").increment((0,), "b")

        with storage.transaction() as tx:
            tx.table("t").increment((0,), "a")
            failpoints["before_commit"] = increment_the_other
        with pytest.raises(FieldSizeLimitError):
            storage.table("t").increment((0,), "b")
        assert [(found.a, found.b) for found in storage.table("t").scan(columns=["a", "b"])] == [(1, None)]


@pytest.mark.parametrize("kind", ["merge", "increment"])
@pytest.mark.parametrize(("older", "newer"), [(MOST, 1), (1, MOST)])
def test_step_over_a_value_that_is_still_an_intent(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, kind: str, older: int, newer: int
) -> None:
    """An overflow is found although the row itself holds an older value, and none is found where there is none."""
    storage.table("t").replace({"k": 0, "total": older})
    drained(storage)
    hold_finaliser(monkeypatch)
    storage.table("t").replace({"k": 0, "total": newer})
    tx = storage.transaction()
    step(tx.table("t"), kind)
    if newer == MOST:
        with pytest.raises(InvalidFieldError, match="'total'"):
            tx.commit()
        assert row(storage) == (None, MOST, None)
    else:
        tx.commit()
        assert row(storage) == (None, 2, None)


def test_a_split_has_the_values_of_operands(hbase_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(quick(hbase_url)) as storage:
        storage.admin.create(TABLE)
        storage.table("t").upsert_many([{"k": k, "total": k} for k in range(50)])
        hold_finaliser(monkeypatch)
        storage.table("t").upsert_many([{"k": k, "total": 1_000} for k in range(25, 75)])
        found: dict[object, object] = {}
        with storage.plan_scan("t", splits=2) as plan:
            for split in plan.splits:
                for batch in read_split(hbase_url, split):
                    found |= dict(zip(batch["k"].to_pylist(), batch["total"].to_pylist(), strict=True))
    assert found == {k: (k if k < 50 else 0) + (1_000 if k >= 25 else 0) for k in range(75)}


def test_hot_row(hbase_url: str) -> None:
    """Threads and processes merge into one row; none loses a merge, none is aborted, and it stays readable."""
    threads, each = 8, UPDATES // 8
    patient = quick(hbase_url, session_timeout=60)  # heartbeats of a busy machine are late
    with connect(patient) as storage, connect(patient) as other, ThreadPoolExecutor(threads) as pool:
        storage.admin.create(TABLE)

        def work(number: int) -> int:
            for done in range(each):
                with (storage, other)[number % 2].transaction() as tx:
                    tx.table("t").upsert({"k": 0, "total": 1, "most": float(done)})
                if done % 50 == 0:
                    assert row(other) is not None
            return each

        total = sum(pool.map(work, range(threads)))
        assert row(storage) == row(other) == (None, total, float(each - 1))
        drained(storage)
        drained(other)
        assert row(storage) == (None, total, float(each - 1))
