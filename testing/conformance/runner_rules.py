"""Rules of `run`, and of the limit on open transactions and scans."""

from __future__ import annotations

import math
import os
import pickle
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import pytest

from structable.spi import (
    Isolation,
    RecordExistsError,
    RowIterator,
    Storage,
    StorageUnavailableError,
    StructuredTable,
    Transaction,
    TransactionConflictError,
    UnsupportedOperationError,
    connect,
)

from .case import ConformanceCase
from .concurrency import insist
from .samples import ITEMS, item, keys, plain

BOTH = pytest.mark.parametrize("isolation", list(Isolation), ids=lambda level: level.value)


class RunnerRules(ConformanceCase):
    """Which errors are retried, how often, and which are not."""

    @pytest.fixture
    def counted(self, storage: Storage) -> StructuredTable:
        """Return the auto-commit view of ITEMS with row 1."""
        storage.admin.create(ITEMS)
        storage.table("items").insert({"id": 1, "n": 0})
        return storage.table("items")

    def disturbed(self, counted: StructuredTable, times: int, attempts: list[int]) -> Callable[[Transaction], str]:
        """Return a body that adds to row 1, with another transaction coming between, the first `times` times."""

        def body(transaction: Transaction) -> str:
            attempts.append(len(attempts))
            table = transaction.table("items")
            row = table.read((1,))
            assert row is not None
            if len(attempts) <= times:
                counted.upsert({"id": 1, "note": f"attempt {len(attempts)}"})
            table.upsert({"id": 1, "n": int(str(row["n"])) + 1})
            return "result"

        return body

    @BOTH
    def test_run_returns_what_the_body_returns(
        self, storage: Storage, counted: StructuredTable, isolation: Isolation
    ) -> None:
        """`run` runs the body in a transaction, commits it, and returns its result."""
        attempts: list[int] = []
        assert storage.run(self.disturbed(counted, 0, attempts), isolation=isolation) == "result"
        assert attempts == [0]
        assert counted.read((1,)) == item(1, n=1)

    @BOTH
    def test_run_retries_conflicts(self, storage: Storage, counted: StructuredTable, isolation: Isolation) -> None:
        """A conflict is retried: the body runs again, in a new snapshot, until it commits, and counts once."""
        attempts: list[int] = []
        assert storage.run(self.disturbed(counted, 3, attempts), isolation=isolation) == "result"
        assert len(attempts) == 4
        assert counted.read((1,)) == item(1, n=1, note="attempt 3")

    def test_run_gives_up_after_max_attempts(self, storage: Storage, counted: StructuredTable) -> None:
        """The body runs at most `max_attempts` times; then the last conflict is raised."""
        attempts: list[int] = []
        with pytest.raises(TransactionConflictError):
            storage.run(self.disturbed(counted, 100, attempts), max_attempts=3)
        assert len(attempts) == 3
        assert counted.read((1,)) == item(1, n=0, note="attempt 3")

    def test_run_gives_up_after_the_deadline(self, storage: Storage, counted: StructuredTable) -> None:
        """No further attempt begins after `deadline` seconds; then the last conflict is raised."""
        attempts: list[int] = []
        with pytest.raises(TransactionConflictError):
            storage.run(self.disturbed(counted, 10**9, attempts), max_attempts=10**9, deadline=0.0)
        assert len(attempts) == 1
        started = time.monotonic()
        with pytest.raises(TransactionConflictError):
            storage.run(self.disturbed(counted, 10**9, attempts), max_attempts=10**9, deadline=0.3)
        assert time.monotonic() - started < 20
        assert len(attempts) >= 3

    def test_run_goes_on_until_the_deadline(self, storage: Storage, counted: StructuredTable) -> None:
        """Without `max_attempts` only the deadline decides; the last conflict names attempts and seconds."""
        attempts: list[int] = []
        assert storage.run(self.disturbed(counted, 10, attempts)) == "result"
        assert len(attempts) == 11
        attempts.clear()
        with pytest.raises(TransactionConflictError) as given_up:
            storage.run(self.disturbed(counted, 10**9, attempts), deadline=0.5)
        note = f"gave up after {len(attempts)} attempts in "
        assert [one for one in given_up.value.__notes__ if one.startswith(note) and "deadline=0.5 s" in one]
        attempts.clear()
        with pytest.raises(TransactionConflictError) as given_up:
            storage.run(self.disturbed(counted, 10**9, attempts), max_attempts=2)
        assert "gave up after 2 attempts" in str(given_up.value.__notes__)
        assert "max_attempts=2" in str(given_up.value.__notes__)
        assert pickle.loads(pickle.dumps(given_up.value)).__notes__ == given_up.value.__notes__

    @pytest.mark.parametrize(
        "limits",
        [
            {"max_attempts": 0},
            {"max_attempts": -1},
            {"max_attempts": 2.0},
            {"max_attempts": True},
            {"max_attempts": "3"},
            {"deadline": -0.1},
            {"deadline": math.nan},
            {"deadline": math.inf},
            {"deadline": True},
            {"deadline": None},
            {"deadline": "30"},
        ],
        ids=str,
    )
    def test_run_refuses_limits_that_are_none(
        self, storage: Storage, counted: StructuredTable, limits: dict[str, Any]
    ) -> None:
        """`max_attempts` is a whole number of at least 1 or None, `deadline` finite seconds; else `ValueError`."""
        attempts: list[int] = []
        with pytest.raises(ValueError, match=next(iter(limits))):
            storage.run(self.disturbed(counted, 0, attempts), **limits)
        assert attempts == []

    @BOTH
    def test_every_contender_gets_through(
        self, storage: Storage, counted: StructuredTable, isolation: Isolation
    ) -> None:
        """Of eight threads that read a row and write it, each commits before its deadline."""
        errors: list[BaseException] = []

        def add(transaction: Transaction) -> None:
            row = transaction.table("items").read((1,))
            assert row is not None
            transaction.table("items").upsert({"id": 1, "n": int(str(row["n"])) + 1})

        def work() -> None:
            try:
                for _ in range(rounds):
                    storage.run(add, isolation=isolation)
            except BaseException as error:
                errors.append(error)

        rounds = int(os.environ.get("STRUCTABLE_TEST_CONTENDER_ROUNDS", str(max(1, self.stress_rounds // 6))))
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert counted.read((1,)) == item(1, n=8 * rounds)

    def test_long_transaction_gets_through(self, storage: Storage, counted: StructuredTable) -> None:
        """A transaction that always conflicts with short ones goes first in the end, and they continue after it."""
        ended = threading.Event()
        errors: list[BaseException] = []

        def add(transaction: Transaction) -> None:
            row = transaction.table("items").read((1,))
            assert row is not None
            transaction.table("items").upsert({"id": 1, "n": int(str(row["n"])) + 1})

        def shorts() -> None:
            try:
                while not ended.is_set():
                    storage.run(add)
            except BaseException as error:
                errors.append(error)

        def long(transaction: Transaction) -> None:
            table = transaction.table("items")
            row = table.read((1,))
            assert row is not None
            before = int(str(row["n"]))
            until_changed = time.monotonic() + 0.2
            while time.monotonic() < until_changed and counted.read((1,)) == row:
                time.sleep(0.002)
            table.upsert({"id": 1, "n": before, "note": "long"})

        threads = [threading.Thread(target=shorts) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            storage.run(long, deadline=8.0)
        finally:
            ended.set()
            for thread in threads:
                thread.join()
        assert errors == []
        row = counted.read((1,))
        assert row is not None
        assert row["note"] == "long"

    def test_run_retries_a_swallowed_conflict(self, storage: Storage, counted: StructuredTable) -> None:
        """A conflict that the body swallowed is retried, too: it is never taken for a commit."""
        attempts: list[int] = []
        body = self.disturbed(counted, 2, attempts)

        def swallowing(transaction: Transaction) -> None:
            with suppress(TransactionConflictError):
                body(transaction)

        storage.run(swallowing)
        assert len(attempts) == 3
        assert counted.read((1,)) == item(1, n=1, note="attempt 2")

    @pytest.mark.parametrize(
        "error",
        [ValueError("x"), RecordExistsError("items", (1,)), ConnectionError("x"), KeyboardInterrupt()],
        ids=repr,
    )
    def test_run_does_not_retry_other_errors(
        self, storage: Storage, counted: StructuredTable, error: BaseException
    ) -> None:
        """Only structable's own errors are retried, and only those after which nothing was committed."""
        attempts: list[int] = []

        def failing(transaction: Transaction) -> None:
            attempts.append(1)
            transaction.table("items").upsert({"id": 2})
            raise error

        with pytest.raises(type(error)) as raised:
            storage.run(failing)
        assert raised.value is error
        assert attempts == [1]
        assert keys(counted.scan()) == [(1,)]

    def test_run_read_only(self, storage: Storage, counted: StructuredTable) -> None:
        """`run` with `read_only` rejects writes, and does not retry them."""
        attempts: list[int] = []
        with pytest.raises(UnsupportedOperationError):
            storage.run(self.disturbed(counted, 0, attempts), read_only=True)
        assert len(attempts) == 1
        assert storage.run(lambda transaction: transaction.table("items").count(), read_only=True) == 1

    def test_auto_commit_view_retries(self, counted: StructuredTable) -> None:
        """The auto-commit view runs each call like `run`: concurrent changes of one row are all committed."""
        changes = self.stress_rounds
        errors: list[BaseException] = []

        def change(name: str) -> None:
            try:
                for number in range(changes):
                    insist(partial(counted.upsert, {"id": 1, name: number}))
                    insist(partial(counted.increment, (1,), "n"))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=change, args=(name,)) for name in ("rank", "cost")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert counted.read((1,)) == item(1, n=2 * changes, rank=changes - 1, cost=float(changes - 1))

    def test_32_transactions_and_scans_are_open_at_once(self, storage_url: str) -> None:
        """At least 32 transactions and scans of one `Storage` may be open at once, each with its own snapshot."""
        with connect(storage_url, pool_timeout=0.5) as storage, ExitStack() as stack:
            storage.admin.create(ITEMS)
            items = storage.table("items")
            items.upsert({"id": -1})
            scans: list[RowIterator] = []
            transactions: list[Transaction] = []
            for number in range(31):
                if number % 2:
                    scans.append(stack.enter_context(items.scan()))
                    next(scans[-1])
                else:
                    transactions.append(storage.transaction())
                    stack.callback(transactions[-1].rollback)
                    assert transactions[-1].table("items").read((-1,)) is not None
                items.upsert({"id": number})  # the 32nd, for as long as it takes
            assert [len(list(rows)) for rows in scans] == list(range(1, 31, 2))
            counts = [transaction.table("items").count() for transaction in transactions]
            assert counts == list(range(1, 32, 2))

    def test_more_than_may_be_open_wait_and_fail(self, storage_url: str) -> None:
        """Further ones wait for `pool_timeout` seconds, then get `StorageUnavailableError`; a freed slot is used."""
        with connect(storage_url, pool_timeout=0.2) as storage, ExitStack() as stack:
            storage.admin.create(ITEMS)
            opened: list[Transaction] = []
            try:
                for _ in range(200):
                    transaction = storage.transaction()
                    stack.callback(transaction.rollback)
                    transaction.table("items").read((1,))
                    opened.append(transaction)
            except StorageUnavailableError:
                assert len(opened) >= 32
                for transaction in opened[:2]:
                    transaction.rollback()
                storage.table("items").upsert({"id": 1})
                assert plain(storage.table("items").scan()) == [item(1)]
