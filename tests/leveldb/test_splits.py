"""Plans over hard-link checkpoints, read by many processes."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from structable.backends.leveldb import splits
from structable.backends.leveldb.engine import LevelDBEngine
from structable.backends.leveldb.folder import DatabaseFolder
from structable.backends.leveldb.native.checkpoint import link_copy
from structable.backends.leveldb.splits import _READERS
from structable.backends.ordered.engine import WriteSet
from structable.spi import Field, TableSpecification, TransactionClosedError, col, connect, read_split
from tests.waiting import until

from .support.engines import SPACE, Bulk, key, open_engine, put, read_all
from .support.processes import LONGEST, SERVE, Process

END = SPACE + b"\xff"


def fill(engine: LevelDBEngine, rows: int) -> dict[bytes, bytes]:
    for start in range(0, rows, 1_000):
        changes = {key(f"{number:08}"): os.urandom(60) for number in range(start, start + 1_000)}
        engine.commit(None, WriteSet(dict(changes)))
    return read_all(engine)


@pytest.mark.parametrize("reopened", [False, True])
def test_splits_hold_the_snapshot_in_equal_parts(folder: Path, reopened: bool) -> None:
    engine = open_engine(folder)
    rows = fill(engine, 20_000)
    if reopened:
        engine.close()
        engine = open_engine(folder)
    plan = engine.plan_splits(SPACE, END, 4)
    put(engine, "00000000", b"later")
    parts = [list(engine.read_split(state)) for state in plan.states]
    assert [pair for part in parts for pair in part] == sorted(rows.items())
    assert len(parts) == 4
    assert all(3_500 < len(part) < 6_500 for part in parts)
    plan.release()
    assert os.listdir(folder / "checkpoints") == []
    with pytest.raises(TransactionClosedError):
        list(engine.read_split(plan.states[0]))
    engine.close()


def test_parts_of_an_interval(engine: LevelDBEngine) -> None:
    rows = sorted(fill(engine, 5_000).items())
    for begin, end, count in [(rows[10][0], rows[4_000][0], 3), (rows[10][0], rows[11][0], 5), (END, END + b"x", 2)]:
        plan = engine.plan_splits(begin, end, count)
        found = [pair for state in plan.states for pair in engine.read_split(state)]
        assert found == [pair for pair in rows if begin <= pair[0] < end]
        keyed = [part for state in plan.states for part in engine.read_rows(state, keyed=True)]
        assert [pair for part in keyed for pair in zip(part.keys, part.values, strict=True)] == found
        bare = [part for state in plan.states for part in engine.read_rows(state, keyed=False)]
        assert [part.values for part in bare] == [part.values for part in keyed]
        assert not any(part.keys for part in bare)
        assert 1 <= len(plan.states) <= count
        plan.release()


def test_uneven_keys_are_still_divided_evenly(engine: LevelDBEngine) -> None:
    """Most rows share a long prefix, and a few stand far away."""
    changes: dict[bytes, bytes | None] = {key("z" * 20): b"far", key("a"): b"far"}
    for number in range(20_000):
        changes[key("m" * 20 + f"{number:06}")] = os.urandom(40)
    engine.commit(None, WriteSet(changes))
    plan = engine.plan_splits(SPACE, END, 4)
    sizes = [sum(1 for _ in engine.read_split(state)) for state in plan.states]
    assert len(sizes) == 4
    assert all(3_000 < size < 7_000 for size in sizes)
    plan.release()


def test_plan_of_a_client_is_read_in_any_process(folder: Path, run: Callable[[str], Process]) -> None:
    assert run(SERVE).receive() == "ready"
    engine = open_engine(folder)
    rows = fill(engine, 10_000)
    plan = engine.plan_splits(SPACE, END, 3)
    reader = run(
        "engine = open_engine(folder)\nwhile line := receive(): send(len(list(engine.read_split(bytes.fromhex(line)))))"
    )
    total = 0
    for state in plan.states:
        reader.send(state.hex())
        total += int(reader.receive())
    assert total == len(rows)
    plan.release()
    engine.close()


def test_checkpoints_under_writes_hold_committed_states(engine: LevelDBEngine) -> None:
    """Two rows are always written together."""
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            value = b"%d" % number + bytes(5_000)
            engine.commit(None, WriteSet({key("a"): value, key(f"x{number % 500}"): value, key("z"): value}))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(15):
            plan = engine.plan_splits(SPACE, END, 1)
            rows = dict(engine.read_split(plan.states[0]))
            assert rows.get(key("a")) == rows.get(key("z"))
            plan.release()
    finally:
        stop.set()
        writer.join()


def test_checkpoint_waits_for_a_bulk_commit(engine: LevelDBEngine) -> None:
    planned: list[int] = []

    def plan() -> None:
        plan = engine.plan_splits(SPACE, END, 1)
        planned.append(len(list(engine.read_split(plan.states[0]))))
        plan.release()

    planner = threading.Thread(target=plan)

    def between(number: int) -> None:
        if number == 0:
            planner.start()
        planner.join(0.05)
        assert not planned

    engine.commit_bulk(Bulk([{key(number): b"x"} for number in range(3)], between))
    planner.join()
    assert planned == [3]


def test_plan_of_a_killed_planner_is_swept(folder: Path, run: Callable[[str], Process]) -> None:
    engine = open_engine(folder)
    fill(engine, 1_000)
    process = run(
        'engine = open_engine(folder)\nplan = engine.plan_splits(SPACE, SPACE + b"\\xff", 2)\nsend("ready"); receive()'
    )
    assert process.receive() == "ready"
    [left] = os.listdir(folder / "checkpoints")
    held = engine.plan_splits(SPACE, END, 1)
    assert left in os.listdir(folder / "checkpoints"), "a living planner keeps its plan"
    process.signal(signal.SIGKILL)
    process.process.wait()
    engine.plan_splits(SPACE, END, 1).release()
    assert len(os.listdir(folder / "checkpoints")) == 1
    assert len(list(engine.read_split(held.states[0]))) == 1_000
    held.release()
    engine.close()


def test_forked_child_neither_holds_nor_releases_a_plan(folder: Path) -> None:
    engine = open_engine(folder)
    fill(engine, 1_000)
    plan = engine.plan_splits(SPACE, END, 1)
    assert len(list(engine.read_split(plan.states[0]))) == 1_000
    child = os.fork()
    if child == 0:
        try:
            plan.release()
            assert len(list(engine.read_split(plan.states[0]))) == 1_000
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(list(engine.read_split(plan.states[0]))) == 1_000
    plan.release()
    engine.close()


def test_split_of_a_plan_that_is_released_meanwhile(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`read_split` raises `TransactionClosedError`, not an error of lost data, while a plan is being removed."""
    engine = open_engine(folder)
    fill(engine, 1_000)
    plan = engine.plan_splits(SPACE, END, 1)

    def remove_tables(path: Path, ignore_errors: bool = False) -> None:
        """Remove as much as another process may have removed by now."""
        for table in Path(path).rglob("*.ldb"):
            table.unlink()

    def copy_meanwhile(source: Path, target: Path) -> bool:
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "rmtree", remove_tables)
            plan.release()
        return link_copy(source, target)

    monkeypatch.setattr(splits, "link_copy", copy_meanwhile)
    with pytest.raises(TransactionClosedError):
        list(engine.read_split(plan.states[0]))
    engine.close()


