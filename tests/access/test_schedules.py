"""Random schedules over a fake store: the order of each key, every outcome, and what is sent together."""

from __future__ import annotations

import os
import random

import pytest

from tests.variants import seeds

from .support import fake_clock
from .support.schedule import Schedule, random_plan

ONE_SEED = os.environ.get("STRUCTABLE_TEST_SCHEDULE_SEED")
SHARES = 10


def run_schedule(seed: int) -> None:
    source = random.Random(seed)
    plan = random_plan(source)
    try:
        fake_clock.run(Schedule(plan, source).run())
    except BaseException as error:
        error.add_note(f"STRUCTABLE_TEST_SCHEDULE_SEED={seed}: {plan}")
        raise


@pytest.mark.parametrize("share", range(SHARES))
def test_random_schedules_keep_the_order_of_each_key(share: int) -> None:
    chosen = seeds("STRUCTABLE_TEST_SCHEDULES", 300)[share::SHARES] if ONE_SEED is None else [int(ONE_SEED)]
    for seed in chosen:
        run_schedule(seed)
