"""The coordinator plans a scan again for each execution that comes to it later."""

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain

import pytest

from structable.spark_bridge.base.options import ReadOptions
from structable.spark_bridge.base.store_client import StoreClient
from structable.spark_bridge.coordinator import replanning
from structable.spark_bridge.coordinator.coordinator import Coordinator
from structable.spark_bridge.coordinator.held_plans import PlannedSplits
from structable.spark_bridge.coordinator.replanning import Rerun, digest_of, pickled_scan
from structable.spi import (
    AggregateExpression,
    Aggregation,
    StorageUnavailableError,
    TableNotFoundError,
    TransactionClosedError,
    col,
    connect,
)
from tests.spark.support.samples import create_runs, runs
from tests.spark.test_coordinator import COLUMNS, Application, application, coordinator, options, reader, rows_of, store
from tests.waiting import until

__all__ = ["application", "coordinator", "store"]

PARTS = 3


class Scan:
    """A scan whose plan is executed by 1, and then again."""

    def __init__(
        self,
        coordinator: Coordinator,
        asked: ReadOptions,
        execution: int | None = 1,
        columns: tuple[str, ...] | Aggregation = COLUMNS,
    ) -> None:
        self.coordinator = coordinator
        self.asked = asked
        self.pickled = pickled_scan(asked, columns, None)
        self.first = coordinator.client.plan(asked, columns, None, execution, digest_of(self.pickled))

    def task(
        self, execution: int, part: int = 0, *, parts: int = PARTS, outermost: bool = True
    ) -> PlannedSplits | None:
        rerun = Rerun(self.first.plan_id, part, parts, execution, outermost, 1)
        return self.coordinator.client.planned_again(rerun, self.pickled)

    def all(self, execution: int) -> PlannedSplits:
        again = self.task(execution, parts=1)
        assert again is not None
        return again


@pytest.fixture
def scan(coordinator: Coordinator, store: StoreClient) -> Scan:
    return Scan(coordinator, options(store, splits=2, grace=0.1))


def indexes(planned: PlannedSplits | None) -> list[int]:
    assert planned is not None
    return [split.index for split in planned.splits]


def insert(store: StoreClient) -> None:
    with connect(store.url) as storage:
        storage.table("runs").upsert_many(runs(1, first=100))


def test_aggregates_are_planned_again(coordinator: Coordinator, store: StoreClient, application: Application) -> None:
    wanted = Aggregation([AggregateExpression.count()], ["app"])
    scan = Scan(coordinator, options(store, splits=1), columns=wanted)
    application.executions.discard(1)
    insert(store)
    with connect(store.url) as storage:
        counts = [
            row["count(*)"]
            for planned in (scan.first, scan.all(2))
            for split in planned.splits
            for batch in storage.read_split(split)
            for row in batch.to_pylist()
        ]
    assert counts[1] == counts[0] + 1


def test_all_tasks_of_an_execution_read_one_new_plan(
    coordinator: Coordinator, store: StoreClient, scan: Scan, application: Application
) -> None:
    application.executions.discard(1)
    application.stages.clear()
    until(lambda: coordinator.plans() == 0)
    insert(store)
    together = threading.Barrier(PARTS)

    def task(part: int) -> PlannedSplits | None:
        together.wait()
        return scan.task(2, part)

    with ThreadPoolExecutor(PARTS) as pool:
        tasks = [planned for planned in pool.map(task, range(PARTS)) if planned is not None]
    assert coordinator.plans() == 1
    assert {planned.plan_id for planned in tasks} == set(coordinator.held)
    assert sum(rows_of(store, planned) for planned in tasks) == 21
    assert sorted(chain.from_iterable(map(indexes, tasks))) == indexes(scan.all(2))
    # A retried task reads what the first attempt did.
    retried = [scan.task(2, part) for part in range(PARTS)]
    assert list(map(indexes, retried)) == list(map(indexes, tasks))
    assert coordinator.plans() == 1


@pytest.mark.parametrize(("parts", "shares"), [(1, [[0, 1]]), (2, [[0], [1]]), (4, [[0], [1], [], []])])
def test_a_task_reads_its_share_of_the_new_splits(scan: Scan, parts: int, shares: list[list[int]]) -> None:
    assert [indexes(scan.task(2, part, parts=parts)) for part in range(parts)] == shares


