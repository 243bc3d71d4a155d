"""Each transaction is counted once as it begins and once as it ends, on every store."""

import gc
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from structable.spi import (
    InvalidFieldError,
    Isolation,
    RecordNotFoundError,
    Storage,
    Transaction,
    TransactionClosedError,
    TransactionConflictError,
    connect,
)
from structable.spi._store_metrics import StoreMeter
from structable.testing.conformance.interruptions import InterruptedByTestError, _Tracer

from .conftest import ITEMS
from .sdk import Metrics

ENDS = ("committed", "conflicted", "unavailable", "unknown", "rolled_back")


@pytest.fixture
def counted(storage: Storage, metrics: Metrics) -> Iterator[dict[str, int]]:
    """Count what a test does; it fills the dictionary with the numbers that it expects."""
    before = metrics.transactions()
    expected: dict[str, int] = {}
    yield expected
    gc.collect()
    after = metrics.transactions()
    assert {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)} == expected


def test_committed(storage: Storage, metrics: Metrics, counted: dict[str, int]) -> None:
    with storage.transaction() as transaction:
        transaction.table("items").upsert({"id": 2, "n": 1})
    with storage.transaction(read_only=True) as reading:
        reading.table("items").read((1,))
    transaction = storage.transaction()
    transaction.table("items").upsert({"id": 3, "n": 1})
    transaction.commit()
    with pytest.raises(TransactionClosedError):
        transaction.commit()
    transaction.rollback()
    counted |= {"begun": 3, "committed": 3}
    ended = metrics.numbers("structable.transactions.committed", "table", "access")
    assert (ended["items", "write"], ended["items", "read"]) == (3, 1)  # one of them the fixture's
    assert metrics.number("structable.commit.duration", operation="commit", table="items") == 3
    assert metrics.number("structable.read.duration", operation="read", table="items") == 1


