"""Of two operations, one commits just before the other does: whatever both read, every invariant holds.

Threads overlap by chance; here each of many pairs does, so that what no row makes conflict is found, and found again
by its seed.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.variants import chosen_seed

from .conftest import Place
from .support.commits import ObservedCommits
from .support.invariants import violations
from .support.workloads import WORKLOADS, Action, act, open_system, operations_of, work

BEFORE = 6
"""So many operations come before each pair."""


@pytest.mark.parametrize("shared_place", ["memory"], indirect=True)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_invariants_hold_after_overlapping_pairs(place: Place, workload: str) -> None:
    seed = os.environ.get("STRUCTABLE_TEST_OPERATIONS_SEED") or str(chosen_seed(f"pairs {workload}"))
    chance = random.Random(seed)
    actions = list(dict.fromkeys(WORKLOADS[workload]))
    system = open_system(place.storage, workload)
    between: list[Action | None] = []  # what is done before the first commit, before the second one, ...
    done: list[str] = []

    def interfere() -> None:
        action = between.pop(0) if between else None
        if action is not None:
            done.append(act(system, action, chance))

    overlapped = open_system(ObservedCommits(place.storage, interfere, lambda: None), workload)
    for number in range(operations_of(place.kind) // 2):
        work(system, workload, f"{seed}/{number}", BEFORE)
        between[:] = [*[None] * chance.choice([0, 0, 1]), chance.choice(actions)]
        done[:] = []
        done.append(act(overlapped, chance.choice(actions), chance))
        assert violations(system) == [], f"seed {seed}, pair {number}: {' in '.join(done)}"
