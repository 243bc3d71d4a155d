"""Write jobs among other committers, other schemas and jobs of the same id."""

import itertools
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from structable.backends.leveldb.engine import LevelDBEngine
from structable.backends.memory.engine import MemoryEngine
from structable.backends.memory.versions import VersionedMap
from structable.backends.ordered import BulkCommit, Engine, EngineSnapshot, OrderedStorage, StagedRun, WriteSet
from structable.spi import (
    Field,
    FieldSizeLimitError,
    StagedWrite,
    Storage,
    StorageUnavailableError,
    StructableError,
    TableNotFoundError,
    TableSpecification,
    UnsupportedOperationError,
    WriteJob,
    connect,
)

from .crashing import UnorderedEngine


def items(*indexes: str) -> TableSpecification:
    return TableSpecification("items", [Field.int("id"), Field.string("text")], ["id"], indexes)


def new_storage() -> Storage:
    storage = connect("memory://")
    storage.admin.create(items())
    return storage


def staged(
    storage: Storage, mode: str, job_id: str, texts: dict[int, str], batch: int | None = None
) -> tuple[WriteJob, list[StagedWrite]]:
    """Stage rows of a job, or of a batch of the stream that is called like the job."""
    name: dict[str, Any] = {"job_id": job_id} if batch is None else {"stream": job_id, "batch": batch}
    job = storage.begin_write("items", mode=mode, **name)
    rows = pa.record_batch([pa.array(list(texts), pa.int32()), pa.array(list(texts.values()))], names=["id", "text"])
    return job, [storage.stage(job, 0, 0, [rows])]


def test_two_stores_may_use_one_job_id() -> None:
    one, other = new_storage(), new_storage()
    first, second = staged(one, "upsert", "daily", {1: "one"}), staged(other, "upsert", "daily", {2: "other"})
    one.commit_write(*first)
    other.commit_write(*second)
    assert [row.id for row in other.table("items").scan()] == [2]


@pytest.mark.parametrize("mode", ["upsert", "insert", "replace", "overwrite"])
def test_rows_too_large_for_an_index_added_since(mode: str) -> None:
    storage = new_storage()
    job = staged(storage, mode, "job", {1: "x" * 3_000})
    storage.admin.create_or_update(items("text"))
    with pytest.raises(FieldSizeLimitError):
        storage.commit_write(*job)
    assert storage.table("items").count() == 0