def test_idle_readers_are_closed(engine: LevelDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("structable.backends.base.shared_resources.IDLE_SECONDS", 0.1)
    fill(engine, 1_000)
    plan = engine.plan_splits(SPACE, END, 1)
    scan = engine.read_split(plan.states[0])
    next(scan)
    assert len(_READERS._open) == 1
    scan.close()  # type: ignore[attr-defined]
    until(lambda: not _READERS._open)
    assert len(list(engine.read_split(plan.states[0]))) == 1_000
    plan.release()


@pytest.mark.parametrize("fate", [signal.SIGSTOP, signal.SIGKILL], ids=["stopped", "killed"])
def test_split_is_read_by_url_without_the_owner(folder: Path, run: Callable[[str], Process], fate: int) -> None:
    """The reading process neither asks the owner nor becomes one."""
    owner = run(SERVE)
    assert owner.receive() == "ready"
    url = f"leveldb://{folder}"
    with connect(url, request_timeout=0.5) as storage:
        storage.admin.create(TableSpecification("t", [Field.long("k"), Field.long("n")], ["k"], indexes=["n"]))
        storage.table("t").upsert_many({"k": number, "n": number % 10} for number in range(1_000))
        with storage.plan_scan("t", where=col("n") == 3, splits=2) as plan:
            owner.signal(fate)
            batches = [batch for split in plan.splits for batch in read_split(url, split, request_timeout=0.5)]
            assert sum(batch.num_rows for batch in batches) == 100
            if fate == signal.SIGKILL:
                owner.process.wait()
                assert not DatabaseFolder(folder).is_owned()
            owner.signal(signal.SIGCONT)


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("reads", [1, 2])
def test_owner_that_ends_while_a_scan_is_planned(
    folder: Path, run: Callable[[str], Process], reads: int, read_only: bool
) -> None:
    """A plan is one call: the loss of its first snapshot is not the caller's conflict."""
    owner = run(
        """
from structable.backends.leveldb.owner.connection import ServedConnection
from structable.spi import Field, TableSpecification, connect
storage = connect(f"leveldb://{folder}")
storage.admin.create(TableSpecification("t", [Field.long("k"), Field.long("n")], ["k"], indexes=["n"]))
storage.table("t").upsert_many({"k": number, "n": number % 10} for number in range(1_000))
send("ready")
left = int(receive())
original = ServedConnection.snapshot
def read(self, frame):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(self, frame)
ServedConnection.snapshot = read
send("ready")
receive()
"""
    )
    assert owner.receive() == "ready"
    with connect(f"leveldb://{folder}", read_only=read_only) as storage:
        owner.send(str(reads))
        assert owner.receive() == "ready"
        with storage.plan_scan("t", where=col("n") == 3, splits=2) as plan:
            rows = sum(batch.num_rows for split in plan.splits for batch in storage.read_split(split))
        assert rows == 100
        assert owner.process.wait(LONGEST) == -signal.SIGKILL
