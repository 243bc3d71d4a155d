"""Jobs that are submitted again while their first attempt ends: at each file operation on the staged rows."""

from __future__ import annotations

import builtins
import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from structable.backends.leveldb.routed_engine import RoutedEngine
from structable.backends.ordered.jobs import jobs
from structable.backends.ordered.storage import OrderedStorage
from structable.spi import (
    Field,
    StagedWrite,
    Storage,
    StorageUnavailableError,
    TableSpecification,
    TransactionClosedError,
    WriteJob,
    connect,
)

pa = pytest.importorskip("pyarrow")

OPERATIONS = ["mkdir", "rename", "unlink", "rmdir", "listdir", "scandir", "stat", "lstat", "open"]
ROWS = 30
MINUTE = 60.0


@pytest.fixture
def storage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OrderedStorage]:
    """Connect to a database in which each call of `stage` below writes two runs."""
    monkeypatch.setattr(jobs, "_RUN_ROWS", ROWS)
    with connect(f"leveldb://{folder}", durability="process") as storage:
        assert isinstance(storage, OrderedStorage)
        storage.admin.create(TableSpecification("items", [Field.long("k"), Field.long("n")], ["k"]))
        yield storage


def begin(storage: Storage, kind: str, number: int, mode: str = "upsert") -> WriteJob:
    if kind == "id":
        return storage.begin_write("items", mode=mode, job_id=f"job {number}")
    return storage.begin_write("items", mode=mode, stream="s", batch=number)


def stage(storage: Storage, job: WriteJob, n: int) -> list[StagedWrite]:
    keys = list(range(ROWS))
    batch = pa.RecordBatch.from_pydict({"k": keys, "n": [n] * ROWS})
    return [storage.stage(job, 0, 0, [batch, batch])]


def contents(storage: Storage) -> set[int]:
    found = [row.n for row in storage.table("items").scan()]
    assert len(found) == ROWS
    return set(found)


@contextmanager
def at_operation(folder: Path, number: int, action: Callable[[], object]) -> Iterator[list[str]]:
    """Run an action before one of the operations on files below a folder; yields the operations so far."""
    met: list[str] = []

    def watched(name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as any of them
            if not isinstance(path, int) and os.fspath(path).startswith(str(folder)):
                met.append(name)
                if len(met) == number + 1:
                    action()
            return operation(path, *arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in OPERATIONS:
            patch.setattr(os, name, watched(name, getattr(os, name)))
        patch.setattr(builtins, "open", watched("open", open))
        yield met


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Set the clocks forward: the next job to begin sweeps."""
    now, clock = time.time(), time.monotonic()
    monkeypatch.setattr("time.time", lambda: now + seconds)
    monkeypatch.setattr("time.monotonic", lambda: clock + seconds)


@pytest.mark.parametrize("mode", ["upsert", "overwrite"])
@pytest.mark.parametrize("kind", ["id", "batch"])
def test_job_that_is_committed_while_it_is_staged_again(
    folder: Path, storage: OrderedStorage, kind: str, mode: str
) -> None:
    """The second attempt stages in peace and finds the job committed; nothing of it is left."""
    for number in itertools.count():
        first, second = begin(storage, kind, number, mode), begin(storage, kind, number, mode)
        staged = stage(storage, first, number)

        def commit(first: WriteJob = first, staged: list[StagedWrite] = staged) -> None:
            assert storage.commit_write(first, staged)

        with at_operation(folder / "staging", number, commit) as met:
            again = stage(storage, second, -1)
        over = len(met) <= number
        assert bool(storage.commit_write(second, again)) is over
        assert contents(storage) == {-1 if over else number}
        assert storage.engine.find_runs() == []
        assert not list((folder / "staging").iterdir())
        if over:
            break
    assert number >= 8


def test_batch_that_begins_again_while_it_is_aborted(folder: Path, storage: OrderedStorage) -> None:
    """What is staged once a batch has begun again after its abort is never dropped by that abort."""
    outcomes: list[bool] = []
    for number in itertools.count():
        first = begin(storage, "batch", number)
        stage(storage, first, -1)
        begun: list[tuple[WriteJob, list[StagedWrite]]] = []

        def begin_again(number: int = number, begun: list[Any] = begun) -> None:
            job = begin(storage, "batch", number)
            begun.append((job, stage(storage, job, number)))

        with at_operation(folder / "staging", number, begin_again):
            storage.abort_write(first)
        if not begun:
            break
        try:
            outcomes.append(storage.commit_write(*begun[0]).applied)
        except TransactionClosedError:  # it began before the abort
            outcomes.append(False)
            begin_again()
            assert storage.commit_write(*begun[1])
        assert contents(storage) == {number}
    assert outcomes == sorted(outcomes)
    assert True in outcomes


def test_sweep_leaves_what_a_batch_stages_that_begins_again(
    folder: Path, storage: OrderedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep has found the remains of an aborted attempt, and the next attempt stages before they are removed."""
    for number in itertools.count():
        first = begin(storage, "batch", number)
        stage(storage, first, -1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RoutedEngine, "drop_runs", unable)
            storage.abort_write(first)
        begun: list[tuple[WriteJob, list[StagedWrite]]] = []

        def begin_again(number: int = number, begun: list[Any] = begun) -> None:
            job = begin(storage, "batch", number)
            begun.append((job, stage(storage, job, number)))

        later(monkeypatch, 2 * MINUTE)
        with at_operation(folder / "staging", number, begin_again):
            begin(storage, "id", number)
        if not begun:
            break
        assert storage.commit_write(*begun[0])
        assert contents(storage) == {number}
    assert number >= 6


def unable(*_: object) -> None:
    raise StorageUnavailableError("the staged rows cannot be removed")


@pytest.mark.parametrize("kind", ["id", "batch"])
def test_sweep_leaves_what_an_attempt_writes(
    folder: Path, storage: OrderedStorage, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """An attempt that goes on long after its job was committed stages in peace, whenever a sweep comes."""
    for number in itertools.count():
        first, second = begin(storage, kind, 2 * number), begin(storage, kind, 2 * number)
        assert storage.commit_write(first, stage(storage, first, number))

        def sweep(number: int = number) -> None:
            later(monkeypatch, 2 * MINUTE)
            begin(storage, "id", 2 * number + 1)

        with at_operation(folder / "staging", number, sweep) as met:
            again = stage(storage, second, -1)
        assert not storage.commit_write(second, again)
        assert contents(storage) == {number}
        if len(met) <= number:
            break
    assert number >= 8


def test_runs_that_nobody_writes_any_more_are_swept(
    folder: Path, storage: OrderedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of killed processes: files cut off, empty folders, and folders as older software made them."""
    assert storage.commit_write(begin(storage, "id", 0), [])
    staging = folder / "staging"
    for owner, name in [("0" * 32, "a.new"), ("1" * 40, "job"), ("1" * 40, "b.run"), ("2" * 32, "")]:
        (staging / owner / name if name else staging / owner).parent.mkdir(exist_ok=True)
        (staging / owner).mkdir(exist_ok=True)
        if name:
            (staging / owner / name).write_bytes(b"x")
    (staging / "not a folder").touch()
    later(monkeypatch, 2 * MINUTE)
    begin(storage, "id", 1)
    assert [path.name for path in staging.iterdir()] == ["not a folder"]
