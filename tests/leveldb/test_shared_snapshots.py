"""Shared snapshots: one checkpoint for all plans, of owners, clients and storages that only read; and its removal."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from structable.backends.leveldb import splits
from structable.backends.leveldb.folder import DatabaseFolder
from structable.spi import (
    Range,
    ScanPlan,
    Storage,
    StructableError,
    TransactionClosedError,
    TransactionConflictError,
    WriteMode,
    connect,
    read_split,
)
from structable.testing.conformance.samples import ITEMS, item
from structable.testing.conformance.write_jobs import batch

from .support.processes import Process

Run = Callable[[str], Process]
NAMES = ["items", "other"]
OWNER = """
from structable.spi import connect
storage = connect(f"leveldb://{folder}")
send("ready")
receive()
"""
PLANNER = """
from structable.spi import connect
storage = connect(f"leveldb://{folder}")
shared = storage.share_snapshot()
plans = [shared.plan_scan(name) for name in ("items", "other", "items")]
send("ready")
receive()
"""


pytestmark = pytest.mark.usefixtures("temporary")


@pytest.fixture
def url(folder: Path) -> str:
    url = f"leveldb://{folder}"
    with connect(url) as storage:
        for name in NAMES:
            storage.admin.create(ITEMS.evolve(name=name))
            storage.table(name).upsert_many(item(number, note="x" * 500) for number in range(500))
    return url


@pytest.fixture(params=["owner", "client", "reads beside an owner", "reads alone"])
def storage(request: pytest.FixtureRequest, url: str, run: Run) -> Iterator[Storage]:
    if request.param in ("client", "reads beside an owner"):
        assert run(OWNER).receive() == "ready"
    with connect(url, read_only=request.param.startswith("reads")) as storage:
        yield storage


def rows_of(url: str, storage: Storage, plan: ScanPlan) -> int:
    found = sum(one.num_rows for split in plan.splits for one in storage.read_split(split))
    assert found == sum(one.num_rows for split in plan.splits for one in read_split(url, split))
    return found


def checkpoints(folder: Path, temporary: Path) -> set[Path]:
    """Return the folders of plans, and of the private copies of those who only read."""
    return {*folder.glob("checkpoints/*"), *temporary.glob("structable-*/checkpoints/*")}


def test_one_checkpoint_for_all_plans(url: str, storage: Storage, folder: Path, temporary: Path) -> None:
    """It is there from the first plan to the end of the last; this process and others read its state."""
    before = checkpoints(folder, temporary)
    with storage.share_snapshot() as shared:
        assert checkpoints(folder, temporary) == before
        plans = [shared.plan_scan(NAMES[number % 2], splits=3) for number in range(6)]
        (made,) = checkpoints(folder, temporary) - before
    for plan in plans:
        assert rows_of(url, storage, plan) == 500
        assert made.exists()
        plan.close()
    assert not made.exists()
    with pytest.raises(TransactionClosedError):
        list(read_split(url, plans[0].splits[0]))


def test_dropped_references_free_the_checkpoint(url: str, storage: Storage, folder: Path, temporary: Path) -> None:
    """At once, not only when the garbage collector runs: no frame keeps the variables of its callers."""
    before = checkpoints(folder, temporary)
    gc.disable()
    try:

        def use() -> None:
            shared = storage.share_snapshot()
            plans = [shared.plan_scan(name) for name in NAMES]
            assert [sum(one.num_rows for one in storage.read_split(plan.splits[0])) for plan in plans] == [500] * 2

        use()
        assert [path for path in checkpoints(folder, temporary) - before if (path / "state").exists()] == []
    finally:
        gc.enable()


def test_plan_is_released_while_its_thread_opens_another(url: str) -> None:
    """As the garbage collector may do at any moment."""
    with connect(url) as storage, storage.share_snapshot() as shared:
        plan = shared.plan_scan("items")
        shared.close()
        with splits._READERS._lock:
            plan.close()
        with pytest.raises(TransactionClosedError):
            list(storage.read_split(plan.splits[0]))


def test_writes_of_others_are_not_seen(url: str, storage: Storage, run: Run) -> None:
    with storage.share_snapshot() as shared, ExitStack() as stack:
        plans = [stack.enter_context(shared.plan_scan("items", splits=2))]
        with connect(url) as writer:
            for name in NAMES:
                writer.table(name).delete_all(Range.below((100,)))
                job = writer.begin_write(name, mode=WriteMode.OVERWRITE, job_id=name)
                writer.commit_write(job, [writer.stage(job, 0, 0, [batch([item(1)])])])
            plans += [stack.enter_context(shared.plan_scan(name, splits=2)) for name in NAMES]
        assert [rows_of(url, storage, plan) for plan in plans] == [500] * 3


def test_killed_owner_leaves_its_clients_snapshots(url: str, run: Run) -> None:
    owner = run(OWNER)
    assert owner.receive() == "ready"
    with connect(url) as storage, storage.share_snapshot() as shared, shared.plan_scan("items") as plan:
        owner.signal(signal.SIGKILL)
        owner.process.wait()
        storage.table("other").delete_all(Range.all())
        with shared.plan_scan("other") as again:
            assert rows_of(url, storage, again) == rows_of(url, storage, plan) == 500


def test_killed_planner_is_swept(url: str, run: Run, folder: Path) -> None:
    planner = run(PLANNER)
    assert planner.receive() == "ready"
    assert len(list(folder.glob("checkpoints/*"))) == 1
    planner.signal(signal.SIGKILL)
    planner.process.wait()
    splits.sweep_plans(DatabaseFolder(folder))
    assert list(folder.glob("checkpoints/*")) == []


def test_lost_checkpoint_is_never_a_younger_state(url: str, folder: Path) -> None:
    """A checkpoint that was removed by hand: the snapshot is lost."""
    with connect(url) as storage, storage.share_snapshot() as shared:
        plan = shared.plan_scan("items")
        for path in folder.glob("checkpoints/*"):
            shutil.rmtree(path)
        for _ in range(2):
            with pytest.raises(StructableError):
                shared.plan_scan("other")
        with pytest.raises(TransactionClosedError):
            list(storage.read_split(plan.splits[0]))


def test_changes_of_tables_pass_at_once(url: str, storage: Storage) -> None:
    with storage.share_snapshot() as shared, shared.plan_scan("items") as plan:
        with connect(url) as other:
            other.admin.drop("items")
            other.admin.drop("other")
            other.admin.create(ITEMS.evolve(name="other"))
        assert rows_of(url, storage, plan) == 500
        if storage.table("other").count() == 0:  # a copy of a database that no process had open stays as it was
            for name in NAMES:
                with pytest.raises(TransactionConflictError):
                    shared.plan_scan(name)
        else:
            assert rows_of(url, storage, shared.plan_scan("other")) == 500


def test_many_snapshots_leave_no_descriptors(url: str, storage: Storage) -> None:
    def use() -> None:
        for _ in range(10):
            with storage.share_snapshot() as shared:
                plans = [shared.plan_scan(name) for name in NAMES]
            assert sum(rows_of(url, storage, plan) for plan in plans) == 1_000

    use()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        use()
    assert len(os.listdir("/proc/self/fd")) <= before + 20
