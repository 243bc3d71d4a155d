"""Threads on one `Storage`: committed data stays consistent under concurrency."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import pytest

from structable.spi import (
    Isolation,
    RecordExistsError,
    Storage,
    StructuredTable,
    Transaction,
    TransactionConflictError,
    col,
)

from .bank import check_books, open_bank, transfer
from .case import ConformanceCase
from .samples import ITEMS, item, keys

Result = TypeVar("Result")

BOTH = pytest.mark.parametrize("isolation", list(Isolation), ids=lambda level: level.value)


def at_once(number: int, work: Callable[[int], Result]) -> list[Result]:
    """Run `work` in several threads, begun together, and return the results; the first error is raised."""
    barrier = threading.Barrier(number)

    def begin(worker: int) -> Result:
        barrier.wait()
        return work(worker)

    with ThreadPoolExecutor(number) as pool:
        return [future.result() for future in [pool.submit(begin, worker) for worker in range(number)]]


def insist(call: Callable[[], Result]) -> Result:
    """Repeat a call of the auto-commit view until it succeeds, however contended it is.

    The view may give up, as `run` does, when its deadline is over; nothing was committed then. Giving up at once means
    that it did not retry.
    """
    while True:
        began = time.monotonic()
        try:
            return call()
        except TransactionConflictError:
            assert time.monotonic() - began > 0.01, "the auto-commit view did not retry a conflict"


class ThreadCases(ConformanceCase):
    """A `Storage` is safe to share between threads."""

    @BOTH
    def test_bank_in_threads(self, storage: Storage, isolation: Isolation) -> None:
        """In every snapshot the sum of all accounts is the same and the index matches; no transfer is lost."""
        open_bank(storage)
        done = threading.Event()
        working = threading.Semaphore(0)

        def work(worker: int) -> int:
            if worker == 0:
                checks = 0
                while not done.is_set():
                    storage.run(check_books, isolation=isolation, read_only=True, max_attempts=1000)
                    checks += 1
                    if all(working.acquire(blocking=False) for _ in range(3)):
                        done.set()
                return checks
            try:
                for number in range(self.stress_rounds):
                    self.run(storage, partial(transfer, seed=number * 10 + worker), isolation)
            finally:
                working.release(3)
            return 0

        assert at_once(4, work)[0] > 0
        touched = storage.run(check_books, read_only=True)
        assert touched == 2 * 3 * self.stress_rounds

    def run(self, storage: Storage, body: Callable[[Transaction], None], isolation: Isolation) -> None:
        """Run a body until it succeeds, however contended it is."""
        storage.run(body, isolation=isolation, max_attempts=10_000, deadline=120.0)

    def test_counters(self, storage: Storage) -> None:
        """Concurrent increments are all counted, alone and together with other writes of a transaction."""
        storage.admin.create(ITEMS)

        def count(worker: int) -> None:
            for number in range(self.stress_rounds):
                insist(lambda: storage.table("items").increment((1,), "n"))

                def body(transaction: Transaction, number: int = number) -> None:
                    transaction.table("items").increment((1,), "rank", 2)
                    transaction.table("items").upsert({"id": 1000 * (worker + 1) + number})

                self.run(storage, body, Isolation.SNAPSHOT)

        at_once(4, count)
        total = 4 * self.stress_rounds
        assert storage.table("items").read((1,)) == item(1, n=total, rank=2 * total)
        assert storage.table("items").count() == 1 + total

    def test_read_modify_write(self, storage: Storage) -> None:
        """No update is lost: threads that read a value and write the next one count every time."""
        storage.admin.create(ITEMS)
        storage.table("items").insert({"id": 1, "n": 0})

        def add(transaction: Transaction) -> None:
            row = transaction.table("items").read((1,))
            assert row is not None
            transaction.table("items").update({"id": 1, "n": int(str(row["n"])) + 1})

        def work(worker: int) -> None:
            for _ in range(self.stress_rounds):
                self.run(storage, add, Isolation.SNAPSHOT)

        at_once(4, work)
        assert storage.table("items").read((1,)) == item(1, n=4 * self.stress_rounds)

    def test_write_skew_in_threads(self, storage: Storage) -> None:
        """Under SERIALIZABLE, of rows that must not all be off, at least one stays on, however the threads run."""
        storage.admin.create(ITEMS)
        table = storage.table("items")

        def leave(worker: int) -> None:
            def body(transaction: Transaction) -> None:
                inside = transaction.table("items")
                if inside.count(where=col("tag") == "on duty") > 1:
                    inside.upsert({"id": worker, "tag": "off"})

            self.run(storage, body, Isolation.SERIALIZABLE)

        for _ in range(self.stress_rounds // 3):
            table.upsert_many([{"id": number, "tag": "on duty"} for number in range(3)])
            at_once(3, leave)
            assert len(keys(table.scan_index("tag", "on duty"))) == 1

    def test_one_insert_wins(self, storage: Storage) -> None:
        """One of several concurrent inserts of a key wins; the others get `RecordExistsError`."""
        storage.admin.create(ITEMS)
        for number in range(self.stress_rounds // 3):

            def insert(worker: int, number: int = number) -> bool:
                try:
                    storage.table("items").insert({"id": number, "n": worker})
                except RecordExistsError:
                    return False
                return True

            assert at_once(4, insert).count(True) == 1
        assert storage.table("items").count() == self.stress_rounds // 3

    def test_one_compare_and_swap_wins(self, storage: Storage) -> None:
        """`compare_and_swap` is atomic: of threads that use it to take a lock exactly one succeeds."""
        storage.admin.create(ITEMS)
        table = storage.table("items")
        for number in range(self.stress_rounds // 3):

            def take(worker: int, number: int = number) -> bool:
                return table.compare_and_swap((number,), "n", None, worker)

            taken = at_once(4, take)
            assert taken.count(True) == 1
            row = table.read((number,))
            assert row is not None
            assert row["n"] == taken.index(True)

    def test_upserts_of_distinct_keys_in_threads(self, storage: Storage) -> None:
        """Under SNAPSHOT, upserts of distinct keys never conflict: each thread succeeds at its first attempt."""
        storage.admin.create(ITEMS)

        def upsert(worker: int) -> None:
            for number in range(self.stress_rounds):
                with storage.transaction() as transaction:
                    table = transaction.table("items")
                    table.upsert({"id": number * 8 + worker, "tag": "shared", "rank": number % 3})
                    table.upsert({"id": -(number * 8 + worker) - 1, "tag": "shared"})

        at_once(8, upsert)
        assert len(keys(storage.table("items").scan_index("tag", "shared"))) == 16 * self.stress_rounds

    def test_open_transactions_of_many_threads(self, storage: Storage) -> None:
        """32 transactions are open at once, each in a separate thread; all their writes are kept."""
        storage.admin.create(ITEMS)
        barrier = threading.Barrier(32)

        def write(worker: int) -> None:
            with storage.transaction() as transaction:
                table = transaction.table("items")
                assert table.count() == 0
                barrier.wait(60)
                table.upsert({"id": worker, "tag": "a"})
                barrier.wait(60)

        at_once(32, write)
        assert keys(storage.table("items").scan_index("tag", "a")) == [(number,) for number in range(32)]

    def test_iterables_outlast_retries(self, storage: Storage) -> None:
        """Iterables are consumed before the first attempt: a retry of the view writes the same rows again."""
        storage.admin.create(ITEMS)

        def write(worker: int) -> None:
            field = ("n", "rank", "cost")[worker]
            for number in range(self.stress_rounds):
                insist(partial(self.upsert_three, storage.table("items"), field, number))
                row = storage.table("items").read((2,))
                assert row is not None
                assert row[field] == number

        at_once(3, write)

    def upsert_three(self, table: StructuredTable, field: str, number: int) -> None:
        """Write three rows that come from an iterator."""
        table.upsert_many({"id": key, field: number} for key in range(3))

    def test_readers_among_writers(self, storage: Storage) -> None:
        """A reader sees all of a transaction's writes or none, in scans of the view and of a transaction."""
        storage.admin.create(ITEMS)
        table = storage.table("items")
        table.upsert_many([{"id": number, "n": 0, "rank": 0} for number in range(20)])

        def work(worker: int) -> None:
            if worker == 0:
                for number in range(1, self.stress_rounds + 1):
                    with storage.transaction() as transaction:
                        transaction.table("items").upsert_many(
                            [{"id": key, "n": number, "rank": number} for key in range(20)]
                        )
                return
            for _ in range(self.stress_rounds):
                self.assert_one_version(table)
                with storage.transaction(read_only=True) as transaction:
                    self.assert_one_version(transaction.table("items"))

        at_once(3, work)

    def assert_one_version(self, table: StructuredTable) -> None:
        """Check that all rows, by whichever path, are of one commit."""
        assert len({row["n"] for row in table.scan()}) == 1
        assert len({row["n"] for row in table.scan(order_by="rank")}) == 1
        assert len({row["n"] for row in table.multi_read([(key,) for key in range(20)])}) == 1
