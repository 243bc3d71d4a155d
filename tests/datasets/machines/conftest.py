"""How state machines explore datasets: with the most examples on memory, and the fewest on HBase."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import cast

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from structable.spi import Storage
from tests.datasets.support.stores import emptied

EXAMPLES = int(os.environ.get("STRUCTABLE_TEST_EXAMPLES", "25"))
SHARES = {"memory": 1, "leveldb": 5, "postgresql": 5, "hbase": 25}
"""By the scheme of a store: it gets one in so many examples."""
STEPS = 40

Explore = Callable[[Callable[[Storage], RuleBasedStateMachine]], None]


@pytest.fixture
def explore(shared_store: Storage) -> Iterator[Explore]:
    """Return a function that runs machines on a store of each kind: `explore(RunsMachine)`."""
    examples = max(1, EXAMPLES // SHARES[shared_store.url.partition(":")[0]])

    def run(machine: Callable[[Storage], RuleBasedStateMachine]) -> None:
        run_state_machine_as_test(
            cast("type[RuleBasedStateMachine]", lambda: machine(shared_store)),
            settings=settings(
                max_examples=examples,
                stateful_step_count=STEPS,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )

    yield run
    emptied(shared_store)
