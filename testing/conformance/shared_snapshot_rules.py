"""Rules of `Storage.share_snapshot`: when the snapshot is taken, who keeps it, and what frees it."""

from __future__ import annotations

import gc
import pickle
import threading
from collections.abc import Iterable
from contextlib import ExitStack

import pytest

from structable.spi import (
    Field,
    InvalidFieldError,
    Range,
    ScanSplit,
    SharedSnapshot,
    Storage,
    StructableError,
    TransactionClosedError,
    UnsupportedOperationError,
    col,
    connect,
)

from .bulk_scans import by_value, rows_of
from .clients import StoreProcess
from .samples import ITEMS, NOTED, item
from .shared_case import ROWS, SharedCase, plan_rows


def copies_of(splits: Iterable[ScanSplit]) -> list[ScanSplit]:
    """Return splits as another process gets them."""
    return [pickle.loads(pickle.dumps(split)) for split in splits]


class SharedSnapshotRules(SharedCase):
    """A shared snapshot is held from its first plan on, until it is closed and its last plan is."""

    def test_shared_snapshots_without_the_capability(self, storage: Storage) -> None:
        """A store whose plans cannot share a snapshot refuses `share_snapshot` with `UnsupportedOperationError`."""
        if self.capabilities.shared_snapshots:
            pytest.skip("plans of the store can share a snapshot")
        with pytest.raises(UnsupportedOperationError):
            storage.share_snapshot()

    def test_first_plan_takes_the_shared_snapshot(self, pair: Storage) -> None:
        """The first plan takes the snapshot: earlier commits are seen, whenever the shared snapshot was made."""
        with pair.share_snapshot() as shared:
            pair.table("items").insert(item(1_000))
            with pytest.raises(InvalidFieldError):
                shared.plan_scan("items", columns=["unknown"])
            pair.admin.create(NOTED)
            pair.table("other").insert(item(1_000))
            assert plan_rows(pair, shared, "noted") == []
            pair.table("other").insert(item(2_000))
            for name in ("items", "other"):
                assert len(plan_rows(pair, shared, name)) == ROWS + 1

    def test_closed_shared_snapshot_refuses_plans(self, pair: Storage) -> None:
        """Once closed, it refuses plans with `TransactionClosedError`, but keeps open ones; closing is idempotent."""
        with pair.share_snapshot() as shared:
            plan = shared.plan_scan("items", splits=2)
            assert not shared.closed
        shared.close()
        assert shared.closed
        pair.table("items").delete_all(Range.all())
        with pytest.raises(TransactionClosedError):
            shared.plan_scan("other")
        assert len(rows_of(pair, copies_of(plan.splits))) == ROWS
        plan.close()
        unused = pair.share_snapshot()
        unused.close()
        with pytest.raises(TransactionClosedError):
            unused.plan_scan("other")

    def test_closed_plan_leaves_the_shared_snapshot(self, pair: Storage) -> None:
        """A plan is closed as any other, and its splits cannot be read; the snapshot stays, even without a plan."""
        with pair.share_snapshot() as shared:
            one, other = shared.plan_scan("items"), shared.plan_scan("items")
            pair.table("items").delete_all(Range.all())
            one.close()
            with pytest.raises(TransactionClosedError):
                rows_of(pair, one.splits)
            assert len(rows_of(pair, other.splits)) == ROWS
            other.close()
            gc.collect()
            assert len(plan_rows(pair, shared, "items")) == ROWS

    @pytest.mark.parametrize("last", ["plan", "snapshot"])
    def test_shared_snapshot_is_freed_with_its_last_plan(self, pair: Storage, last: str) -> None:
        """Once it and its plans are closed, nothing is held: no split can be read, tables change without waiting."""
        shared = pair.share_snapshot()
        plans = [shared.plan_scan(name, splits=2) for name in ("items", "other", "items")]
        copies = copies_of(split for plan in plans for split in plan.splits)
        if last == "plan":
            shared.close()
        for plan in plans:
            assert len(rows_of(pair, plan.splits)) == ROWS
            plan.close()
        shared.close()
        pair.admin.create_or_update(ITEMS.evolve(fields=[*ITEMS.fields, Field.int("added")]))
        pair.admin.drop("other")
        for split in copies:
            with pytest.raises(TransactionClosedError):
                rows_of(pair, [split])

    def test_collected_shared_snapshot_is_freed(self, pair: Storage) -> None:
        """Without `close`, the snapshot is freed once it and its plans, with their splits, are collected."""
        shared = pair.share_snapshot()
        plan = shared.plan_scan("items", splits=2)
        del shared
        gc.collect()
        pair.table("items").delete_all(Range.all())
        copies = copies_of(plan.splits)
        assert len(rows_of(pair, copies)) == ROWS
        kept = plan.splits[-1]
        del plan
        gc.collect()
        assert len(rows_of(pair, copies)) == ROWS
        del kept
        gc.collect()
        pair.admin.drop("items")
        with pytest.raises(TransactionClosedError):
            rows_of(pair, copies)

    def test_shared_snapshots_are_independent(self, pair: Storage) -> None:
        """Ten snapshots are shared at once, each of its own state, and closed in any order."""
        with ExitStack() as stack:
            many = []
            for number in range(10):
                many.append(stack.enter_context(pair.share_snapshot()))
                assert len(plan_rows(pair, many[-1], "items")) == ROWS + number
                pair.table("other").insert(item(1_000 + number))
                pair.table("items").insert(item(1_000 + number))
            many[3].close()
            for number, shared in enumerate(many):
                if number != 3:
                    assert len(plan_rows(pair, shared, "other")) == ROWS + number

    def test_another_process_reads_splits_of_shared_plans(
        self, pair: Storage, storage_url: str, peer: StoreProcess
    ) -> None:
        """Splits of shared plans are read in any process, connected or not, until the snapshot is freed."""
        with pair.share_snapshot() as shared:
            plans = [shared.plan_scan("items", splits=2)]
            pair.table("other").delete_all(Range.all())
            pair.table("items").delete_all(Range.all())
            plans.append(shared.plan_scan("other", where=col("tag") == "t2", splits=2))
        for plan, rows in zip(plans, (ROWS, ROWS // 5), strict=True):
            found = [row for split in plan.splits for row in peer.ask("read_split", split)]
            again = [row for split in plan.splits for row in peer.ask("read_split_by_url", storage_url, split)]
            assert len(found) == rows
            assert by_value(found) == by_value(again) == rows_of(pair, plan.splits)
        for plan in plans:
            plan.close()
        with pytest.raises(TransactionClosedError):
            peer.ask("read_split", plans[0].splits[0])

    def test_shared_snapshot_ends_with_its_storage(self, pair: Storage, storage_url: str) -> None:
        """Closing the storage closes its shared snapshots and their plans; further plans are refused."""
        with connect(storage_url) as storage:
            if not storage.admin.exists("items"):
                self.require("restartable")
            shared, unused = storage.share_snapshot(), storage.share_snapshot()
            plan = shared.plan_scan("items", splits=2)
            copies = copies_of(plan.splits)
        assert shared.closed
        assert unused.closed
        for one in (shared, unused):
            with pytest.raises(StructableError):
                one.plan_scan("items")
        for split in [*plan.splits, *copies]:
            with pytest.raises(StructableError):
                rows_of(pair, [split])
        pair.admin.drop("items")
        shared.close()
        plan.close()

    def test_threads_use_a_shared_snapshot(self, pair: Storage) -> None:
        """Any thread may plan, read and close: all see one state, and a plan during a close succeeds or is refused."""
        results: list[object] = []

        def use(shared: SharedSnapshot, number: int) -> None:
            try:
                for step in range(4):
                    pair.table("items").upsert(item(2_000 + 10 * number + step))
                    results.append(len(plan_rows(pair, shared, ("items", "other")[step % 2], splits=2)))
            except TransactionClosedError:
                results.append("closed")
            except BaseException as error:
                results.append(error)

        for closed_meanwhile in (False, True):
            with pair.share_snapshot() as shared:
                wanted = len(plan_rows(pair, shared, "items"))
                pair.table("other").delete_all(Range.at_least((1_000,)))
                users = [threading.Thread(target=use, args=(shared, number)) for number in range(6)]
                for user in users:
                    user.start()
                if closed_meanwhile:
                    shared.close()
                for user in users:
                    user.join()
            allowed = {wanted, ROWS} | ({"closed"} if closed_meanwhile else set())
            assert set(results) <= allowed
            assert closed_meanwhile or len(results) == 24
            results.clear()
        pair.admin.drop("items")
