"""Random programs of writers, workers, crashes and expired feeds: the result equals the batch join at every commit.

`STRUCTABLE_TEST_JOIN_PROGRAMS=20000` runs so many on memory, and `STRUCTABLE_TEST_JOIN_SEED=7` one of them.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable

import pytest
from pyspark.sql import SparkSession

from structable.spark_bridge.joins import ForeignKeyJoin, JoinWorker, progress
from structable.spark_bridge.joins.affected import Changes
from structable.spark_bridge.joins.distributed import SparkSteps
from structable.spark_bridge.joins.kernel import Kernel
from structable.spark_bridge.joins.rebuild import LargeSteps, MergePass, Staged
from structable.spark_bridge.joins.stores import JoinStores
from structable.spi import StagedWrite, Storage, WriteJob, connect
from tests.variants import seeds

from .support import programs
from .support.clocks import LeaseClock
from .support.programs import run_program
from .support.tables import ORDERS, PRODUCTS, join_of, rows_of, told

GROUP = 50


def chosen() -> list[int]:
    one = os.environ.get("STRUCTABLE_TEST_JOIN_SEED")
    return [int(one)] if one else seeds("STRUCTABLE_TEST_JOIN_PROGRAMS", 200)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> LeaseClock:
    clock = LeaseClock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


class StepsByKey(MergePass):
    """Large steps as the Spark form takes them in the driver, without a session."""

    def stage_changes(self, stores: JoinStores, kernel: Kernel, job: WriteJob, changes: Changes) -> Staged | None:
        steps = SparkSteps(SparkSession.__new__(SparkSession), self._large)
        staged = steps._stage_selected(stores, kernel, job, changes)
        return staged or super().stage_changes(stores, kernel, job, Changes.after(changes.since))


class WorkerByKey(JoinWorker):
    def __init__(self, join: ForeignKeyJoin, **limits: int) -> None:
        super().__init__(join, small=0, large=limits.get("large", 1_000_000))

    def _large_steps(self, large: int) -> LargeSteps:
        return StepsByKey(large)


@pytest.mark.parametrize("worker", [JoinWorker, WorkerByKey])
@pytest.mark.parametrize("group", range(0, len(chosen()), GROUP))
def test_result_equals_the_batch_join_at_every_commit(
    group: int, worker: type[JoinWorker], clock: LeaseClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "JoinWorker", worker)
    for seed in chosen()[group : group + GROUP]:
        url = f"memory://{uuid.uuid4().hex}"
        with connect(url) as storage:
            run_program(storage, url, seed, clock)


@pytest.mark.parametrize("worker", [JoinWorker, WorkerByKey])
def test_error_after_the_commit_of_a_large_step(
    worker: type[JoinWorker], clock: LeaseClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The positions move with the result: otherwise the next step would take its rows for those of the last one."""
    url = f"memory://{uuid.uuid4().hex}"
    with connect(url) as storage:
        storage.admin.create(ORDERS)
        storage.admin.create(PRODUCTS)
        storage.table("products").upsert_many([{"sku": "x", "name": "foo"}, {"sku": "y", "name": "bar"}])
        storage.table("orders").upsert({"id": "a", "product": "x"})
        with worker(join_of(url), small=0) as stepping:
            stepping.step()
            storage.table("orders").upsert({"id": "a", "product": "y"})
            commit = type(storage).commit_write

            def commit_and_fail(store: Storage, job: WriteJob, writes: Iterable[StagedWrite]) -> None:
                monkeypatch.undo()
                commit(store, job, writes)
                raise MemoryError

            monkeypatch.setattr(type(storage), "commit_write", commit_and_fail)
            with pytest.raises(MemoryError):
                stepping.step()
            storage.table("orders").upsert({"id": "a", "product": "x"})
            stepping.step()
            assert (rows_of(storage), stepping.verify()) == ([{"id": "a", "pieces": None, "name": "foo"}], 0)
            assert [kind for kind, _ in told(storage)] == ["+I", "-U", "+U", "-U", "+U"]
