"""Batches of streams, and patches: their records in the catalog, crashes between their chunks, and who is answered."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
import pytest

from structable.backends.memory.engine import MemoryEngine
from structable.backends.memory.versions import VersionedMap
from structable.backends.ordered import BulkApplication, BulkCommit, OrderedStorage, WriteSet
from structable.backends.ordered.jobs import rows as job_rows
from structable.backends.ordered.schema.catalog import list_garbage
from structable.backends.ordered.schema.job_records import list_jobs
from structable.backends.ordered.schema.stream_records import StreamRecord, list_streams, stream_key
from structable.spi import (
    CommitResult,
    DataCorruptionError,
    Field,
    FindingLevel,
    InvalidFieldError,
    RecordNotFoundError,
    StagedWrite,
    Storage,
    StorageUnavailableError,
    TableSpecification,
    TransactionClosedError,
    UnsupportedOperationError,
    Value,
    WriteJob,
)

from .crashing import Crash, CrashingEngine, recovered

FIELDS = [Field.int("id"), Field.long("n")]
PLAIN = TableSpecification("items", FIELDS, ["id"], ["n"])
SUMS = PLAIN.evolve(options={"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"})
TYPES = {"id": pa.int32(), "n": pa.int64(), "_arm": pa.string(), "_change_type": pa.string()}
DAY = 86_400


def made(spec: TableSpecification = PLAIN, engine: MemoryEngine | None = None) -> OrderedStorage:
    storage = OrderedStorage(engine or MemoryEngine(VersionedMap()), "memory://")
    storage.admin.create(spec)
    return storage


def begin(storage: Storage, number: int = 1, mode: str = "upsert", stream: str = "s") -> WriteJob:
    if mode == "patch":
        return storage.begin_write("items", mode=mode, stream=stream, batch=number, on_missing="skip")
    return storage.begin_write("items", mode=mode, stream=stream, batch=number)


def stage(storage: Storage, job: WriteJob, *rows: Mapping[str, Value]) -> list[StagedWrite]:
    columns = {name: pa.array([row[name] for row in rows], TYPES[name]) for name in rows[0]}
    return [storage.stage(job, 0, 0, [pa.record_batch(columns)])]


def write(storage: Storage, number: int = 1, mode: str = "upsert", stream: str = "s") -> CommitResult:
    job = begin(storage, number, mode, stream)
    return storage.commit_write(job, stage(storage, job, {"id": number, "n": 1}))


def contents(storage: Storage) -> list[tuple[Value, ...]]:
    return [(row["id"], row["n"]) for row in storage.table("items").scan()]


def jobs(storage: OrderedStorage) -> list[str]:
    return [job_id for job_id, _ in storage.engine.look(lambda snapshot: list(list_jobs(snapshot)))]


def streams(storage: OrderedStorage) -> dict[str, int]:
    found = storage.engine.look(lambda snapshot: list(list_streams(snapshot)))
    return {stream: StreamRecord.decode(stream, raw).batch for _, stream, raw in found}


def put(storage: OrderedStorage, key: bytes, value: bytes) -> None:
    with closing(storage.engine.begin(False)) as snapshot:
        storage.engine.commit(snapshot, WriteSet(writes={key: value}))


def later(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    """Set the clocks forward; the next job sweeps."""
    now, clock = time.time(), time.monotonic()
    monkeypatch.setattr("time.time", lambda: now + days * DAY)
    monkeypatch.setattr("time.monotonic", lambda: clock + days * DAY)


MANY: list[dict[str, Value]] = [{"id": place % 9, "n": place} for place in range(20)]
JOBS: list[tuple[TableSpecification, str, Sequence[Mapping[str, Value]], int]] = [
    (PLAIN, "upsert", MANY, 0),
    (PLAIN, "insert", [{"id": place, "n": 7} for place in range(20, 30)], 0),
    (PLAIN, "delete", [{"id": place} for place in range(9)], 0),
    (PLAIN, "overwrite", MANY[:9], 0),
    (SUMS, "upsert", MANY, 0),
    (SUMS, "changes", [{**row, "_change_type": "+I"} for row in MANY], 0),
    (
        PLAIN,
        "patch",
        [{"_arm": arm, "id": place, "n": 100 * place} for place in range(9) for arm in ("present", "absent")]
        + [{"_arm": "present", "id": place, "n": 1} for place in range(-3, 0)],
        3,
    ),
    (SUMS, "patch", [{"_arm": "absent" if place % 2 else "present", "id": place, "n": 5} for place in range(9)], 3),
]
BEFORE: Sequence[dict[str, Value]] = [{"id": place, "n": 1} for place in (0, 2, 5)]


@pytest.mark.parametrize(
    ("spec", "mode", "rows", "missing"), JOBS, ids=[f"{job[1]}-{number}" for number, job in enumerate(JOBS)]
)
def test_crash_between_any_two_writes_of_a_batch(
    monkeypatch: pytest.MonkeyPatch,
    spec: TableSpecification,
    mode: str,
    rows: Sequence[Mapping[str, Value]],
    missing: int,
) -> None:
    """After recovery the batch is committed or it is not, and begun again it counts once."""
    monkeypatch.setattr(job_rows, "_CHUNK_ROWS", 2)

    def filled(engine: MemoryEngine) -> OrderedStorage:
        storage = made(spec, engine)
        storage.table("items").upsert_many(BEFORE)
        return storage

    expected = filled(MemoryEngine(VersionedMap()))
    job = begin(expected, 1, mode)
    assert expected.commit_write(job, stage(expected, job, *rows)) == CommitResult(True, missing)
    for writes in range(14):
        stored = VersionedMap()
        storage = filled(CrashingEngine(stored, writes))
        job = begin(storage, 1, mode)
        staged = stage(storage, job, *rows)
        try:
            result = storage.commit_write(job, staged)
        except Crash:
            storage = recovered(stored)
            again = begin(storage, 1, mode)
            assert again.committed is (writes > 0)
            result = storage.commit_write(again, stage(storage, again, *rows))
            assert result == CommitResult(writes == 0, missing if writes == 0 else 0)
            finished = False
        else:
            assert result == CommitResult(True, missing)
            finished = True
        assert contents(storage) == contents(expected)
        assert not storage.commit_write(job, staged)
        assert begin(storage, 0, mode).committed
        assert (jobs(storage), streams(storage)) == ([], {"s": 1})
        for value in {row[1] for row in contents(expected)}:
            found = [row["id"] for row in storage.table("items").scan_index("n", value)]
            assert found == [key for key, n in contents(expected) if n == value]
        if finished:
            return
    pytest.fail("the job never ended by itself")


@pytest.mark.parametrize("mode", ["upsert", "overwrite"])
def test_batches_leave_one_record_of_their_stream(mode: str) -> None:
    storage = made()
    for number in range(50):
        assert write(storage, number, mode)
        if number % 10 == 0:
            storage.abort_write(begin(storage, number + 1, mode))
    assert (jobs(storage), streams(storage)) == ([], {"s": 49})
    assert not storage.engine.find_runs()
    assert write(storage, 1, stream="other")
    storage.admin.create(PLAIN.evolve(name="items2"))
    job = storage.begin_write("items2", mode="upsert", stream="s", batch=5)
    assert storage.commit_write(job, [])
    storage.admin.drop("items")
    assert streams(storage) == {"s": 5}


def test_begin_of_a_committed_batch_writes_nothing() -> None:
    storage = made()
    assert write(storage, 3)
    before = storage.engine.begin(True)
    for number, mode in ((3, "upsert"), (0, "insert"), (2, "overwrite"), (3, "patch")):
        job = begin(storage, number, mode)
        assert job.committed
        storage.abort_write(job)
        assert storage.commit_write(job, stage(storage, job, {"id": 9, "n": 9})) == CommitResult(False, 0)
    after = storage.engine.begin(True)
    assert list(after.scan(b"", b"\xff")) == list(before.scan(b"", b"\xff"))


class LateEngine(MemoryEngine):
    """Applies a bulk commit, calls what was set, and then says that it is not available."""

    def meanwhile(self) -> None:
        return None

    traits = replace(MemoryEngine.traits, bulk_application=BulkApplication.IN_ORDER)
    fails = True

    def commit_bulk(self, bulk: BulkCommit) -> None:
        with closing(self.begin(True)) as latest:
            bulk.check(latest)
            for changes in (bulk.decision, *(chunk.changes for chunk in bulk.chunks(latest)), bulk.completion):
                self.commit(None, WriteSet(derived=dict(changes)))
        if self.fails:
            self.fails = False
            self.meanwhile()
            raise StorageUnavailableError("the database must be reopened")


def test_call_that_decided_is_answered_from_the_record() -> None:
    """Also in mode patch, with the number of missing keys; and not another call."""
    engine = LateEngine(VersionedMap())
    storage = made(engine=engine)
    storage.table("items").upsert({"id": 1, "n": 1})
    arms: list[dict[str, Value]] = [{"_arm": "present", "id": key, "n": 5} for key in (1, 2, 3)]
    batch = begin(storage, 4, "patch")
    other = storage.begin_write("items", mode="patch", on_missing="skip", job_id="job")
    for job in (batch, other):
        engine.fails = True
        staged = stage(storage, job, *arms)
        assert storage.commit_write(job, staged) == CommitResult(True, 2)
        assert storage.commit_write(job, staged) == CommitResult(False, 0)


def test_call_whose_batch_was_followed_returns_false() -> None:
    """The next batch took the place of the record that knew which call it was: none returns true wrongly."""
    engine = LateEngine(VersionedMap())
    storage = made(engine=engine)
    engine.meanwhile = lambda: _require(write(storage, 2))  # type: ignore[method-assign]
    assert write(storage, 1) == CommitResult(False)
    assert contents(storage) == [(1, 1), (2, 1)]


def _require(result: CommitResult) -> None:
    assert result


def test_batch_that_began_again_in_another_mode_is_not_committed_in_the_first() -> None:
    storage = made()
    first = begin(storage, 1, "upsert")
    staged = stage(storage, first, {"id": 1, "n": 1})
    second = begin(storage, 1, "replace")
    with pytest.raises(TransactionClosedError, match="begun again in mode replace"):
        storage.commit_write(first, staged)
    with pytest.raises(InvalidFieldError, match="mode upsert"):
        storage.commit_write(second, staged)
    assert contents(storage) == []
    assert storage.commit_write(second, stage(storage, second, {"id": 2, "n": 2}))
    assert not storage.commit_write(first, staged)
    assert contents(storage) == [(2, 2)]


def test_rows_staged_by_software_of_before_know_no_mode() -> None:
    storage = made()
    job = storage.begin_write("items", mode="upsert", job_id="job")
    [staged] = stage(storage, job, {"id": 1, "n": 1})
    document = json.loads(staged.state)
    del document["mode"]
    older = StagedWrite(staged.job_id, 0, 0, 1, json.dumps(document).encode())
    assert storage.commit_write(job, [older])


def test_living_batch_keeps_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep keeps a batch that was begun again after days, with its rows; one left alone is removed after 7 days."""
    storage = made()
    living, dead = begin(storage, 1), begin(storage, 1, stream="dead")
    staged = stage(storage, living, {"id": 1, "n": 1})
    stage(storage, dead, {"id": 2, "n": 2})
    later(monkeypatch, 6)
    assert not begin(storage, 1).committed
    later(monkeypatch, 3)
    assert not begin(storage, 1).committed
    assert jobs(storage) == ["batch 1 of stream items/s"]
    assert storage.commit_write(living, staged)
    later(monkeypatch, 1_000)
    assert begin(storage, 1).committed
    assert not begin(storage, 2).committed
    assert contents(storage) == [(1, 1)]
    with pytest.raises(TransactionClosedError):
        storage.commit_write(dead, [])


