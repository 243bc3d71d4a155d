"""Eight threads with one `SystemData` work on the same rows; afterwards every invariant holds."""

from __future__ import annotations

import pytest

from tests.variants import chosen_seed

from .conftest import Place
from .support.invariants import violations
from .support.workers import in_threads
from .support.workloads import WORKLOADS, open_system, operations_of


@pytest.mark.parametrize("workload", WORKLOADS)
def test_invariants_hold_after_threads(place: Place, workload: str) -> None:
    seed = str(chosen_seed(f"threads {workload}"))
    with open_system(place.storage, workload) as system:
        done = in_threads(system, workload, seed=seed, operations=operations_of(place.kind), threads=8)
        assert violations(system) == [], f"seed {seed}, {done}"
    assert any(not name.endswith("Error") for name in done), f"all operations were refused: {done}"
