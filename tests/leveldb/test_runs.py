"""Staged runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from structable.backends.leveldb.engine import LevelDBEngine
from structable.backends.ordered.engine import Pair, RunLostError
from structable.backends.ordered.schema.job_records import runs_owner
from structable.spi import DataCorruptionError

from .support.engines import open_engine
from .support.processes import Process

OWNER = "0f" * 16
PAIRS = [(f"{number:06}".encode(), os.urandom(number % 500 + 1)) for number in range(3_000)]


@pytest.mark.parametrize("pairs", [PAIRS, [], [(b"k", bytes(3_000_000))]], ids=["many", "none", "large"])
def test_run_comes_back_as_it_was(engine: LevelDBEngine, pairs: list[Pair]) -> None:
    assert list(engine.read_run(engine.write_run(OWNER, iter(pairs)))) == pairs


@pytest.mark.parametrize("job", ["../../etc", "a/b", "x" * 200, "ünï", ".."])
def test_any_job_id_is_safe(folder: Path, engine: LevelDBEngine, job: str) -> None:
    owner = runs_owner(job, b"")
    state = engine.write_run(owner, iter(PAIRS[:1]))
    other = engine.write_run(OWNER, iter(PAIRS[:2]))
    [place] = [path for path in folder.rglob("*.run") if str(path).endswith(state.decode())]
    assert place.parent.parent == folder / "staging"
    assert {run.owner for run in engine.find_runs()} == {owner, OWNER}
    runs = engine.find_runs(owner)
    assert state in {run.state for run in runs}
    assert all(run.whole and abs(run.time - time.time()) < 60 for run in runs)
    engine.drop_runs(runs)
    engine.drop_runs(runs)
    assert {run.owner for run in engine.find_runs()} == {OWNER}
    with pytest.raises(RunLostError, match="is missing"):
        list(engine.read_run(state))
    assert list(engine.read_run(other)) == PAIRS[:2]


def test_run_that_fails_leaves_nothing(folder: Path, engine: LevelDBEngine) -> None:
    def pairs() -> Iterator[Pair]:
        yield PAIRS[0]
        raise KeyError("row")

    with pytest.raises(KeyError, match="row"):
        engine.write_run(OWNER, pairs())
    assert not [path for path in (folder / "staging").rglob("*") if path.suffix in (".run", ".new")]


@pytest.mark.parametrize("damage", ["cut", "cut to nothing", "flipped"])
def test_damaged_run_is_noticed(folder: Path, engine: LevelDBEngine, damage: str) -> None:
    state = engine.write_run(OWNER, iter(PAIRS))
    [path] = folder.rglob("*.run")
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 1
    else:
        del content[0 if damage == "cut to nothing" else len(content) - 8 :]
    path.write_bytes(content)
    with pytest.raises(DataCorruptionError):
        list(engine.read_run(state))


def test_runs_are_shared_by_processes(folder: Path, run: Callable[[str], Process]) -> None:
    engine = open_engine(folder)
    process = run(
        'engine = open_engine(folder)\nsend(engine.write_run("0f" * 16, iter([(b"k", b"v")])).hex()); receive()'
    )
    assert list(engine.read_run(bytes.fromhex(process.receive()))) == [(b"k", b"v")]
    engine.close()