def test_overtaken_batches_are_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch below a committed one leaves neither a record nor staged rows nor what it loaded."""
    storage = made()
    late = begin(storage, 1, "overwrite")
    staged = stage(storage, late, {"id": 1, "n": 1})
    assert write(storage, 2)
    assert jobs(storage) == ["batch 1 of stream items/s"]
    later(monkeypatch, 0.01)
    begin(storage, 3)
    assert jobs(storage) == ["batch 3 of stream items/s"]
    assert not storage.engine.find_runs()
    assert not storage.commit_write(late, staged)
    assert contents(storage) == [(2, 1)]
    assert not storage.engine.look(list_garbage)


def test_streams_of_tables_dropped_by_older_software(monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows no streams and leaves their records: they say nothing about the next table, and are swept."""
    storage = made()
    write(storage, 5)
    [(key, _, raw)] = storage.engine.look(lambda snapshot: list(list_streams(snapshot)))
    storage.admin.drop("items")
    put(storage, key, raw)
    storage.admin.create(PLAIN)
    assert not begin(storage, 5).committed
    assert streams(storage) == {"s": 5}
    later(monkeypatch, 0.01)
    begin(storage, 5)
    assert streams(storage) == {}


@pytest.mark.parametrize("raw", [b"{", b"[]", b'{"table": "items", "identity": "", "batch": "x"}', b"\xff"], ids=repr)
def test_stream_whose_record_cannot_be_decoded(raw: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its batches are refused, and no others; the doctor reports it."""
    storage = made()
    job = begin(storage, 1, stream="broken")
    put(storage, stream_key("items", "broken"), raw)
    for call in (lambda: begin(storage, 1, stream="broken"), lambda: storage.commit_write(job, [])):
        with pytest.raises(DataCorruptionError, match="'broken'"):
            call()
    later(monkeypatch, 0.01)
    assert write(storage, 1)
    findings = list(storage.diagnose())
    assert [one.level for one in findings] == [FindingLevel.PROBLEM, FindingLevel.OK]
    assert "'broken'" in findings[0].text
    assert findings[1].text.startswith("1 stream of write jobs")
    storage.admin.drop("items")
    assert not list(storage.diagnose())


class UnorderedEngine(CrashingEngine):
    """Promises nothing about which chunks survive a crash."""

    traits = replace(MemoryEngine.traits, bulk_application=BulkApplication.UNORDERED)


def test_engine_without_progress_takes_batches_and_no_patches() -> None:
    storage = made(engine=UnorderedEngine(VersionedMap()))
    with pytest.raises(UnsupportedOperationError, match="mode patch"):
        begin(storage, 1, "patch")
    assert write(storage, 1)
    assert begin(storage, 1).committed


@pytest.mark.parametrize("engine", [MemoryEngine, CrashingEngine])
def test_refused_patch_writes_nothing(engine: type[MemoryEngine], monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing keys in any chunk refuse it, with the first 10 in key order; the batch stays open."""
    monkeypatch.setattr(job_rows, "_CHUNK_ROWS", 4)
    storage = made(engine=engine(VersionedMap()))
    storage.table("items").upsert_many([{"id": place, "n": 0} for place in range(0, 60, 2)])
    job = storage.begin_write("items", mode="patch", stream="s", batch=1)
    arms: list[Mapping[str, Value]] = [{"_arm": "present", "id": place, "n": place} for place in range(59, -1, -1)]
    staged = stage(storage, job, *arms)
    before = contents(storage)
    for _ in range(2):
        with pytest.raises(RecordNotFoundError) as caught:
            storage.commit_write(job, staged)
        assert (caught.value.count, caught.value.keys) == (30, tuple((place,) for place in range(1, 20, 2)))
        assert contents(storage) == before
        assert streams(storage) == {}
    storage.table("items").upsert_many([{"id": place, "n": 0} for place in range(1, 60, 2)])
    assert storage.commit_write(job, staged) == CommitResult(True, 0)
    assert contents(storage) == [(place, place) for place in range(60)]


def test_patches_of_rows_that_were_staged_under_another_schema() -> None:
    """Fields added and indexes made since find the rows as they are."""
    storage = made(PLAIN.evolve(indexes=[]))
    storage.table("items").upsert_many([{"id": 1, "n": 1}, {"id": 2, "n": 2}])
    job = begin(storage, 1, "patch")
    rows: list[dict[str, Value]] = [
        {"_arm": "present", "id": 1, "n": 7},
        {"_arm": "absent", "id": 3, "n": 7},
        {"_arm": "replace", "id": 2, "n": 8},
    ]
    staged = stage(storage, job, *rows)
    storage.admin.create_or_update(PLAIN.evolve(fields=[*FIELDS, Field.string("more")]))
    storage.table("items").upsert({"id": 1, "more": "kept"})
    storage.table("items").upsert({"id": 2, "more": "lost"})
    assert storage.commit_write(job, staged)
    assert [tuple(row.values()) for row in storage.table("items").scan()] == [
        (1, 7, "kept"),
        (2, 8, None),
        (3, 7, None),
    ]
    assert [row["id"] for row in storage.table("items").scan_index("n", 7)] == [1, 3]
    assert not list(storage.table("items").scan_index("n", 1))
