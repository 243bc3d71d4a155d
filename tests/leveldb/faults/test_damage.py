"""Damaged files of every kind: the database opens with the right rows, or one clear error reports the damage."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from tests.variants import seeds

from .support.preload import FaultKind, Worker, build
from .support.workload import STEPS, acknowledged, check, open_store, perform, states, writer

_CASES = [seed * 7 + case for seed in seeds("STRUCTABLE_TEST_FAULT_SEEDS", 20) for case in range(7)]
_DAMAGES = ("cut", "emptied", "removed", "flipped", "zeroed", "swapped", "garbage")


def _damage(folder: Path, choose: random.Random) -> str:
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in ("LOG", "LOG.old", "LOCK"))
    kinds = sorted({path.suffix or path.name.partition("-")[0] for path in paths})
    kind = choose.choice(kinds)
    path = choose.choice([path for path in paths if (path.suffix or path.name.partition("-")[0]) == kind])
    content, damage = path.read_bytes(), choose.choice(_DAMAGES)
    size = len(content)
    if damage == "removed":
        path.unlink()
    elif damage == "emptied":
        path.write_bytes(b"")
    elif damage == "cut":
        os.truncate(path, choose.randint(0, max(size - 1, 0)))
    elif damage == "garbage":
        path.write_bytes(choose.randbytes(size))
    elif damage == "swapped":
        other = choose.choice(paths)
        path.write_bytes(other.read_bytes())
        other.write_bytes(content)
        damage += f" with {other.name}"
    elif size:
        begin = choose.randrange(size)
        changed = bytearray(content)
        if damage == "flipped":
            changed[begin] ^= 1 << choose.randrange(8)
        else:
            begin -= begin % 512
            changed[begin : begin + 4096] = bytes(len(changed[begin : begin + 4096]))
        damage += f" at {begin} of {size}"
        path.write_bytes(changed)
    return f"{path.name} {damage}"


@pytest.mark.timeout(1200 + len(_CASES))
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "killed"])
def test_damaged_file(quick_path: Path, closed: bool) -> None:
    known = states(0)
    whole = quick_path / "whole"
    whole.mkdir()
    if closed:
        perform(whole / "store", 0, "machine", writer(whole / "reported"), 1)
        open_store(whole / "store", durability="machine").close()
        with open_store(whole / "store", durability="machine") as storage:
            storage.table("b").delete((-1,))  # something for the log
            storage.table("a").delete((-1,))
    else:
        worker = Worker(build(quick_path))
        try:
            task = {"folder": str(whole), "seed": 0, "durability": "machine", "kind": FaultKind.KILL, "count": 1}
            whole_run = worker.run(**task, at=1 << 40)
            shutil.rmtree(whole)
            whole.mkdir()
            worker.run(**task, at=int(str(whole_run["operations"])) - 12)
        finally:
            worker.close()
    done = acknowledged(whole / "reported")
    problems = []
    for case in _CASES:
        choose = random.Random(case)
        folder = quick_path / "damaged"
        shutil.copytree(whole / "store", folder, ignore=shutil.ignore_patterns("socket"))
        what = _damage(folder, choose)
        try:
            # Where a killed process's log ended is unknown.
            check(folder, known, done if closed else 0, min(done + 1, STEPS), damaged=True)
        except Exception as error:
            problems.append(f"case {case}: {what}: {type(error).__name__}: {error}")
        shutil.rmtree(folder)
    assert not problems, f"{len(problems)} of {len(_CASES)}:\n" + "\n".join(problems)
