"""What passes by itself is tried again by a running worker; what does not ends it, and its caller hears of it."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator
from functools import partial

import pytest

from structable.spark_bridge.joins import JoinProgress, JoinWorker
from structable.spark_bridge.joins.step import Stepper
from structable.spi import PlanChangedError, Storage, StorageUnavailableError, connect
from tests.waiting import until

from .support.tables import ORDERS, PRODUCTS, join_of


@pytest.fixture
def storage() -> Iterator[Storage]:
    with connect(f"memory://{uuid.uuid4().hex}") as storage:
        storage.admin.create(ORDERS)
        storage.admin.create(PRODUCTS)
        yield storage


def test_passing_failures_are_tried_again(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    original, stop = Stepper.step, threading.Event()
    failures = [StorageUnavailableError("gone for a moment")] * 2

    def failing(stepper: Stepper) -> JoinProgress:
        if failures:
            raise failures.pop()
        stop.set()
        return original(stepper)

    with JoinWorker(join_of(storage.url), poll=0.001) as worker:
        monkeypatch.setattr(Stepper, "step", failing)
        with caplog.at_level(logging.WARNING, "structable.joins"):
            worker.run(stop)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert storage.table("named_orders").count() == 0


def test_lasting_failures_end_the_thread(storage: Storage) -> None:
    with JoinWorker(join_of(storage.url)) as worker:
        worker.step()
    with JoinWorker(join_of(storage.url, "left"), poll=0.001) as worker:
        worker.start()
        assert worker._thread is not None
        worker._thread.join(60)
        with pytest.raises(PlanChangedError, match="rebuild"):
            worker.stop()
        worker.stop()
        worker.rebuild()
        worker.start()
        storage.table("orders").upsert({"id": "a"})
        worker.run_available()
        worker.stop()
    assert storage.table("named_orders").count() == 1


def _has(storage: Storage, count: int) -> bool:
    return storage.admin.exists("named_orders") and storage.table("named_orders").count() == count


def test_running_worker_is_woken_by_commits_to_its_tables(storage: Storage) -> None:
    with JoinWorker(join_of(storage.url, "left"), poll=3600.0) as worker:
        worker.start()
        for count in range(1, 4):
            storage.table("orders").upsert({"id": f"{count}"})
            until(partial(_has, storage, count))
        worker.stop()
