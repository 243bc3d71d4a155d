"""Random programs of writers, workers, crashes and expired feeds: the result equals the batch join at every commit.

`STRUCTABLE_TEST_JOIN_PROGRAMS=20000` runs so many on memory, and `STRUCTABLE_TEST_JOIN_SEED=7` one of them.
"""

from __future__ import annotations

import os
import uuid

import pytest

from structable.spark_bridge.joins import progress
from structable.spi import connect
from tests.variants import seeds

from .support.clocks import LeaseClock
from .support.programs import run_program

GROUP = 50


def chosen() -> list[int]:
    one = os.environ.get("STRUCTABLE_TEST_JOIN_SEED")
    return [int(one)] if one else seeds("STRUCTABLE_TEST_JOIN_PROGRAMS", 200)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> LeaseClock:
    clock = LeaseClock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


@pytest.mark.parametrize("group", range(0, len(chosen()), GROUP))
def test_result_equals_the_batch_join_at_every_commit(group: int, clock: LeaseClock) -> None:
    for seed in chosen()[group : group + GROUP]:
        url = f"memory://{uuid.uuid4().hex}"
        with connect(url) as storage:
            run_program(storage, url, seed, clock)
