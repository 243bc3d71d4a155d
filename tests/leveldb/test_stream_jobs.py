"""Batches of streams, and patches: killed at each of their writes and submitted again, they count once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from structable.spi import (
    DataCorruptionError,
    Field,
    FindingLevel,
    RecordNotFoundError,
    Storage,
    TableSpecification,
    Value,
    connect,
)

from .support.killed_jobs import COUNT_WRITES, small_chunks  # noqa: F401 - a fixture
from .support.processes import Process

ROWS = 50
NEVER = 1_000
SUBMIT = (
    COUNT_WRITES
    + """
import json
import pyarrow as pa
from structable.spi import *
mode, batch, writes = receive().split()
skip = {"on_missing": "skip"} if mode == "patch" else {}
storage = connect(f"leveldb://{folder}")
job = storage.begin_write("items", mode=mode, stream="s", batch=int(batch), **skip)
keys = list(range(50))
if mode == "patch":
    arms = {"_arm": ["present"] * 60, "k": keys + list(range(60, 70)), "n": [2] * 60}
    puts = {"_arm": ["absent"] * 50, "k": keys, "n": [100] * 50}
    parts = [puts, arms]
elif mode == "changes":
    parts = [{"k": keys, "n": [2] * 50, "_change_type": ["+I"] * 50}] * 2
else:
    parts = [{"k": keys, "n": [2] * 50}] * 2
staged = [
    storage.stage(job, partition, 0, [pa.RecordBatch.from_pydict(part)]) for partition, part in enumerate(parts)
]
left = int(writes)
result = storage.commit_write(job, staged)
left = 1000
send(json.dumps([job.committed, result.applied, result.missing]))
storage.close()
"""
)
OWN = """
from structable.spi import connect
storage = connect(f"leveldb://{folder}")
send("ready")
receive()
storage.close()
"""
FIELDS = [Field.long("k"), Field.long("n")]
SUM = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
AFTER_PATCH = [(k, 100 if k % 2 else 2) for k in range(ROWS)]
AFTER_SUMS = [(k, 4 if k % 2 else 5) for k in range(ROWS)]
AFTER_OVERWRITE = [(k, 2) for k in range(ROWS)]


def create(folder: Path, *, feed: bool = False, sums: bool = False) -> None:
    options = {**(SUM if sums else {}), **({"changelog-producer": "lookup"} if feed else {})}
    with connect(f"leveldb://{folder}") as storage:
        storage.admin.create(TableSpecification("items", FIELDS, ["k"], ["n"], options))
        storage.table("items").upsert_many({"k": k, "n": 1} for k in range(0, ROWS, 2))


def submit(run: Callable[[str], Process], mode: str, batch: int = 1, writes: int = NEVER) -> str | int:
    """Return what the process tells: whether the batch was committed, and the result; or how it ended."""
    process = run(SUBMIT)
    process.send(f"{mode} {batch} {writes}")
    if writes < NEVER:
        return process.process.wait(60)
    told = process.receive()
    process.process.wait(60)
    return told


def rows(storage: Storage) -> list[tuple[object, Value]]:
    table = storage.table("items")
    found: list[tuple[object, Value]] = [(row["k"], row["n"]) for row in table.scan()]
    for value in {n for _, n in found}:
        assert [row["k"] for row in table.scan_index("n", value)] == [k for k, n in found if n == value]
    return found


@pytest.mark.parametrize("writes", range(6))
@pytest.mark.parametrize(
    ("mode", "feed", "after"),
    [
        ("patch", False, AFTER_PATCH),
        ("patch", True, AFTER_PATCH),
        ("changes", False, AFTER_SUMS),
        ("overwrite", False, AFTER_OVERWRITE),
    ],
)
def test_killed_batch_counts_once(
    folder: Path, run: Callable[[str], Process], mode: str, feed: bool, after: list[tuple[int, int]], writes: int
) -> None:
    """Killed after any write of its commit, and submitted again; the process that goes on completes it."""
    create(folder, feed=feed, sums=mode == "changes")
    before = [(k, 1) for k in range(0, ROWS, 2)]
    ended = submit(run, mode, writes=writes) if writes < 5 else submit(run, mode)
    with connect(f"leveldb://{folder}") as storage:
        committed = storage.begin_write("items", mode=mode, stream="s", batch=1).committed
        assert rows(storage) == (after if committed else before)
        if mode != "overwrite":  # which is decided by its last write
            assert committed is (writes > 0)
    if writes == 5:
        assert ended == ("[false, true, 10]" if mode == "patch" else "[false, true, 0]")
    missing = 10 if mode == "patch" and not committed else 0
    applied = "false" if committed else "true"
    assert submit(run, mode) == f"[{str(committed).lower()}, {applied}, {missing}]"
    assert submit(run, mode, 0) == "[true, false, 0]"
    with connect(f"leveldb://{folder}") as storage:
        assert rows(storage) == after
        assert not [one for one in storage.diagnose() if one.level is FindingLevel.PROBLEM]
        if feed:
            changes = list(storage.changes("items").read())
            assert len({change.version for change in changes}) == 2
            assert len(changes) == ROWS // 2 + ROWS // 2 + 2 * (ROWS // 2)


def test_patch_by_a_process_that_does_not_own_the_database(folder: Path, run: Callable[[str], Process]) -> None:
    """The owner commits: the number and the keys that are missing reach the caller."""
    pa = pytest.importorskip("pyarrow")
    create(folder)
    owner = run(OWN)
    assert owner.receive() == "ready"
    arms = pa.RecordBatch.from_pydict({"_arm": ["present"] * 40, "k": list(range(40)), "n": [7] * 40})
    with connect(f"leveldb://{folder}") as storage:
        job = storage.begin_write("items", mode="patch", stream="s", batch=0)
        with pytest.raises(RecordNotFoundError) as caught:
            storage.commit_write(job, [storage.stage(job, 0, 0, [arms])])
        assert (caught.value.table, caught.value.count) == ("items", 20)
        assert caught.value.keys == tuple((k,) for k in range(1, 20, 2))
        job = storage.begin_write("items", mode="patch", stream="s", batch=0, on_missing="skip")
        result = storage.commit_write(job, [storage.stage(job, 0, 0, [arms])])
        assert (result.applied, result.missing) == (True, 20)
        owner.end()
    with connect(f"leveldb://{folder}") as storage:
        assert storage.begin_write("items", mode="patch", stream="s", batch=0).committed


def test_batch_that_was_given_up_counts_as_committed(folder: Path, run: Callable[[str], Process]) -> None:
    """A decided batch whose staged rows were lost closes its table; given up, it does not come again."""
    create(folder)
    assert submit(run, "patch", writes=2) == -9
    for path in (folder / "staging").glob("*/*.run"):
        path.unlink()
    with connect(f"leveldb://{folder}") as storage:
        with pytest.raises(DataCorruptionError, match="batch 1 of stream items/s"):
            storage.begin_write("items", mode="patch", stream="s", batch=1)
        assert any("batch 1 of stream" in one.text for one in storage.diagnose())
        assert any("counts as committed" in one.text for one in storage.repair())
        assert storage.begin_write("items", mode="patch", stream="s", batch=1).committed
        assert not storage.begin_write("items", mode="patch", stream="s", batch=2).committed
        assert len(rows(storage)) >= ROWS // 2
