"""Rules of the size of a transaction: one limit, the same in every store and every process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from structable.spi import (
    Field,
    Range,
    Storage,
    StructuredTable,
    TableSpecification,
    Transaction,
    UnsupportedOperationError,
    WriteMode,
)
from structable.spi.arrow import rows_to_batches
from structable.spi.authors import lowered_limit

from .case import Begin, ConformanceCase
from .clients import StoreProcess
from .feed_case import with_feed
from .samples import Record

LIMIT = 100_000

LARGE = TableSpecification("large", [Field.string("k"), Field.bytes("b"), Field.long("n")], ["k"])


def rows(count: int, first: int = 0) -> list[Record]:
    """Return rows of a little more than a tenth of the limit each, in all their fields."""
    return [{"k": f"{number:04}", "b": bytes(LIMIT // 10), "n": 1} for number in range(first, first + count)]


def _upsert(table: StructuredTable) -> None:
    for row in rows(10):
        table.upsert(row)


def _replace(table: StructuredTable) -> None:
    for row in rows(10):
        table.replace({"k": row["k"], "b": row["b"]})


def _insert(table: StructuredTable) -> None:
    for row in rows(10):
        table.insert(row)


def _update(table: StructuredTable) -> None:
    for row in rows(10):
        table.update({"k": row["k"], "b": row["b"]}, {})


def _swap(table: StructuredTable) -> None:
    for row in rows(10):
        table.compare_and_swap((row["k"],), "b", None, row["b"])


def _increment(table: StructuredTable) -> None:
    for number in range(60):
        table.increment((f"{number:02}" + 1_900 * "k",), "n")


def _update_all(table: StructuredTable) -> None:
    table.upsert_many([{"k": f"{number:04}", "n": 1} for number in range(50)])
    table.update_all(Range.all(), {"b": bytes(LIMIT // 50)})


WRITES: dict[str, Callable[[StructuredTable], None]] = {
    "upsert": _upsert,
    "upsert_many": lambda table: table.upsert_many(rows(10)),
    "upsert_many of many rows": lambda table: table.upsert_many(
        [{"k": f"{number:04}", "b": bytes(LIMIT // 300), "n": 1} for number in range(300)]
    ),
    "upsert_many of fields": lambda table: table.upsert_many([{"k": row["k"], "b": row["b"]} for row in rows(10)]),
    "replace": _replace,
    "insert": _insert,
    "update": _update,
    "compare_and_swap": _swap,
    "increment": _increment,
    "update_all": _update_all,
}


class TransactionSizeRules(ConformanceCase):
    """A transaction writes at most 2 GiB; more is `UnsupportedOperationError`, and nothing is written."""

    @pytest.mark.parametrize("kind", WRITES)
    def test_too_large_a_transaction_is_refused(self, storage: Storage, begin: Begin, kind: str) -> None:
        """Keys and values of any call count; the write or the commit rejects them."""
        storage.admin.create(LARGE)
        transaction = begin()
        with lowered_limit(LIMIT):
            with pytest.raises(UnsupportedOperationError, match=f"over the limit of {LIMIT:,}"):
                self._write_and_commit(transaction, WRITES[kind])
            assert not transaction.closed
            transaction.rollback()
            assert storage.table("large").count() == 0
            with storage.transaction() as after:
                after.table("large").upsert_many(rows(8))
        assert storage.table("large").count() == 8

    @staticmethod
    def _write_and_commit(transaction: Transaction, write: Callable[[StructuredTable], None]) -> None:
        write(transaction.table("large"))
        transaction.commit()

    def test_refusal_ends_a_block_and_run_once(self, storage: Storage) -> None:
        """A `with` block is rolled back, `run` does not repeat the body, and an auto-commit call writes nothing."""
        storage.admin.create(LARGE)
        bodies: list[int] = []

        def body(transaction: Transaction) -> None:
            bodies.append(1)
            _upsert(transaction.table("large"))

        with lowered_limit(LIMIT):
            with pytest.raises(UnsupportedOperationError), storage.transaction() as left:
                _upsert(left.table("large"))
            assert left.closed
            with pytest.raises(UnsupportedOperationError):
                storage.run(body)
            with pytest.raises(UnsupportedOperationError):
                storage.table("large").upsert_many(rows(10))
        assert bodies == [1]
        assert storage.table("large").count() == 0

    def test_all_tables_count_together(self, storage: Storage, begin: Begin) -> None:
        """The limit counts all tables of a transaction together; a failed commit does not mix the rows of tables."""
        names = ("large", "other")
        for name in names:
            storage.admin.create(TableSpecification(name, LARGE.fields, LARGE.primary_key))
        transaction = begin()

        def write() -> None:
            for place, name in enumerate(names):
                for row in rows(6, first=100 * place):
                    transaction.table(name).upsert(row)
            transaction.commit()

        with lowered_limit(LIMIT), pytest.raises(UnsupportedOperationError):
            write()
        assert [row["k"] for row in transaction.table("large").scan()] == [row["k"] for row in rows(6)]
        transaction.rollback()
        assert [storage.table(name).count() for name in names] == [0, 0]

    @pytest.mark.parametrize("producer", ["lookup", "input"])
    def test_refused_call_is_in_no_feed(self, storage: Storage, begin: Begin, producer: str) -> None:
        """A feed has exactly the table's rows, whichever call or commit was refused."""
        self.require("change_feeds")
        storage.admin.create(with_feed(LARGE, producer))
        transaction = begin()
        with lowered_limit(LIMIT):
            with suppress(UnsupportedOperationError):
                _upsert(transaction.table("large"))
            with suppress(UnsupportedOperationError):
                transaction.commit()
        transaction.rollback()
        with storage.changes("large").read() as changes:
            assert [change.row["k"] for change in changes] == [row["k"] for row in storage.table("large").scan()]

    def test_refused_changes_do_nothing(self, storage: Storage, begin: Begin) -> None:
        """`apply_changes` that puts and deletes does both or nothing."""
        self.require("table_types")
        storage.admin.create(LARGE)
        doomed: list[Record] = [{"k": f"{number:04}{'k' * 1_500}"} for number in range(30)]
        storage.table("large").upsert_many(doomed)
        transaction = begin()
        with lowered_limit(LIMIT):
            with suppress(UnsupportedOperationError):
                transaction.table("large").apply_changes(
                    [*(("+I", row) for row in rows(9)), *(("-D", row) for row in doomed)]
                )
            with suppress(UnsupportedOperationError):
                transaction.commit()
        transaction.rollback()
        assert storage.table("large").count() in (9, 30)

    def test_every_process_refuses(self, storage_url: str, storage: Storage) -> None:
        """The limit holds in a process that is a client of another, too."""
        self.require("multi_process")
        storage.admin.create(LARGE)
        client = StoreProcess(storage_url, "obey")
        try:
            assert client.next() == "ready"
            assert client.ask("upsert_below_limit", "large", rows(8), LIMIT) is None
            assert "over the limit" in client.ask("upsert_below_limit", "large", rows(10, first=8), LIMIT)
            assert storage.table("large").count() == 8
        finally:
            client.close()

    def test_write_job_has_no_limit(self, storage: Storage) -> None:
        """A write job commits any number of rows at once."""
        storage.admin.create(LARGE)
        with lowered_limit(LIMIT):
            job = storage.begin_write("large", mode=WriteMode.UPSERT, job_id=self.fresh_id())
            storage.commit_write(job, [storage.stage(job, 0, 0, rows_to_batches(LARGE, rows(30)))])
        assert storage.table("large").count() == 30
