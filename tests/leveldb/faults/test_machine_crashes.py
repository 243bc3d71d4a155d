"""Crashes of the machine at any file operation: what was acknowledged is there, and the store opens."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from .crashes import ACKNOWLEDGE, crash, read_record
from .preload import Worker, build
from .workload import STEPS, check, states

_STATES = int(os.environ.get("STRUCTABLE_TEST_FAULT_SEEDS", "14")) * 10


@pytest.mark.timeout(300 + _STATES)
@pytest.mark.parametrize("durability", ["machine", "process"])
def test_crash_at_any_moment(tmp_path: Path, durability: str) -> None:
    """With durability=process some prefix of the steps is there; with machine, all that was acknowledged."""
    worker = Worker(build(tmp_path))
    problems = []
    try:
        for seed in range(1 + _STATES // 300):
            folder = tmp_path / str(seed)
            folder.mkdir()
            record = folder / "record"
            report = worker.run(folder=str(folder), seed=seed, durability=durability, record=str(record))
            assert not report.get("error"), report
            events = read_record(record)
            known = states(seed)
            for case in range(min(_STATES, 300)):
                choose = random.Random(f"{seed} {case}")
                moment = choose.randint(1, len(events))
                done = max((int(one.data) for one in events[:moment] if one.kind == ACKNOWLEDGE), default=-1)
                target = folder / "crashed"
                crash(events[:moment], str(folder / "store"), target, choose)
                try:
                    check(target, known, done if durability == "machine" else -1, min(done + 1, STEPS))
                except Exception as error:
                    problems.append(f"seed {seed}, case {case}, event {moment} of {len(events)}, done {done}: {error}")
                shutil.rmtree(target)
    finally:
        worker.close()
    assert not problems, f"{len(problems)}:\n" + "\n".join(problems[:20])