def test_each_execution_has_a_plan_and_a_snapshot_of_its_own(
    coordinator: Coordinator, store: StoreClient, scan: Scan
) -> None:
    other = Scan(coordinator, scan.asked)
    second = scan.all(2)
    insert(store)
    third = scan.all(3)
    assert [rows_of(store, planned) for planned in (scan.first, second, other.all(2), third)] == [20, 20, 20, 21]
    assert coordinator.shared_snapshots() == 3


def test_a_new_plan_ends_as_any_other(coordinator: Coordinator, scan: Scan, application: Application) -> None:
    planned = scan.all(2)
    for split in planned.splits:
        with coordinator.client.holding(planned.plan_id, scan.asked, reader(split.index, execution=2)):
            pass
    application.executions.clear()
    application.stages.clear()
    until(lambda: coordinator.plans() == coordinator.shared_snapshots() == 0)


def test_a_new_plan_that_is_closed_while_its_execution_runs_is_an_error(coordinator: Coordinator, scan: Scan) -> None:
    planned = scan.all(2)
    coordinator.held[planned.plan_id].options = replace(scan.asked, lease=0.0)
    until(lambda: planned.plan_id not in coordinator.held)
    with pytest.raises(TransactionClosedError, match="table 'runs': the snapshot of this query is closed"):
        scan.task(2)


def test_an_execution_that_uses_parts_of_an_earlier_run_reads_no_new_plan(
    coordinator: Coordinator, scan: Scan, application: Application
) -> None:
    other = Scan(coordinator, scan.asked)
    application.anew.discard(2)
    assert scan.task(2) is None
    application.anew.add(2)
    assert other.task(2) is None  # decided once
    assert coordinator.plans() == 2


def test_an_execution_inside_another_reads_its_plan(scan: Scan, application: Application) -> None:
    assert scan.task(2, outermost=False) is None
    application.executions.discard(1)
    assert scan.task(3, outermost=False) is not None


def test_a_plan_of_no_execution_is_read_while_it_is_held(coordinator: Coordinator, store: StoreClient) -> None:
    scan = Scan(coordinator, options(store), None)
    assert scan.task(2) is None
    coordinator.held[scan.first.plan_id].options = replace(scan.asked, lease=0.0)
    until(lambda: coordinator.plans() == 0)
    assert scan.task(2) is None
    assert scan.task(3) is not None


def test_only_a_scan_that_was_planned_is_planned_again(coordinator: Coordinator, scan: Scan) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return pytest.fail, ("it was unpickled",)

    for pickled in (pickle.dumps(Trap()), pickled_scan(scan.asked, COLUMNS, col("started") > 1), b""):
        scan.pickled = pickled
        assert scan.task(2) is None
    assert coordinator.plans() == 1


def test_little_is_remembered_of_plans_and_executions(
    coordinator: Coordinator, store: StoreClient, scan: Scan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replanning, "MOST_PLANS", 2)
    monkeypatch.setattr(replanning, "MOST_EXECUTIONS", 1)
    young = Scan(coordinator, scan.asked)
    assert scan.task(2) is not None  # and was used last
    Scan(coordinator, scan.asked)
    assert young.task(3) is None
    assert scan.all(2).plan_id == scan.all(2).plan_id


def test_errors_of_planning_reach_the_task_and_the_next_plans_again(
    store: StoreClient, scan: Scan, coordinator: Coordinator
) -> None:
    with connect(store.url) as storage:
        storage.admin.drop("runs")
        with pytest.raises(TableNotFoundError, match="'runs' does not exist"):
            scan.task(2)
        create_runs(storage, 5)
    assert rows_of(store, scan.all(3)) == 5


def test_a_task_out_of_reach_of_the_coordinator_fails(coordinator: Coordinator, scan: Scan) -> None:
    coordinator.close()
    with pytest.raises(StorageUnavailableError, match="does not answer"):
        scan.task(2)


@pytest.mark.parametrize("text", ["", "x", "x 0 0 1 1 1", "x 2 2 1 1 1", "x 0 1 1 1", "x a 1 1 1 1"])
def test_a_malformed_message_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Rerun.from_text(text)
