"""Jobs whose rows are merged: a chunk that a crash leaves in place is never merged twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from structable.backends.leveldb.native.database import Database, WriteFailedError
from structable.spi import CommitOutcomeUnknownError, Field, Storage, TableSpecification, connect

from .support.killed_jobs import COUNT_WRITES, OPEN, small_chunks  # noqa: F401 - a fixture
from .support.processes import Process

ROWS = 50
NEVER = 1_000
JOB = (
    COUNT_WRITES
    + """
import pyarrow as pa
from structable.spi import *
mode, indexed, writes = receive().split()
storage = connect(f"leveldb://{folder}")
options = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "fields.c.aggregate-function": "count"}
fields = [Field.long("k"), Field.long("n"), Field.long("c")]
storage.admin.create_or_update(TableSpecification("sums", fields, ["k"], ["n"] * int(indexed), options))
job = storage.begin_write("sums", mode=mode, job_id="load")
keys = list(range(50))
columns = {"k": keys + keys, "n": [2] * 100, "c": [1] * 100}
if mode == "changes":
    columns["_change_type"] = ["+I"] * 100
staged = [storage.stage(job, partition, 0, [pa.RecordBatch.from_pydict(columns)]) for partition in (1, 0)]
left = int(writes)
storage.commit_write(job, staged)
left = 1000
storage.close()
"""
)
BAG_JOB = (
    COUNT_WRITES
    + """
import pyarrow as pa
from structable.spi import *
mode, writes = receive().split()
words = [str(number) for number in range(50)]
kinds = {"_change_type": ["-D"] * 50} if mode == "changes" else {}
with connect(f"leveldb://{folder}") as storage:
    job = storage.begin_write("bag", mode=mode, job_id="load")
    staged = [storage.stage(job, 0, 0, [pa.RecordBatch.from_pydict({"word": words, **kinds})])]
    left = int(writes)
    storage.commit_write(job, staged)
    left = 1000
"""
)


def submit(run: Callable[[str], Process], mode: str, *, indexed: bool, writes: int = NEVER) -> int:
    process = run(JOB)
    process.send(f"{mode} {int(indexed)} {writes}")
    return process.process.wait(60)


def require_sums(storage: Storage, times: int, *, indexed: bool) -> None:
    table = storage.table("sums")
    rows = [(row.k, row.n, row.c) for row in table.scan()]
    assert rows == [(k, 8 * times, 4 * times) for k in range(ROWS if times else 0)]
    if indexed and times:
        assert [row.k for row in table.scan_index("n", 8 * times)] == list(range(ROWS))
        assert list(table.scan_index("n", 4 * times)) == []


@pytest.mark.parametrize("writes", range(6))
@pytest.mark.parametrize(("mode", "indexed"), [("upsert", False), ("upsert", True), ("changes", False)])
def test_killed_merge_job_adds_once(
    folder: Path, run: Callable[[str], Process], writes: int, mode: str, indexed: bool
) -> None:
    """Killed after any of its writes (the decision, three chunks, the completion), and submitted again."""
    assert submit(run, mode, indexed=indexed, writes=writes) == (-9 if writes < 5 else 0)
    with connect(f"leveldb://{folder}") as storage:
        require_sums(storage, 1 if writes else 0, indexed=indexed)
    assert submit(run, mode, indexed=indexed) == 0
    with connect(f"leveldb://{folder}") as storage:
        require_sums(storage, 1, indexed=indexed)


def test_killed_again_in_each_recovery(folder: Path, run: Callable[[str], Process]) -> None:
    """Each recovery continues after the last chunk in place, here by one chunk."""
    assert submit(run, "upsert", indexed=True, writes=1) == -9
    for _ in range(3):
        assert run(OPEN).process.wait(60) == -9
    assert run(OPEN).process.wait(60) == 0, "only the completion was missing"
    with connect(f"leveldb://{folder}") as storage:
        require_sums(storage, 1, indexed=True)


@pytest.mark.parametrize("failing", [2, 3, 5])
def test_failed_write_is_completed_once(
    folder: Path, run: Callable[[str], Process], monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """The owner reopens the database, and writes what is missing of the job."""
    pa = pytest.importorskip("pyarrow")
    assert submit(run, "upsert", indexed=True) == 0
    real, count = Database.write, 0

    def write(self: Database, parts: tuple[Mapping[bytes, bytes | None], ...], sync: bool) -> None:
        nonlocal count
        count += 1
        if count == failing:
            raise WriteFailedError("the disk is full")
        real(self, parts, sync)

    with connect(f"leveldb://{folder}") as storage:
        job = storage.begin_write("sums", mode="upsert", job_id="next")
        rows = pa.RecordBatch.from_pydict({"k": list(range(ROWS)), "n": [8] * ROWS, "c": [1] * ROWS})
        staged = [storage.stage(job, partition, 0, [rows]) for partition in range(1)]
        monkeypatch.setattr(Database, "write", write)
        with pytest.raises(CommitOutcomeUnknownError):
            storage.commit_write(job, staged)
        monkeypatch.undo()
        storage.commit_write(job, staged)
        assert [(row.k, row.n, row.c) for row in storage.table("sums").scan()] == [(k, 16, 5) for k in range(ROWS)]
        assert [row.k for row in storage.table("sums").scan_index("n", 16)] == list(range(ROWS))


@pytest.mark.parametrize("writes", range(6))
@pytest.mark.parametrize(("mode", "step"), [("changes", -1), ("insert", 1)])
def test_killed_job_of_a_bag_counts_once(
    folder: Path, run: Callable[[str], Process], writes: int, mode: str, step: int
) -> None:
    """A job takes away, or adds, one of three equal rows of each of 50 words."""

    def count() -> Counter[object]:
        with connect(f"leveldb://{folder}") as storage:
            return Counter(row["word"] for row in storage.table("bag").scan())

    def submit_bag(writes: int) -> int:
        process = run(BAG_JOB)
        process.send(f"{mode} {writes}")
        return process.process.wait(60)

    with connect(f"leveldb://{folder}") as storage:
        storage.admin.create(TableSpecification("bag", [Field.string("word")], (), [], {"write-mode": "change-log"}))
        storage.table("bag").insert_many([{"word": str(number)} for number in range(ROWS)] * 3)
    assert submit_bag(writes) == (-9 if writes < 5 else 0)
    after = dict.fromkeys(map(str, range(ROWS)), 3 + step)
    assert count() == (after if writes else dict.fromkeys(after, 3))
    assert submit_bag(NEVER) == 0
    assert count() == after
