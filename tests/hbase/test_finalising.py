"""Transactions are marked as finalised in batches, and again when HBase refuses the marks."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from typing import cast

import pytest

from structable.backends.hbase.txn import finaliser
from structable.backends.hbase.upkeep.rounds import RoundReport
from structable.spi import Field, Storage, StorageUnavailableError, TableSpecification, connect
from tests.waiting import until

from .support.fake_gateway import FakeGateway
from .support.internals import drained, engine_of

_TABLE = TableSpecification("t", [Field.int("k"), Field.long("n")], ["k"])
_FAR = 3600.0


@pytest.fixture
def fake() -> Iterator[FakeGateway]:
    with FakeGateway() as fake:
        yield fake


@pytest.fixture
def storage(fake: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    """Return a storage without clean-up, which never marks transactions as finalised by the clock."""
    monkeypatch.setattr(finaliser, "MARK_DELAY", _FAR)
    with connect(f"hbase://127.0.0.1:{fake.port}/p?housekeeping={_FAR:g}&session_timeout={_FAR:g}") as storage:
        storage.admin.create(_TABLE)
        drained(storage)
        fake.calls.clear()
        yield storage


def inspected(storage: Storage) -> RoundReport:
    return engine_of(storage).janitor.inspect()


def write(storage: Storage, count: int) -> None:
    for number in range(count):
        storage.table("t").upsert({"k": number, "n": number})


def test_many_transactions_are_marked_by_one_call(storage: Storage, fake: FakeGateway) -> None:
    before = inspected(storage).finalised
    write(storage, 20)
    assert inspected(storage).unfinalised == 20
    assert len(engine_of(storage).transactions.session.holders) == 20
    drained(storage)
    assert fake.calls.count("mutateRows") == 1
    assert (inspected(storage).unfinalised, inspected(storage).finalised) == (0, before + 20)
    assert len(engine_of(storage).transactions.session.holders) == 0


def test_the_number_of_unmarked_transactions_is_bounded(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finaliser, "MOST_UNMARKED", 5)
    write(storage, 50)
    until(lambda: engine_of(storage).transactions.finaliser.backlog < 5)
    assert inspected(storage).unfinalised < 5


def test_close_marks_finalised_transactions(storage: Storage, fake: FakeGateway) -> None:
    write(storage, 3)
    storage.close()
    assert fake.calls.count("mutateRows") == 1
    with connect(f"hbase://127.0.0.1:{fake.port}/p") as other:
        assert inspected(other).unfinalised == 0


def test_marks_that_fail_are_written_again(
    storage: Storage, fake: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then the session holds the transactions; their rows are in place and are not written again."""
    monkeypatch.setattr(finaliser, "MARK_DELAY", 0.0)
    refusing = True
    error = "org.apache.hadoop.hbase.DoNotRetryIOException: no"
    fake.fault = lambda api, _number: error if refusing and api == "mutateRows" else None
    write(storage, 3)
    until(lambda: fake.calls.count("mutateRows") >= 2)
    assert inspected(storage).unfinalised == 3
    assert len(engine_of(storage).transactions.session.holders) == 3
    refusing = False
    drained(storage)
    assert inspected(storage).unfinalised == 0
    assert len(engine_of(storage).transactions.session.holders) == 0
    # Record, intents and rows of each.
    assert fake.calls.count("mutateRowsTs") == 3 * 3


def test_marks_fit_the_smallest_frame() -> None:
    """For any number of them, and any size of the transactions."""
    options = f"transport=framed&frame_limit=131072&housekeeping={_FAR:g}&session_timeout={_FAR:g}"
    with FakeGateway(framed=True) as framed, connect(f"hbase://127.0.0.1:{framed.port}/p?{options}") as storage:
        storage.admin.create(TableSpecification("t", [Field.string("k")], ["k"]))
        for number in range(100):
            storage.table("t").upsert({"k": f"{number:1900}"})
        drained(storage)
        assert inspected(storage).unfinalised == 0


def test_marks_are_written_while_rows_cannot_be(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disabled table, for example, does not keep transactions on other tables held or unfinalised."""
    own = engine_of(storage).transactions.finaliser
    write(storage, 1)
    until(lambda: not own.waiting)
    with monkeypatch.context() as patch:

        def refuse(*_: object) -> None:
            raise StorageUnavailableError("the table is disabled")

        patch.setattr(own, "resolve", refuse)
        patch.setattr(finaliser, "MOST_UNMARKED", 1)
        write(storage, 1)
        until(lambda: not own.unmarked)
        assert inspected(storage).unfinalised == 1
    drained(storage)
    assert inspected(storage).unfinalised == 0


def test_commits_beside_the_thread(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions that end while the thread takes the next ones do not end it."""
    write(storage, 1)
    drained(storage)
    own = engine_of(storage).transactions.finaliser
    batches = itertools.count()
    interval = sys.getswitchinterval()
    with monkeypatch.context() as patch:
        patch.setattr(own, "_finalise", lambda batch: next(batches))
        try:
            sys.setswitchinterval(1e-6)  # seconds for which a thread may run before another one
            while next(batches) < 20_000:
                own.add(cast("finaliser.EndedTransaction", None))
        finally:
            sys.setswitchinterval(interval)
        until(lambda: not own.waiting)
