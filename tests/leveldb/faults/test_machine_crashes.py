"""Crashes of the machine at any file operation: acknowledged steps are there, and the store opens."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

import pytest

from tests.variants import seeds

from .support.crashes import ACKNOWLEDGE, CREATE, Event, crash, read_record
from .support.mixed import last_durable, turns
from .support.preload import Worker
from .support.workload import BATCHES, STEPS, State, check, states, states_after

_STATES = [seed * 10 + case for seed in seeds("STRUCTABLE_TEST_FAULT_SEEDS", 20) for case in range(10)]
_STATES_OF_RECORD = 300
_MIXED_STATES = _STATES[::2]


def _try_crashes(
    events: list[Event],
    folder: Path,
    cases: Iterable[int],
    known: list[State],
    durable: Callable[[int], int],
    batches: Sequence[int] = (),
) -> list[str]:
    """Crash at random moments, half the time soon after an acknowledged commit; return the failures.

    `durable` maps the number of acknowledged commits to the last one that survives the machine; `batches` are those
    commits that are batches of a stream.
    """
    acknowledged = [place for place, event in enumerate(events, 1) if event.kind == ACKNOWLEDGE]
    problems = []
    for case in cases:
        choose = random.Random(case)
        moment = choose.randint(1, len(events))
        if case % 2:
            moment = min(choose.choice(acknowledged) + choose.randint(0, 8), len(events))
        done = max((int(one.data) for one in events[:moment] if one.kind == ACKNOWLEDGE), default=-1)
        target = folder / "crashed"
        crash(events[:moment], str(folder / "store"), target, choose)
        try:
            check(target, known, durable(done), min(done + 1, len(known) - 1), batches=batches)
        except Exception as error:
            problems.append(f"case {case}, event {moment} of {len(events)}, done {done}: {error}")
        shutil.rmtree(target)
    return problems


@pytest.mark.timeout(1200 + len(_STATES))
@pytest.mark.parametrize("durability", ["machine", "process"])
def test_crash_at_any_moment(worker: Worker, quick_path: Path, durability: str) -> None:
    """With durability=process some prefix of the steps is there; with machine, every acknowledged step."""
    problems = []
    for seed, cases in _records(_STATES):
        folder = quick_path / str(seed)
        folder.mkdir()
        record = folder / "record"
        report = worker.run(folder=str(folder), seed=seed, durability=durability, record=str(record))
        assert report.get("error") == "", report
        known = states(seed)
        assert len(known) == STEPS + 1
        found = _try_crashes(
            read_record(record),
            folder,
            cases,
            known,
            (lambda done: done) if durability == "machine" else (lambda _: -1),
            BATCHES,
        )
        problems += [f"seed {seed}, {problem}" for problem in found]
    assert not problems, f"{len(problems)}:\n" + "\n".join(problems[:20])


@pytest.mark.timeout(1200 + len(_STATES))
@pytest.mark.parametrize("rotating", [False, True], ids=["one log", "many logs"])
def test_crash_between_commits_of_both_durabilities(worker: Worker, quick_path: Path, rotating: bool) -> None:
    """A commit that survives the machine is there with all commits before it, of any process."""
    problems = []
    for seed, cases in _records(_MIXED_STATES):
        folder = quick_path / str(seed)
        folder.mkdir()
        record = folder / "record"
        report = worker.run(folder=str(folder), seed=seed, durability="mixed", rotating=rotating, record=str(record))
        assert report.get("error") == "", report
        todo = turns(seed, rotating=rotating)
        events = read_record(record)
        logs = {event.path for event in events if event.kind == CREATE and event.path.endswith(".log")}
        assert not rotating or len(logs) > 8, logs
        known = states_after(turn.step for turn in todo)
        found = _try_crashes(events, folder, cases, known, partial(last_durable, todo))
        problems += [f"seed {seed}, {problem}" for problem in found]
    assert not problems, f"{len(problems)}:\n" + "\n".join(problems[:20])


def _records(cases: list[int]) -> Iterator[tuple[int, Iterator[int]]]:
    """Yield seeds of recorded processes, and the crashes to try with each."""
    return groupby(sorted(cases), lambda case: case // _STATES_OF_RECORD)
