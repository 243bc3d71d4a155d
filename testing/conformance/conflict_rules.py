"""Rules of write-write conflicts: every kind of write against every other, and the cases without conflict."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from structable.spi import Isolation, Range, Storage, StructuredTable, col

from .case import ConformanceCase, OpenSession
from .interleaving import ConcurrentTransaction
from .samples import ITEMS, NOTED, item, keys, plain
from .worker import BLIND_WRITES

Write = Callable[[StructuredTable, int], object]

ON_A_ROW: dict[str, Write] = {
    "upsert": lambda table, key: table.upsert({"id": key, "n": 2}),
    "upsert of another field": lambda table, key: table.upsert({"id": key, "note": "x"}),
    "upsert_many": lambda table, key: table.upsert_many([{"id": key, "n": 2}]),
    "replace": lambda table, key: table.replace({"id": key, "n": 2}),
    "update": lambda table, key: table.update({"id": key, "cost": 1.0}),
    "delete": lambda table, key: table.delete((key,)),
    "increment": lambda table, key: table.increment((key,), "n"),
    "compare_and_swap": lambda table, key: table.compare_and_swap((key,), "n", 1, 2),
    "delete_all": lambda table, key: table.delete_all(Range.prefix((key,)), where=col("n") == 1),
    "update_all": lambda table, key: table.update_all(Range.prefix((key,)), {"note": "y"}, where=col("n") == 1),
}
"""Every kind of write of a row that exists, with n = 1."""

ON_NO_ROW: dict[str, Write] = {
    "insert": lambda table, key: table.insert({"id": key, "n": 2}),
    "upsert": lambda table, key: table.upsert({"id": key, "n": 2}),
    "upsert_many": lambda table, key: table.upsert_many([{"id": key, "tag": "a"}]),
    "replace": lambda table, key: table.replace({"id": key, "n": 2}),
    "update with default": lambda table, key: table.update({"id": key, "n": 2}, default={"note": "x"}),
    "increment": lambda table, key: table.increment((key,), "n"),
    "compare_and_swap": lambda table, key: table.compare_and_swap((key,), "n", None, 2),
}
"""Every kind of write of a row that does not exist."""

OUTSIDE = -1
"""The key of a row that no test writes: reading it takes the snapshot."""


def adding(amount: int) -> Write:
    """Return a write that adds to n."""
    return lambda table, key: table.increment((key,), "n", amount)


def tagging(tag: str) -> Write:
    """Return a write of both indexed fields: its own tag, and one rank for all."""
    return lambda table, key: table.upsert({"id": key, "tag": tag, "rank": 7})


class ConflictRules(ConformanceCase):
    """If two overlapping transactions write one row, the first to commit wins."""

    @pytest.fixture
    def contested(self, storage: Storage) -> StructuredTable:
        """Return the auto-commit view of ITEMS with a row that no test writes."""
        storage.admin.create(ITEMS)
        storage.table("items").insert({"id": OUTSIDE})
        return storage.table("items")

    def write(self, session: ConcurrentTransaction, write: Write, key: int) -> None:
        session.step(lambda transaction: write(transaction.table("items"), key))

    def both_write(
        self, session: OpenSession, isolation: Isolation, key: int, first: Write, second: Write
    ) -> str | None:
        """Let two transactions write one row before either commits, and return the error, if any."""
        one, two = session(isolation), session(isolation)
        one.read("items", (OUTSIDE,))
        two.read("items", (OUTSIDE,))
        self.write(one, first, key)
        self.write(two, second, key)
        committed = one.commit(), two.commit()
        return None if committed == (True, False) else f"committed: {committed}"

    def one_writes_after_the_other(
        self, session: OpenSession, isolation: Isolation, key: int, first: Write, second: Write
    ) -> str | None:
        """Let a transaction write a row that another one wrote and committed since its snapshot."""
        one, two = session(isolation), session(isolation)
        two.read("items", (OUTSIDE,))
        self.write(one, first, key)
        committed = [one.commit()]
        self.write(two, second, key)
        committed.append(two.commit())
        return None if committed == [True, False] else f"committed: {committed}"

    @pytest.mark.parametrize("first", list(ON_A_ROW))
    @pytest.mark.parametrize("order", ["both_write", "one_writes_after_the_other"])
    @pytest.mark.parametrize("isolation", list(Isolation), ids=lambda level: level.value)
    def test_writes_of_an_existing_row_conflict(
        self, session: OpenSession, contested: StructuredTable, first: str, order: str, isolation: Isolation
    ) -> None:
        """Every write of a row counts, whatever its kind and fields: any two conflict, except two increments."""
        wrong: dict[str, str] = {}
        for key, (second, write) in enumerate(ON_A_ROW.items()):
            if first == second == "increment":
                continue
            contested.replace({"id": key, "n": 1})
            problem = getattr(self, order)(session, isolation, key, ON_A_ROW[first], write)
            if problem:
                wrong[second] = problem
        assert wrong == {}, f"{first}, then"

    @pytest.mark.parametrize("first", list(ON_NO_ROW))
    @pytest.mark.parametrize("order", ["both_write", "one_writes_after_the_other"])
    @pytest.mark.parametrize("isolation", list(Isolation), ids=lambda level: level.value)
    def test_writes_of_an_absent_row_conflict(
        self, session: OpenSession, contested: StructuredTable, first: str, order: str, isolation: Isolation
    ) -> None:
        """Two transactions that make one row conflict; so does an insert of a key that another has just written."""
        wrong: dict[str, str] = {}
        for key, (second, write) in enumerate(ON_NO_ROW.items()):
            if first == second == "increment":
                continue
            problem = getattr(self, order)(session, isolation, key, ON_NO_ROW[first], write)
            if problem:
                wrong[second] = problem
        assert wrong == {}, f"{first}, then"

    @pytest.mark.parametrize("second", list(ON_A_ROW))
    def test_write_of_a_row_deleted_meanwhile_conflicts(
        self, session: OpenSession, contested: StructuredTable, second: str
    ) -> None:
        """A row that another transaction has deleted since conflicts like a changed one."""
        contested.upsert({"id": 1, "n": 1})
        one = session()
        one.read("items", (OUTSIDE,))
        contested.delete((1,))
        self.write(one, ON_A_ROW[second], 1)
        assert not one.commit()
        assert keys(contested.scan()) == [(OUTSIDE,)]

    @pytest.mark.parametrize("kind", list(BLIND_WRITES))
    @pytest.mark.parametrize("isolation", list(Isolation), ids=lambda level: level.value)
    def test_blind_write_counts_from_the_first_operation(
        self, session: OpenSession, storage: Storage, kind: str, isolation: Isolation
    ) -> None:
        """Commits of others after a transaction's first write conflict, even if it read nothing before."""
        storage.admin.create(NOTED)
        table = storage.table("noted")
        table.upsert_many([{"id": "a", "n": 1}, {"id": "b", "n": 1}])
        one = session(isolation)
        one.step(lambda transaction: BLIND_WRITES[kind](transaction.table("noted"), "a"))
        table.upsert({"id": "b", "n": 5})
        one.step(lambda transaction: BLIND_WRITES[kind](transaction.table("noted"), "b"))
        assert not one.commit()
        assert plain(table.scan(columns=["id", "n"])) == [{"id": "a", "n": 1}, {"id": "b", "n": 5}]

    def test_row_deleted_and_made_again_conflicts(self, session: OpenSession, contested: StructuredTable) -> None:
        """A row that others deleted and inserted again with the same content counts as written."""
        contested.upsert({"id": 1, "n": 1})
        one = session()
        one.read("items", (1,))
        contested.delete((1,))
        contested.insert({"id": 1, "n": 1})
        one.step(lambda transaction: transaction.table("items").upsert({"id": 1, "n": 2}))
        assert not one.commit()

    def test_row_set_back_conflicts(self, session: OpenSession, contested: StructuredTable) -> None:
        """A row that others changed and changed back counts as written."""
        contested.upsert({"id": 1, "n": 1})
        one = session()
        one.read("items", (1,))
        contested.upsert({"id": 1, "n": 2})
        contested.upsert({"id": 1, "n": 1})
        one.step(lambda transaction: transaction.table("items").upsert({"id": 1, "n": 3}))
        assert not one.commit()

    def test_increments_of_one_field(self, session: OpenSession, contested: StructuredTable) -> None:
        """Two increments of one field may both commit: exactly the committed ones count."""
        for key in (1, 2):
            if key == 1:
                contested.upsert({"id": 1, "n": 0, "note": "x"})
            sessions = [session() for _ in range(3)]
            for one in sessions:
                one.read("items", (OUTSIDE,))
            amounts = [1, 10, 100]
            for one, amount in zip(sessions, amounts, strict=True):
                self.write(one, adding(amount), key)
            committed = [one.commit() for one in sessions]
            assert committed[0]
            row = contested.read((key,))
            assert row is not None
            assert row["n"] == sum(amount for amount, done in zip(amounts, committed, strict=True) if done)

    @pytest.mark.parametrize("second", ["increment", "upsert", "delete"])
    def test_increment_with_another_write_conflicts_like_it(
        self, session: OpenSession, contested: StructuredTable, second: str
    ) -> None:
        """An increment together with another write of the row in one transaction is that other write."""
        contested.upsert({"id": 1, "n": 1})
        one, two = session(), session()
        one.read("items", (OUTSIDE,))
        two.read("items", (OUTSIDE,))
        self.write(one, ON_A_ROW[second], 1)
        self.write(two, ON_A_ROW["increment"], 1)
        two.step(lambda transaction: transaction.table("items").upsert({"id": 1, "note": "x"}))
        assert one.commit()
        assert not two.commit()

    def test_delete_of_an_absent_row_writes_nothing(self, session: OpenSession, contested: StructuredTable) -> None:
        """A delete that found no row writes nothing: it conflicts with no other write, in either order."""
        for key, deleting_commits_first in ((1, True), (2, False)):
            one, two = session(), session()
            for each in (one, two):
                each.read("items", (OUTSIDE,))
            self.write(one, lambda table, key: table.delete((key,)), key)
            self.write(two, lambda table, key: table.insert({"id": key}), key)
            order = (one, two) if deleting_commits_first else (two, one)
            assert [each.commit() for each in order] == [True, True]
        assert keys(contested.scan()) == [(OUTSIDE,), (1,), (2,)]

    def test_upserts_of_distinct_keys_never_conflict(self, session: OpenSession, contested: StructuredTable) -> None:
        """Under SNAPSHOT, upserts of distinct keys never conflict, shared indexes or not."""
        contested.upsert_many([{"id": number, "tag": "a", "rank": 0} for number in range(0, 40, 2)])
        sessions = [session() for _ in range(4)]
        for one in sessions:
            one.read("items", (OUTSIDE,))
        for place in range(10):
            for number, one in enumerate(sessions):
                key, tag = place * 4 + number, "abc"[place % 3]
                self.write(one, tagging(tag), key)
        assert [one.commit() for one in sessions] == [True] * 4
        expected = [(number,) for number in range(40) if (number // 4) % 3 == 0]
        assert keys(contested.scan_index("tag", "a")) == expected
        assert keys(contested.scan_index("rank", 7)) == [(number,) for number in range(40)]

    def test_reader_commits_whatever_others_write(self, session: OpenSession, contested: StructuredTable) -> None:
        """Under SNAPSHOT, a transaction without writes never conflicts."""
        contested.upsert({"id": 1, "n": 1})
        one = session()
        one.step(lambda transaction: list(transaction.table("items").scan()))
        one.step(lambda transaction: list(transaction.table("items").scan_index("tag", None)))
        contested.upsert_many([{"id": 1, "n": 2}, {"id": 2}])
        assert one.commit()

    def test_loser_leaves_no_trace(self, session: OpenSession, contested: StructuredTable) -> None:
        """The transaction that committed first stays as it was; the other leaves nothing in any row or index."""
        contested.upsert_many([{"id": 1, "n": 1}, {"id": 2, "n": 1}])
        loser = session()
        loser.read("items", (OUTSIDE,))
        loser.step(lambda transaction: transaction.table("items").upsert({"id": 2, "n": 9}))
        loser.step(lambda transaction: transaction.table("items").insert({"id": 3, "tag": "lost"}))
        contested.upsert({"id": 1, "n": 2, "tag": "won"})
        loser.step(lambda transaction: transaction.table("items").upsert({"id": 1, "tag": "lost"}))
        assert not loser.commit()
        assert plain(contested.scan(Range.at_least((0,)))) == [item(1, n=2, tag="won"), item(2, n=1)]
        assert keys(contested.scan_index("tag", "lost")) == []
