"""Rules of snapshots and their positions in change feeds: of transactions and of plans."""

from __future__ import annotations

from itertools import pairwise

import pytest

from structable.spi import Isolation, Storage, UnsupportedOperationError, col

from .case import Begin
from .feed_case import FeedCase, after, by_version, images, read_between, state_of, with_feed, without_gap
from .keyless_rules import counted
from .samples import ITEMS, Record

BOTH = pytest.mark.parametrize("isolation", list(Isolation), ids=lambda level: level.value)


class FeedSnapshotRules(FeedCase):
    """A snapshot with its position and the changes after it are the table at any later position."""

    @BOTH
    @pytest.mark.parametrize("read_only", [True, False])
    def test_position_of_a_transaction(self, fed: Storage, isolation: Isolation, read_only: bool) -> None:
        """The position names the snapshot exactly, whatever the transaction writes or others commit later."""
        self.fed_items(fed, 3)
        with fed.transaction(isolation, read_only) as transaction:
            position = transaction.position("items")
            fed.table("items").upsert({"id": 1, "n": 9})
            fed.table("items").delete((2,))
            rows = counted(transaction.table("items").scan())
            if not read_only:
                transaction.table("items").upsert({"id": 77})
                transaction.rollback()
        changes = read_between(fed, "items", position)
        assert [kind for kind, _ in images(changes)] == ["-U", "+U", "-D"]
        assert after(rows, changes) == state_of(fed, "items")
        assert after(counted([]), read_between(fed, "items", None, position)) == rows

    @BOTH
    def test_own_writes_are_after_the_position(self, fed: Storage, isolation: Isolation) -> None:
        """A transaction that took its position commits as any other, at a version beyond the position."""
        self.fed_items(fed, 3)
        with fed.transaction(isolation) as transaction:
            position = transaction.position("items")
            transaction.table("items").upsert({"id": 1, "n": 9})
            before = counted(fed.table("items").scan())
        (commit,) = by_version(read_between(fed, "items", position))
        assert after(before, commit) == state_of(fed, "items")

    def test_positions_of_several_tables(self, fed: Storage, begin: Begin) -> None:
        """One transaction gives positions of several tables, one after the other: all of its one snapshot."""
        self.fed_items(fed, 2)
        fed.admin.create(with_feed(ITEMS).evolve(name="other"))
        fed.table("other").insert({"id": 1})
        transaction = begin(read_only=True)
        first = transaction.position("items")
        with fed.transaction() as writer:
            for name in ("items", "other"):
                writer.table(name).upsert({"id": 1, "n": 7})
        second, again = transaction.position("other"), transaction.position("items")
        assert (second.version, again) == (first.version, first)
        for name, position in (("items", first), ("other", second)):
            rows = counted(transaction.table(name).scan())
            assert after(rows, read_between(fed, name, position)) == state_of(fed, name)
            assert len(read_between(fed, name, position)) == 2

    @BOTH
    def test_position_comes_first(self, fed: Storage, begin: Begin, isolation: Isolation) -> None:
        """`position` after `table` is `UnsupportedOperationError`, and the transaction continues."""
        self.fed_items(fed, 1)
        for first in (lambda table: table.count(), lambda table: table.upsert({"id": 7}), lambda table: None):
            transaction = begin(isolation)
            first(transaction.table("items"))
            with pytest.raises(UnsupportedOperationError, match="position"):
                transaction.position("items")
            transaction.table("items").upsert({"id": 8})
            transaction.commit()
        assert fed.table("items").count() == 3

    def test_position_of_an_ended_transaction(self, fed: Storage, begin: Begin) -> None:
        """`position` of a transaction that has ended raises as its other methods do."""
        self.fed_items(fed, 1)
        transaction = begin()
        transaction.rollback()
        with pytest.raises(Exception) as expected:  # noqa: PT011 - whatever `table` raises
            transaction.table("items").count()
        with pytest.raises(type(expected.value)):
            transaction.position("items")

    def test_position_of_a_plan(self, fed: Storage) -> None:
        """A feed has after `ScanPlan.position` exactly the changes committed after the plan's snapshot."""
        self.fed_items(fed, 20)
        with fed.plan_scan("items", splits=3, where=col("n") < 10, columns=["id"]) as plan:
            position = plan.position
        assert position is not None
        assert read_between(fed, "items", position) == []
        with fed.plan_scan("items", splits=3) as plan:
            fed.table("items").upsert({"id": 1, "n": 70})
            fed.table("items").insert({"id": 30})
            found = [row for split in plan.splits for one in fed.read_split(split) for row in one.to_pylist()]
            assert plan.position is not None
            changes = read_between(fed, "items", plan.position)
        assert [kind for kind, _ in images(changes)] == ["-U", "+U", "+I"]
        assert after(counted(found), changes) == state_of(fed, "items")

    def test_snapshot_and_feed_without_gap(self, fed: Storage) -> None:
        """At every step: the rows of a snapshot and the changes since its position are the rows of any later one."""
        self.fed_items(fed)
        table, snapshots = fed.table("items"), [without_gap(fed, "items")]
        rows: list[Record] = [{"id": 1}, {"id": 2, "n": 1}, {"id": 1, "n": 5}, {"id": 1, "n": None}]
        for number, row in enumerate(rows):
            table.upsert(row)
            if number == 2:
                table.delete((2,))
            snapshots.append(without_gap(fed, "items"))
        for (since, old), (until, new) in pairwise(snapshots):
            assert since < until
            assert after(old, read_between(fed, "items", since, until)) == new
        for since, old in snapshots:
            assert after(old, read_between(fed, "items", since)) == snapshots[-1][1]
