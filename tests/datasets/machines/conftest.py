"""How state machines explore datasets: on memory, and with fewer examples on LevelDB."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from structable.spi import Storage
from tests.datasets.support.stores import opened

EXAMPLES = int(os.environ.get("STRUCTABLE_TEST_EXAMPLES", "25"))
STEPS = 40

Explore = Callable[[Callable[[Storage], RuleBasedStateMachine]], None]


@pytest.fixture(params=["memory", "leveldb"])
def explore(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Explore]:
    """Return a function that runs machines on a store of each kind: `explore(RunsMachine)`."""
    examples = EXAMPLES if request.param == "memory" else max(1, EXAMPLES // 5)
    with opened(request.param, tmp_path, request) as storage:

        def run(machine: Callable[[Storage], RuleBasedStateMachine]) -> None:
            run_state_machine_as_test(
                cast("type[RuleBasedStateMachine]", lambda: machine(storage)),
                settings=settings(
                    max_examples=examples,
                    stateful_step_count=STEPS,
                    deadline=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )

        yield run
