"""Four processes work on the same rows; afterwards every invariant holds."""

from __future__ import annotations

import pytest

from tests.datasets.support.stores import STORES
from tests.variants import chosen_seed

from .conftest import Place
from .support.invariants import violations
from .support.workers import Processes
from .support.workloads import WORKLOADS, open_system, operations_of

SHARED = [store for store in STORES if store not in ("memory", "leveldb_client")]


@pytest.mark.parametrize("shared_place", SHARED, indirect=True)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_invariants_hold_after_processes(place: Place, processes: Processes, workload: str) -> None:
    seed = str(chosen_seed(f"processes {workload}"))
    done = processes.run(workload, seed=seed, operations=operations_of(place.kind))
    with open_system(place.storage, workload) as system:
        assert violations(system) == [], f"seed {seed}, {done}"
    assert any(not name.endswith("Error") for name in done), f"all operations were refused: {done}"