def test_two_callers_that_overwrite_by_one_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first to have loaded its rows publishes them, although another caller began to load since."""
    storage = new_storage()
    job = staged(storage, "overwrite", "job", {1: "one"})
    commit, loads = MemoryEngine.commit, [threading.Event(), threading.Event()]
    published = threading.Event()

    def load(self: MemoryEngine, snapshot: EngineSnapshot | None, changes: WriteSet) -> None:
        if changes.derived:
            number = next(numbers)
            loads[number].set()
            assert (loads[1] if number == 0 else published).wait(60)
        commit(self, snapshot, changes)

    numbers = itertools.count()
    monkeypatch.setattr(MemoryEngine, "commit", load)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(storage.commit_write, *job)
        assert loads[0].wait(60)
        second = pool.submit(storage.commit_write, *job)
        assert first.result(60)
        published.set()
        assert not second.result(60)
    assert [row.id for row in storage.table("items").scan()] == [1]


@pytest.mark.parametrize("mode", ["upsert", "overwrite"])
def test_job_that_was_committed_longer_ago_than_ids_are_kept(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """What is found committed as it begins stays so, although its record is swept at once."""
    storage = new_storage()
    job = staged(storage, mode, "job", {1: "one"})
    assert storage.commit_write(*job)
    now, clock = time.time(), time.monotonic()
    monkeypatch.setattr("time.time", lambda: now + 8 * 86_400)
    monkeypatch.setattr("time.monotonic", lambda: clock + 8 * 86_400)
    again, rows = staged(storage, mode, "job", {2: "two"})
    assert again.committed
    assert not storage.commit_write(again, rows)
    assert [row.id for row in storage.table("items").scan()] == [1]
    storage.admin.drop("items")
    with pytest.raises(TableNotFoundError):
        storage.commit_write(again, rows)


@pytest.mark.parametrize("mode", ["upsert", "changes"])
def test_engine_without_progress_takes_no_merge_job(mode: str) -> None:
    storage = OrderedStorage(UnorderedEngine(VersionedMap()), "memory://")
    fields = [Field.int("id"), Field.int("n")]
    storage.admin.create(TableSpecification("bag", fields, (), options={"write-mode": "change-log"}))
    storage.admin.create(TableSpecification("first", fields, ["id"], options={"merge-engine": "first-row"}))
    storage.admin.create(TableSpecification("plain", fields, ["id"]))
    refused = UnsupportedOperationError
    with pytest.raises(refused, match=f"'first' takes no write job of mode {mode}"):
        storage.begin_write("first", mode=mode, job_id="a")
    with pytest.raises(refused):
        storage.begin_write("bag", mode=mode, job_id="b")
    for table, other in (("first", "replace"), ("bag", "insert"), ("plain", mode)):
        storage.abort_write(storage.begin_write(table, mode=other, job_id=table))


def test_two_committers_of_a_job_that_adds() -> None:
    """A job that adds is applied once, whichever of two calls commits it."""
    for _ in range(5):
        storage = connect("memory://")
        options = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
        storage.admin.create(TableSpecification("sums", [Field.int("id"), Field.int("n")], ["id"], options=options))
        job = storage.begin_write("sums", mode="changes", job_id="job")
        ids = pa.array(list(range(3_000)) * 2, pa.int32())
        batch = pa.record_batch([ids, ids, pa.array(["+I"] * 6_000)], ["id", "n", "_change_type"])
        work = job, [storage.stage(job, 0, 0, [batch])]
        with ThreadPoolExecutor(2) as threads:
            for commit in [threads.submit(storage.commit_write, *work) for _ in range(2)]:
                assert isinstance(commit.exception(), StructableError | None)
        storage.commit_write(*work)
        assert [row.n for row in storage.table("sums").scan()] == [2 * number for number in range(3_000)]


class BreakingEngine(MemoryEngine):
    """Fails at the second chunk that is loaded without a check."""

    left = 1

    def commit(self, snapshot: EngineSnapshot | None, changes: WriteSet) -> None:
        if snapshot is None and None not in changes.derived.values():
            self.left -= 1
            if self.left < 0:
                raise StorageUnavailableError("the disk is full")
        super().commit(snapshot, changes)

    def commit_bulk(self, bulk: BulkCommit) -> None:
        raise NotImplementedError


def test_rows_of_a_failed_overwrite_are_collected() -> None:
    storage = OrderedStorage(BreakingEngine(VersionedMap()), "memory://")
    storage.admin.create(items())
    job = staged(storage, "overwrite", "job", dict.fromkeys(range(5_000), "text"))
    with pytest.raises(StorageUnavailableError):
        storage.commit_write(*job)
    storage.abort_write(job[0])
    end = time.monotonic() + 30.0
    while _pairs(storage, b"\0\0\0\2") and time.monotonic() < end:
        time.sleep(0.01)
    assert _pairs(storage, b"\0\0\0\2") == 0


def _pairs(storage: OrderedStorage, space: bytes) -> int:
    snapshot = storage.engine.begin(True)
    return len(list(snapshot.scan(space, space + b"\xff")))


@pytest.mark.parametrize("backend", ["memory", "leveldb"])
@pytest.mark.parametrize("end", ["commit", "abort", "abort of a batch"])
def test_late_end_leaves_the_rows_of_the_next_job_of_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, backend: str
) -> None:
    """The next job has the same id, on a new table of the same name; or is the same batch, begun again."""
    url = {"memory": "memory://", "leveldb": f"leveldb://{tmp_path}/store"}[backend]
    batch = 7 if end == "abort of a batch" else None
    with connect(url) as storage:
        storage.admin.create(items())
        first, first_rows = staged(storage, "upsert", "load", {1: "first"}, batch)
        engine: type[Engine] = MemoryEngine if backend == "memory" else LevelDBEngine
        second: list[tuple[WriteJob, list[StagedWrite]]] = []
        drop_runs = engine.drop_runs

        def drop_late(self: Engine, runs: Iterable[StagedRun]) -> None:
            if not second:
                if batch is None:
                    storage.admin.drop("items")
                    storage.admin.create(items())
                second.append(staged(storage, "upsert", "load", {2: "second"}, batch))
            drop_runs(self, runs)

        monkeypatch.setattr(engine, "drop_runs", drop_late)
        if end == "commit":
            storage.commit_write(first, first_rows)
        else:
            storage.abort_write(first)
        [(job, rows)] = second
        assert storage.commit_write(job, rows).applied
        assert [row.id for row in storage.table("items").scan()] == [2]
