"""Failing file operations of a process that uses a LevelDB folder, and the database afterwards."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.variants import seeds

from .support.preload import FaultKind, Worker
from .support.workload import STEPS, acknowledged, check, states

_SEEDS = seeds("STRUCTABLE_TEST_FAULT_SEEDS", 20)


@pytest.mark.timeout(1200 + 3 * len(_SEEDS))
@pytest.mark.parametrize("kind", FaultKind)
def test_fault_at_any_file_operation(worker: Worker, quick_path: Path, kind: FaultKind) -> None:
    """Acknowledged steps are there, none is half there, errors are documented ones, and the store continues."""
    problems = []
    whole = 0
    for seed in _SEEDS:
        folder = quick_path / "case"
        folder.mkdir()
        choose = random.Random(f"{kind} {seed}")
        durability = ("machine", "process")[seed % 2]
        count = choose.choice((1, 1, 3, 1_000_000))
        if not whole:
            task = worker.run(folder=str(folder), seed=0, kind=kind, at=1 << 40, count=1, durability="machine")
            whole = int(str(task["operations"]))
            assert whole > 50, task
            shutil.rmtree(folder)
            folder.mkdir()
        at = choose.randint(1, whole)
        report = worker.run(
            folder=str(folder), seed=seed % 3, kind=kind, at=at, count=count, durability=durability, attempts=10
        )
        done = acknowledged(folder / "reported")
        case = f"{kind.name} at {at} of {whole}, {count} times, seed {seed}, {durability}: {report}"
        if "unexpected" in report:
            problems.append(case)
        elif kind not in (FaultKind.TORN_WRITE, FaultKind.KILL) and count <= 3 and done < STEPS:
            problems.append(f"it did not go on: {case}")
        try:
            check(folder / "store", states(seed % 3), done, min(done + 1, STEPS))
        except Exception as error:
            problems.append(f"{error} ({case})")
        shutil.rmtree(folder)
    assert not problems, "\n".join(problems)