def test_rolled_back(storage: Storage, counted: dict[str, int]) -> None:
    with pytest.raises(ZeroDivisionError), storage.transaction() as transaction:
        transaction.table("items").upsert({"id": 2, "n": 1 // 0})
    transaction = storage.transaction()
    transaction.table("items").upsert({"id": 2, "n": 1})
    transaction.rollback()
    transaction.rollback()
    dropped = storage.transaction()
    dropped.table("items").upsert({"id": 2, "n": 1})
    del dropped
    with pytest.raises(RecordNotFoundError):
        storage.table("items").update({"id": 2, "n": 1})
    with pytest.raises(InvalidFieldError):
        storage.table("items").upsert({"id": "two"})
    counted |= {"begun": 5, "rolled_back": 5}


def test_interrupted_body(storage: Storage, counted: dict[str, int]) -> None:
    def body(transaction: Transaction) -> None:
        transaction.table("items").upsert({"id": 2, "n": 1})
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        storage.run(body)
    counted |= {"begun": 1, "rolled_back": 1}


def _write_and_commit(transaction: Transaction) -> None:
    transaction.table("items").upsert({"id": 1, "n": 8})
    transaction.commit()


@pytest.mark.parametrize("leave", ["commit", "rollback", "drop", "with"])
def test_conflicted(storage: Storage, counted: dict[str, int], leave: str) -> None:
    """A conflict is counted as one, wherever it comes up and however the transaction is left then."""
    loser = storage.transaction(Isolation.SERIALIZABLE)
    loser.table("items").read((1,))
    storage.table("items").upsert({"id": 1, "n": 7})
    if leave == "with":
        with pytest.raises(TransactionConflictError), loser:
            loser.table("items").upsert({"id": 1, "n": 8})
    else:
        with pytest.raises(TransactionConflictError):
            _write_and_commit(loser)
        if leave == "commit" and not loser.closed:
            with pytest.raises(TransactionConflictError):
                loser.commit()
        elif leave == "rollback":
            loser.rollback()
    del loser
    counted |= {"begun": 2, "committed": 1, "conflicted": 1}


def test_retried_by_run(storage: Storage, metrics: Metrics, counted: dict[str, int]) -> None:
    attempts = 0

    def body(transaction: Transaction) -> None:
        nonlocal attempts
        attempts += 1
        transaction.table("items").read((1,))
        if attempts < 3:
            storage.table("items").upsert({"id": 1, "n": attempts})
        transaction.table("items").upsert({"id": 1, "n": 10})

    storage.run(body, isolation=Isolation.SERIALIZABLE)
    counted |= {"begun": 5, "committed": 3, "conflicted": 2, "retried": 2}
    assert metrics.number("structable.transactions.retried", access="write", table="") == 0


def test_retried_by_an_auto_commit_call(storage: Storage, metrics: Metrics) -> None:
    """Attempts inside of the store are transactions as well, and the sum of all ends is the number that began."""

    def work(worker: int) -> None:
        for _ in range(20):
            storage.table("items").compare_and_swap((1,), "n", worker, worker)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    found = metrics.transactions()
    assert found["committed"] == 1 + 80
    assert found.get("retried", 0) == found.get("conflicted", 0)
    assert found["begun"] == sum(found.get(end, 0) for end in ENDS)


def test_each_kind_of_auto_commit_call(storage: Storage, metrics: Metrics, counted: dict[str, int]) -> None:
    table = storage.table("items")
    table.upsert({"id": 2, "n": 2})
    table.insert_many([{"id": 3, "n": 3}, {"id": 4, "n": 4}])
    table.increment((1,), "n")
    assert table.read((2,)) is not None
    assert len(table.multi_read([(2,), (3,)])) == 2
    assert table.count() == 4
    assert len(list(table.scan())) == 4
    with table.scan() as begun:
        next(begun)
    table.scan().close()  # no first row: no time
    assert table.specification == ITEMS
    assert table.update_many([]) == []
    counted |= {"begun": 9, "committed": 9}
    assert metrics.numbers("structable.read.duration", "operation") == {
        ("read",): 1,
        ("multi_read",): 1,
        ("count",): 1,
        ("scan",): 2,
    }
    assert metrics.number("structable.commit.duration", operation="auto_commit", table="items") == 3


def test_scan_of_no_rows_has_a_time(storage: Storage, metrics: Metrics) -> None:
    with storage.transaction() as transaction:
        rows = transaction.table("items").scan(where=None, limit=1)
        assert len(list(rows)) == 1
        assert list(rows) == []
    assert metrics.number("structable.read.duration", operation="scan") == 1
    storage.table("items").delete((1,))
    assert list(storage.table("items").scan()) == []
    assert metrics.number("structable.read.duration", operation="scan") == 2


def test_write_job(storage: Storage, metrics: Metrics, counted: dict[str, int]) -> None:
    job = storage.begin_write("items", mode="upsert", job_id="nightly")
    staged = storage.stage(job, 0, 0, [pa.RecordBatch.from_pydict({"id": [5, 6], "n": [1, 1]})])
    assert storage.commit_write(job, [staged])
    assert not storage.commit_write(job, [staged])
    plan = storage.plan_scan("items") if storage.capabilities.multi_process else None
    if plan is not None:
        with plan:
            assert sum(batch.num_rows for split in plan.splits for batch in storage.read_split(split)) == 3
    counted |= {"begun": 2, "committed": 2}
    assert metrics.number("structable.commit.duration", operation="commit_write", table="items") == 2


def test_transaction_of_several_tables_has_no_table(storage: Storage, metrics: Metrics) -> None:
    storage.admin.create(type(ITEMS)("other", ITEMS.fields, ["id"]))
    with storage.transaction() as transaction:
        for name in ("items", "other"):
            transaction.table(name).upsert({"id": 1, "n": 1})
    assert metrics.numbers("structable.transactions.committed", "table", access="write") == {("items",): 1, ("",): 1}


def test_read_only_storage_is_measured(storage: Storage, storage_url: str, metrics: Metrics) -> None:
    if storage_url.startswith("leveldb"):
        storage.close()
    before = metrics.number("structable.transactions.committed", access="read")
    with connect(storage_url, read_only=True) as reader:
        assert reader.table("items").count() == 1
        assert reader.run(lambda transaction: transaction.table("items").count()) == 1
    assert metrics.number("structable.transactions.committed", access="read") - before == 2
    assert metrics.number("structable.transactions.committed", access="write") >= 1


@pytest.mark.parametrize("storage_url", ["memory"], indirect=True)
def test_an_interrupted_scan_loses_no_row(storage: Storage, metrics: Metrics, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the time to the first row cannot be recorded, the second row does not come in the place of the first."""
    storage.table("items").upsert_many([{"id": number, "n": number} for number in range(3)])

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with storage.transaction(read_only=True) as transaction, transaction.table("items").scan() as rows:
        with monkeypatch.context() as patch:
            patch.setattr(StoreMeter, "read", interrupted)
            with pytest.raises(KeyboardInterrupt):
                next(rows)
        with pytest.raises(TransactionClosedError):
            next(rows)


def in_a_transaction(storage: Storage, number: int) -> None:
    with storage.transaction() as transaction:
        transaction.table("items").upsert({"id": 1, "n": number})


def in_one_call(storage: Storage, number: int) -> None:
    storage.table("items").upsert({"id": 1, "n": number})


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it may hit a finaliser
@pytest.mark.parametrize("work", [in_a_transaction, in_one_call])
@pytest.mark.parametrize("storage_url", ["memory"], indirect=True)
def test_interrupted_anywhere(storage: Storage, metrics: Metrics, work: Callable[[Storage, int], None]) -> None:
    """Whatever an interruption hits, what began has ended; and what was written counts as committed, or as unknown."""
    gc.freeze()  # collecting then takes no longer than what the test itself has made
    try:
        points = _interrupt_at_points(storage, metrics, work)
    finally:
        gc.unfreeze()
    assert points > 30


def _interrupt_at_points(storage: Storage, metrics: Metrics, work: Callable[[Storage, int], None]) -> int:
    """Return the number of points, each of which was interrupted once."""
    number = 0
    while True:
        number += 1
        tracer = _Tracer(frozenset({"structable"}), number)
        before = metrics.transactions()
        sys.settrace(tracer.enter)
        try:
            work(storage, number)
        except InterruptedByTestError:
            sys.settrace(None)
        else:
            sys.settrace(None)
            return number
        gc.collect()
        after = metrics.transactions()
        ended = {end: after.get(end, 0) - before.get(end, 0) for end in ENDS}
        assert sum(ended.values()) == after["begun"] - before["begun"] <= 1, tracer.where
        row = storage.table("items").read((1,))
        assert row is not None
        if row["n"] == number:
            assert ended["committed"] + ended["unknown"] == 1, tracer.where
