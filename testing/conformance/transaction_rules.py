"""Rules of transactions: their snapshot, their end, their errors, and the auto-commit view."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from structable.spi import (
    InvalidFieldError,
    Isolation,
    Range,
    Storage,
    StructuredTable,
    Transaction,
    TransactionClosedError,
    TransactionConflictError,
    UnsupportedOperationError,
)

from .case import Begin, ConformanceCase
from .samples import ITEMS, NOTED, item, keys, plain
from .write_rules import writes_of

BOTH = pytest.mark.parametrize("isolation", list(Isolation), ids=lambda level: level.value)

READS: dict[str, Callable[[StructuredTable], object]] = {
    "read": lambda table: table.read((1,)),
    "multi_read": lambda table: table.multi_read([(1,)]),
    "scan": lambda table: list(table.scan()),
    "multi_scan": lambda table: list(table.multi_scan([Range.all()])),
    "scan_index": lambda table: list(table.scan_index("tag", None)),
    "count": lambda table: table.count(),
}
"""Every operation that reads."""


class TransactionRules(ConformanceCase):
    """One snapshot, all or nothing, and nothing after the end."""

    @pytest.fixture
    def items(self, storage: Storage) -> StructuredTable:
        """Return the auto-commit view of ITEMS with row 1."""
        storage.admin.create(ITEMS)
        storage.table("items").insert({"id": 1, "n": 1})
        return storage.table("items")

    def writes(self, table: StructuredTable) -> list[Callable[[], object]]:
        """Return a call of each verb that writes and that the store has."""
        typed = self.capabilities.table_types
        return [write for verb, write in writes_of(table).items() if typed or verb != "apply_changes"]

    def uses(self, table: StructuredTable) -> list[Callable[[], object]]:
        """Return a call of each verb that writes or reads, and a look at the schema."""
        return [*self.writes(table), *(partial(read, table) for read in READS.values()), lambda: table.specification]

    @BOTH
    def test_commit_on_leaving(self, storage: Storage, items: StructuredTable, isolation: Isolation) -> None:
        """Leaving the `with` block commits: all writes become visible together, not before."""
        storage.admin.create(NOTED)
        with storage.transaction(isolation) as transaction:
            transaction.table("items").upsert({"id": 2})
            transaction.table("noted").upsert({"id": "2"})
            assert keys(items.scan()) == [(1,)]
            assert not transaction.closed
        assert transaction.closed
        assert keys(items.scan()) == [(1,), (2,)]
        assert keys(storage.table("noted").scan()) == [("2",)]

    @BOTH
    def test_roll_back_on_an_exception(self, storage: Storage, items: StructuredTable, isolation: Isolation) -> None:
        """An exception that leaves the body rolls back, and propagates unchanged."""
        error = ValueError("the caller's own")

        transaction = storage.transaction(isolation)

        def failing() -> None:
            with transaction:
                for write in self.writes(transaction.table("items")):
                    write()
                raise error

        with pytest.raises(ValueError, match="the caller's own") as raised:
            failing()
        assert raised.value is error
        assert transaction.closed
        assert plain(items.scan()) == [item(1, n=1)]

    def test_commit_and_rollback_without_with(self, begin: Begin, items: StructuredTable) -> None:
        """`commit` and `rollback` end a transaction without a `with` block; `rollback` is idempotent."""
        first, second = begin(), begin()
        first.table("items").upsert({"id": 2})
        second.table("items").upsert({"id": 3})
        first.commit()
        second.rollback()
        second.rollback()
        first.rollback()
        assert first.closed
        assert second.closed
        assert keys(items.scan()) == [(1,), (2,)]

    def test_commit_twice(self, begin: Begin, items: StructuredTable) -> None:
        """`commit` of a transaction that has ended is `TransactionClosedError`, whichever way it ended."""
        committed, rolled_back = begin(), begin()
        committed.table("items").upsert({"id": 2})
        committed.commit()
        rolled_back.rollback()
        for transaction in (committed, rolled_back):
            with pytest.raises(TransactionClosedError):
                transaction.commit()

    def test_end_inside_the_block(self, storage: Storage, items: StructuredTable) -> None:
        """Leaving the `with` block of a transaction that has already ended does nothing."""
        with storage.transaction() as transaction:
            transaction.table("items").upsert({"id": 2})
            transaction.commit()
        with storage.transaction() as transaction:
            transaction.table("items").upsert({"id": 3})
            transaction.rollback()
        assert keys(items.scan()) == [(1,), (2,)]

    def test_transaction_without_operations(self, storage: Storage) -> None:
        """A transaction that does nothing commits and rolls back like any other."""
        with storage.transaction():
            pass
        storage.transaction(read_only=True).commit()
        storage.transaction(Isolation.SERIALIZABLE).rollback()

    @pytest.mark.parametrize("end", ["commit", "rollback"])
    def test_use_after_the_end(self, begin: Begin, items: StructuredTable, end: str) -> None:
        """Any use of a transaction or its table after the transaction ended is `TransactionClosedError`."""
        transaction = begin()
        table = transaction.table("items")
        getattr(transaction, end)()
        with pytest.raises(TransactionClosedError):
            transaction.table("items")
        for use in self.uses(table):
            with pytest.raises(TransactionClosedError):
                use()
        assert plain(items.scan()) == [item(1, n=1)]

    @pytest.mark.parametrize("end", ["commit", "rollback"])
    def test_iterator_after_the_end(self, begin: Begin, items: StructuredTable, end: str) -> None:
        """Using an iterator after its transaction ended is `TransactionClosedError`: it never looks exhausted."""
        items.upsert_many([{"id": number, "tag": "a"} for number in range(100)])
        transaction = begin()
        table = transaction.table("items")
        iterators = [
            table.scan(),
            table.scan(reverse=True),
            table.multi_scan([Range.all()]),
            table.scan_index("tag", "a"),
        ]
        begun = table.scan()
        next(begun)
        getattr(transaction, end)()
        for rows in [*iterators, begun]:
            for _ in range(2):
                with pytest.raises(TransactionClosedError):
                    next(rows)
            rows.close()

    @BOTH
    def test_snapshot_is_not_older_than_its_begin(
        self, begin: Begin, items: StructuredTable, isolation: Isolation
    ) -> None:
        """The snapshot is taken no earlier than `transaction()`: earlier commits are visible."""
        items.upsert({"id": 1, "n": 10})
        transaction = begin(isolation)
        row = transaction.table("items").read((1,))
        assert row is not None
        assert row["n"] == 10

    @BOTH
    @pytest.mark.parametrize("first", [*READS, "upsert"])
    def test_snapshot_is_not_younger_than_the_first_operation(
        self, begin: Begin, items: StructuredTable, isolation: Isolation, first: str
    ) -> None:
        """The snapshot is taken no later than the first operation; all reads see that one state."""
        items.upsert_many([{"id": 2, "tag": "a"}, {"id": 3}])
        transaction = begin(isolation)
        table = transaction.table("items")
        if first == "upsert":
            table.upsert({"id": 7})
        else:
            READS[first](table)
        items.upsert_many([{"id": 1, "n": 2}, {"id": 2, "tag": None}, {"id": 4, "tag": "a"}])
        items.delete((3,))
        own = [item(7)] if first == "upsert" else []
        before = [item(1, n=1), item(2, tag="a"), item(3), *own]
        assert plain(table.scan()) == before
        assert plain(table.multi_read([(number,) for number in range(9)])) == before
        assert [table.read((number,)) for number in (1, 2, 3, 4)] == [*before[:3], None]
        assert plain(table.scan_index("tag", "a")) == [item(2, tag="a")]
        assert table.count() == len(before)

    @BOTH
    def test_own_writes_are_read(self, begin: Begin, items: StructuredTable, isolation: Isolation) -> None:
        """Reads see the transaction's own writes, in `read`, scans, index scans and counts alike; others do not."""
        table = begin(isolation).table("items")
        table.upsert_many([{"id": 2, "tag": "a"}, {"id": 1, "tag": "a"}])
        table.increment((3,), "n", 3)
        expected = [item(1, n=1, tag="a"), item(2, tag="a"), item(3, n=3)]
        assert plain(table.scan()) == expected
        assert [table.read(key) for key in ((1,), (2,), (3,))] == expected
        assert plain(table.multi_read([(3,), (1,)])) == [expected[0], expected[2]]
        assert plain(table.scan_index("tag", "a")) == expected[:2]
        assert (table.count(), table.count([Range.at_least((2,))])) == (3, 2)
        assert plain(items.scan()) == [item(1, n=1)]

    @BOTH
    def test_read_only_refuses_every_write(self, begin: Begin, items: StructuredTable, isolation: Isolation) -> None:
        """A write under `read_only=True` is `UnsupportedOperationError`, when called; the transaction continues."""
        transaction = begin(isolation, read_only=True)
        table = transaction.table("items")
        for write in writes_of(table).values():
            for _ in range(2):
                with pytest.raises(UnsupportedOperationError):
                    write()
        assert plain(table.scan()) == [item(1, n=1)]
        transaction.commit()
        assert plain(items.scan()) == [item(1, n=1)]

    @BOTH
    def test_read_only_reads_one_snapshot(self, begin: Begin, items: StructuredTable, isolation: Isolation) -> None:
        """A read-only transaction reads one snapshot, and commits."""
        transaction = begin(isolation, read_only=True)
        assert transaction.table("items").count() == 1
        items.upsert({"id": 2})
        for read in READS.values():
            read(transaction.table("items"))
        assert plain(transaction.table("items").scan()) == [item(1, n=1)]
        transaction.commit()

    def conflicting(self, begin: Begin, items: StructuredTable) -> Transaction:
        """Return a transaction that has read row 1, which another transaction has changed since."""
        transaction = begin()
        transaction.table("items").read((1,))
        items.upsert({"id": 1, "n": 100})
        return transaction

    def test_conflict_ends_in_the_error(self, begin: Begin, items: StructuredTable) -> None:
        """The transaction that loses gets `TransactionConflictError`, and none of its writes is kept."""
        transaction = self.conflicting(begin, items)

        def write_and_commit() -> None:
            transaction.table("items").upsert({"id": 2})
            transaction.table("items").upsert({"id": 1, "n": 2})
            transaction.commit()

        with pytest.raises(TransactionConflictError):
            write_and_commit()
        assert plain(items.scan()) == [item(1, n=100)]

    def test_swallowed_conflict_is_never_a_commit(self, begin: Begin, items: StructuredTable) -> None:
        """After a conflict, in a write or in `commit`, leaving without an exception raises the conflict again."""

        def swallowing(transaction: Transaction, *, commit: bool) -> None:
            with transaction, suppress(TransactionConflictError):
                transaction.table("items").upsert({"id": 1, "n": 2})
                if commit:
                    transaction.commit()

        for commit in (False, True):
            with pytest.raises(TransactionConflictError):
                swallowing(self.conflicting(begin, items), commit=commit)
            assert plain(items.scan()) == [item(1, n=100)]

    def test_after_a_conflict_only_leaving_is_left(self, begin: Begin, items: StructuredTable) -> None:
        """After a conflict the transaction can only be left: neither reads nor writes nor a commit succeed any more."""
        transaction = self.conflicting(begin, items)
        table = transaction.table("items")

        def write_and_commit() -> None:
            table.upsert({"id": 1, "n": 2})
            transaction.commit()

        with pytest.raises(TransactionConflictError):
            write_and_commit()
        for use in self.uses(table):
            with pytest.raises((TransactionConflictError, TransactionClosedError)):
                use()
        with pytest.raises((TransactionConflictError, TransactionClosedError)):
            transaction.table("items")
        with pytest.raises((TransactionConflictError, TransactionClosedError)):
            transaction.commit()
        transaction.rollback()
        assert transaction.closed

    def test_block_that_ends_in_a_conflict_is_left(self, begin: Begin, items: StructuredTable) -> None:
        """A transaction whose `with` block ended in a conflict is closed, as after any other end."""
        transaction = begin()

        def conflicting() -> None:
            with transaction:
                transaction.table("items").upsert({"id": 1, "n": 2})
                items.upsert({"id": 1, "n": 3})

        with pytest.raises(TransactionConflictError):
            conflicting()
        assert transaction.closed
        with pytest.raises(TransactionClosedError):
            transaction.table("items")

    def test_exception_after_a_conflict_comes_out(self, begin: Begin, items: StructuredTable) -> None:
        """An exception that leaves the body propagates unchanged, even after a conflict was swallowed."""
        error = KeyError("the caller's own")

        def swallow_and_fail(transaction: Transaction) -> None:
            with transaction:
                with suppress(TransactionConflictError):
                    transaction.table("items").upsert({"id": 1, "n": 2})
                raise error

        with pytest.raises(KeyError) as raised:
            swallow_and_fail(self.conflicting(begin, items))
        assert raised.value is error

    def test_bad_argument_does_not_end_a_transaction(self, storage: Storage, items: StructuredTable) -> None:
        """A call that raises has no effect, and the transaction continues."""
        with storage.transaction() as transaction:
            table = transaction.table("items")
            for _ in range(3):
                with pytest.raises(InvalidFieldError):
                    table.upsert({"id": 2, "n": "x"})
            table.upsert({"id": 3})
        assert keys(items.scan()) == [(1,), (3,)]

    def test_auto_commit_commits_each_call(self, begin: Begin, items: StructuredTable) -> None:
        """In the auto-commit view each call is a transaction: the next snapshot sees it."""
        for number, write in enumerate(self.writes(items)):
            items.upsert_many([{"id": 50, "n": number}, {"id": 1, "n": 1}])
            write()
            inside = begin(read_only=True)
            assert plain(inside.table("items").scan()) == plain(items.scan())
            inside.rollback()

    def test_auto_commit_scan_holds_a_snapshot(self, items: StructuredTable) -> None:
        """A scan of the auto-commit view holds a snapshot until it is exhausted, closed or collected."""
        items.upsert_many([{"id": number, "tag": "a"} for number in range(300)])
        before = [(number,) for number in range(300)]
        forth, back, tagged = items.scan(), items.scan(reverse=True), items.scan_index("tag", "a")
        assert next(forth).key == (0,)
        items.delete_all(Range((10,), (200,)))
        items.upsert({"id": 1000, "tag": "a"})
        assert keys(forth) == before[1:]
        assert keys(back) == before[::-1]
        assert keys(tagged) == before
        assert items.count() == 111

    def test_auto_commit_scans_free_what_they_hold(self, items: StructuredTable) -> None:
        """Scans that were exhausted, closed or dropped hold nothing: any number of them can follow one another."""
        items.upsert_many([{"id": number} for number in range(20)])
        for _ in range(60):
            assert len(list(items.scan())) == 20
            items.scan().close()
            with items.scan() as rows:
                next(rows)
            rows = items.scan()
            next(rows)
            del rows
            gc.collect(0)
