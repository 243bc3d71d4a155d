"""Rules of the plans of a shared snapshot: one state, whatever is committed, and conflicts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count, pairwise
from typing import Any

import pytest

from structable.spi import (
    Field,
    Range,
    ScanPlan,
    Storage,
    TableNotFoundError,
    Transaction,
    TransactionConflictError,
    WriteMode,
    col,
    connect,
)

from .bulk_scans import by_value, rows_of
from .feed_case import FeedCase, after, read_between, state_of, with_feed
from .keyless_rules import counted
from .samples import ITEMS, NOTED, item
from .shared_case import OTHER, ROWS, SharedCase, plan_rows
from .write_jobs import batch

_WRITERS = 3
_ROUNDS = 3


class SharedPlanRules(SharedCase):
    """All plans of a shared snapshot see one state of all tables, or are refused."""

    def test_shared_plans_see_commits_whole(self, pair: Storage) -> None:
        """A commit to several tables is visible to all plans of a snapshot or to none, while others write."""
        stopped, committed, failures = threading.Event(), list[int](), list[BaseException]()

        def write(first: int) -> None:
            numbers = count(1)

            def body(transaction: Transaction) -> None:
                number = next(numbers)
                for name in ("items", "other"):
                    transaction.table(name).upsert_many([{"id": first, "n": number}, {"id": first + 50, "n": number}])

            try:
                while not stopped.is_set():
                    pair.run(body)
                    committed.append(first)
            except BaseException as error:
                failures.append(error)

        writers = [threading.Thread(target=write, args=(number,)) for number in range(_WRITERS)]
        for writer in writers:
            writer.start()
        seen = []
        try:
            for _ in range(_ROUNDS):
                with pair.share_snapshot() as shared:
                    first = plan_rows(pair, shared, "items", splits=3)
                    for name in ("other", "items"):
                        more = len(committed) + 2 * _WRITERS
                        while len(committed) < more and not failures:
                            stopped.wait(0.001)
                        assert plan_rows(pair, shared, name, splits=2) == first
                changed = {row["id"]: row["n"] for row in first}
                assert [changed[number] for number in range(_WRITERS)] == [
                    changed[number + 50] for number in range(_WRITERS)
                ]
                seen.append(sum(changed.values()))
        finally:
            stopped.set()
            for writer in writers:
                writer.join()
        assert failures == []
        assert all(one < other for one, other in pairwise(seen))

    def test_shared_plans_do_not_see_later_commits(self, pair: Storage) -> None:
        """Whatever is committed after the first plan, by calls or by jobs of any mode, no later plan sees it."""
        before = by_value(map(dict, pair.table("items").scan()))
        with pair.share_snapshot() as shared, shared.plan_scan("items", splits=2) as plan:
            for name in ("items", "other"):
                table = pair.table(name)
                table.update_all(Range.below((10,)), {"n": 5})
                table.delete_all(Range.at_least((50,)))
                table.insert(item(1_000))
                assert plan_rows(pair, shared, name) == before
                for mode in (WriteMode.UPSERT, WriteMode.OVERWRITE):
                    job = pair.begin_write(name, mode=mode, job_id=self.fresh_id())
                    pair.commit_write(job, [pair.stage(job, 0, 0, [batch([item(7, n=9), item(2_000)])])])
                    assert plan_rows(pair, shared, name, splits=3) == before
            assert rows_of(pair, plan.splits) == before
        assert [row["id"] for row in pair.table("items").scan(columns=["id"])] == [7, 2_000]

    def test_shared_plans_are_scans(self, pair: Storage) -> None:
        """A plan of a shared snapshot has the rows, columns and splits of `plan_scan`, for any range and filter."""
        wholes: list[dict[str, Any]] = [
            {},
            {"range": Range(begin=(10,), end=(30,)), "splits": 4},
            {"where": col("tag") == "t3", "columns": ["tag", "id"]},
            {"where": (col("tag") == "t1") & (col("n") == 0), "splits": 3},
            {"where": col("id").isin([3, 5, 1_000]), "columns": ["id"]},
            {"range": Range.above((1_000,)), "splits": 5},
        ]
        wanted, spec = [], pair.admin.get_specification("other")
        for arguments in wholes:
            with pair.plan_scan("other", **arguments) as plan:
                assert plan.specification == spec
                wanted.append((plan.columns, plan.ordered, rows_of(pair, plan.splits)))
        with pair.share_snapshot() as shared, ExitStack() as stack:
            plans = []
            for arguments in wholes:
                plans.append(stack.enter_context(shared.plan_scan("other", **arguments)))
                pair.table("other").delete_all(Range.all())
            for plan, (columns, ordered, rows) in zip(plans, wanted, strict=True):
                assert isinstance(plan, ScanPlan)
                assert (plan.specification, plan.columns, plan.ordered) == (spec, columns, ordered)
                assert [split.index for split in plan.splits] == list(range(len(plan.splits)))
                assert rows_of(pair, plan.splits) == rows

    @pytest.mark.parametrize("known", [True, False], ids=["known", "not known"])
    @pytest.mark.parametrize("change", ["created", "changed", "dropped", "made anew"])
    def test_changed_table_is_a_conflict_of_a_shared_plan(
        self, pair: Storage, storage_url: str, change: str, known: bool
    ) -> None:
        """A table created, changed or dropped since is `TransactionConflictError`, each time; other plans stay."""
        with ExitStack() as stack:
            # Whether this storage knows the new state, or has yet to find out.
            changing = pair
            if not known:
                changing = stack.enter_context(connect(storage_url))
                if not changing.admin.exists("items"):
                    self.require("restartable")
            shared = stack.enter_context(pair.share_snapshot())
            plan = stack.enter_context(shared.plan_scan("items"))
            name = "other"
            if change == "created":
                name = "noted"
                changing.admin.create(NOTED)
            elif change == "changed":
                changing.admin.create_or_update(OTHER.evolve(fields=[*OTHER.fields, Field.int("added")]))
            else:
                changing.admin.drop("other")
                if change == "made anew":
                    changing.admin.create(OTHER)
            if known and change != "dropped":
                pair.table(name).upsert({"id": "1" if name == "noted" else 1})
            for _ in range(2):
                with pytest.raises(TransactionConflictError):
                    shared.plan_scan(name, splits=2)
            pair.table("items").delete_all(Range.all())
            assert len(rows_of(pair, plan.splits)) == ROWS
            assert len(plan_rows(pair, shared, "items")) == ROWS
            if change != "dropped":
                with pair.share_snapshot() as again:
                    assert len(plan_rows(pair, again, name)) == pair.table(name).count()

    def test_other_schema_changes_leave_a_shared_snapshot(self, pair: Storage) -> None:
        """A shared snapshot plans a table while others are created, changed and dropped."""
        pair.admin.create(NOTED)
        with pair.share_snapshot() as shared:
            assert len(plan_rows(pair, shared, "items")) == ROWS
            pair.admin.drop("noted")
            pair.admin.create(ITEMS.evolve(name="third"))
            pair.admin.create_or_update(NOTED.evolve(fields=[*NOTED.fields, Field.int("added")]))
            pair.table("other").delete_all(Range.all())
            assert len(plan_rows(pair, shared, "other")) == ROWS

    def test_shared_plans_check_their_arguments(self, pair: Storage) -> None:
        """Arguments are checked as by `plan_scan`, also of later plans, and a refused plan leaves the others."""
        wrongs: list[dict[str, Any]] = [
            {"columns": []},
            {"columns": ["unknown"]},
            {"where": col("unknown") == 1},
            {"where": col("n") == "x"},
            {"range": Range.prefix(("x",))},
            {"splits": 0},
        ]
        plans: list[ScanPlan] = []
        with pair.share_snapshot() as shared:
            for _ in range(2):
                for wrong in wrongs:
                    with pytest.raises(Exception) as expected:  # noqa: PT011 - whatever `plan_scan` raises
                        pair.plan_scan("items", **wrong)
                    with pytest.raises(type(expected.value)):
                        shared.plan_scan("items", **wrong)
                for name in ("missing", "ITEMS", "ite\0ms", "\udc80"):
                    with pytest.raises(TableNotFoundError):
                        shared.plan_scan(name)
                plans.append(shared.plan_scan("items", columns=(name for name in ["n", "id"])))
                pair.table("items").delete_all(Range.all())
            for plan in plans:
                assert plan.columns == ("n", "id")
                assert len(rows_of(pair, plan.splits)) == ROWS
                plan.close()


class SharedFeedRules(FeedCase):
    """Positions of plans that share a snapshot."""

    def test_positions_of_shared_plans_agree(self, fed: Storage) -> None:
        """All plans have positions of the one snapshot: after them the feeds have exactly the later changes."""
        self.require("shared_snapshots")
        self.fed_items(fed, 20)
        fed.admin.create(NOTED)
        fed.admin.create(with_feed(ITEMS).evolve(name="other"))
        fed.table("other").insert({"id": 1})
        changes: list[Callable[[], None]] = [
            lambda: fed.table("items").upsert({"id": 1, "n": 70}),
            lambda: fed.table("other").upsert({"id": 1, "n": 70}),
        ]
        for names in (["items", "other", "items"], ["noted", "other", "items"]):
            found = []
            with fed.share_snapshot() as shared:
                for name in names:
                    with shared.plan_scan(name, splits=3) as plan:
                        found.append((name, plan.position, rows_of(fed, plan.splits)))
                    for change in changes:
                        change()
            positions = [position for _, position, _ in found if position is not None]
            assert len(positions) == len([name for name in names if name != "noted"])
            assert len({position.version for position in positions}) == 1
            for name, position, rows in found:
                if position is not None:
                    assert after(counted(rows), read_between(fed, name, position)) == state_of(fed, name)
