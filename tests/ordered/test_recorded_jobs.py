"""Write jobs of tables with change feeds: a crash between their chunks neither loses nor repeats any change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pytest

from structable.backends.memory.engine import MemoryEngine
from structable.backends.memory.versions import VersionedMap
from structable.backends.ordered import OrderedStorage
from structable.backends.ordered.engine import Pair, RunLostError
from structable.backends.ordered.jobs import rows as job_rows
from structable.spi import (
    Cast,
    DataCorruptionError,
    Derived,
    Field,
    StagedWrite,
    Storage,
    TableSpecification,
    UnsupportedOperationError,
    Value,
    WriteJob,
)

from .crashing import Crash, CrashingEngine, UnorderedEngine, recovered
from .recorded import Recorded, commits, entries

FIELDS = [Field.int("id"), Field.string("text"), Field.long("n")]
TYPES = {"id": pa.int32(), "text": pa.string(), "n": pa.int64(), "_change_type": pa.string(), "_arm": pa.string()}
DEDUPLICATE: Mapping[str, str] = {}
SUM = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "fields.text.aggregate-function": "min"}
BAG = {"write-mode": "change-log"}

Rows = Sequence[Mapping[str, Value]]


def made(producer: str, options: Mapping[str, str] = DEDUPLICATE, engine: MemoryEngine | None = None) -> Storage:
    storage = OrderedStorage(engine or MemoryEngine(VersionedMap()), "memory://")
    storage.admin.create(spec(producer, options))
    return storage


def spec(producer: str, options: Mapping[str, str] = DEDUPLICATE) -> TableSpecification:
    key = [] if "write-mode" in options else ["id"]
    return TableSpecification("items", FIELDS, key, ["text"], options={**options, "changelog-producer": producer})


def staged(storage: Storage, mode: str, *partitions: Rows, job_id: str = "job") -> tuple[WriteJob, list[StagedWrite]]:
    """Begin a job and stage partitions; the columns of each are those of its first row."""
    job = storage.begin_write("items", mode=mode, job_id=job_id)
    return job, [storage.stage(job, number, 0, [batch(rows)]) for number, rows in enumerate(partitions)]


def batch(rows: Rows) -> pa.RecordBatch:
    columns = {name: pa.array([row[name] for row in rows], TYPES[name]) for name in rows[0]}
    return pa.record_batch(columns)


def run(storage: Storage, mode: str, *partitions: Rows) -> list[Recorded]:
    """Run a job and return what it appended to the feed, sorted where no order is promised."""
    before = len(commits(storage, "items"))
    assert storage.commit_write(*staged(storage, mode, *partitions)).applied
    found = commits(storage, "items")[before:]
    assert len(found) < 2, "several versions"
    return found[0] if found else []


PRESENT: Rows = [{"id": 1, "text": "a", "n": 1}, {"id": 2, "text": "b", "n": 2}, {"id": 3, "text": "c", "n": 3}]


def filled(producer: str, options: Mapping[str, str] = DEDUPLICATE, engine: MemoryEngine | None = None) -> Storage:
    storage = made(producer, options, engine)
    if options is BAG:
        storage.table("items").insert_many(PRESENT)
    else:
        storage.table("items").upsert_many(PRESENT)
    return storage


def test_engine_without_progress_takes_no_jobs_of_tables_with_feeds() -> None:
    storage = made("none", engine=UnorderedEngine(VersionedMap()))
    work = staged(storage, "insert", PRESENT)
    storage.admin.create_or_update(spec("lookup"))
    with pytest.raises(UnsupportedOperationError, match="change feed"):
        storage.commit_write(*work)
    with pytest.raises(UnsupportedOperationError, match="change feed"):
        storage.begin_write("items", mode="upsert", job_id="other")
    assert storage.table("items").count() == 0


def test_overwrite_from_before_the_feed_counts_as_committed() -> None:
    storage = made("none")
    done = staged(storage, "overwrite", PRESENT)
    storage.commit_write(*done)
    storage.admin.create_or_update(spec("lookup"))
    assert storage.begin_write("items", mode="overwrite", job_id="job").committed
    assert not storage.commit_write(*done).applied


class LosingEngine(CrashingEngine):
    """Has lost the runs of jobs."""

    def read_run(self, state: bytes) -> Iterator[Pair]:
        raise RunLostError("the staged rows are gone")


RETRACTS: Sequence[str] = ("-D", "+I")
JOBS: list[tuple[Mapping[str, str], str, list[Rows]]] = [
    (DEDUPLICATE, "upsert", [[{"id": i, "text": str(i % 2)} for i in range(9)], [{"id": 4, "text": "z"}]]),
    (DEDUPLICATE, "insert", [[{"id": i, "text": str(i)} for i in range(4, 15)]]),
    (DEDUPLICATE, "replace", [[{"id": i, "text": str(i)} for i in range(11)]]),
    (DEDUPLICATE, "update", [[{"id": i, "n": i % 2} for i in (3, 1, 2)]]),
    (DEDUPLICATE, "delete", [[{"id": i} for i in range(11)]]),
    (DEDUPLICATE, "changes", [[{"_change_type": RETRACTS[i % 2], "id": i} for i in range(11)]]),
    (
        DEDUPLICATE,
        "patch",
        [
            [{"_arm": "absent", "id": i, "n": 100 + i} for i in range(9) if i != 3],
            [{"_arm": "present", "id": i, "text": "x"} for i in range(9) if i != 3],
            [{"_arm": "delete", "id": 3, "n": None}, {"_arm": "replace", "id": 20, "n": 1}],
        ],
    ),
    (SUM, "upsert", [[{"id": i % 4, "n": i} for i in range(20)], [{"id": i % 9, "n": i} for i in range(20)]]),
    (BAG, "insert", [[{"id": i, "text": None} for i in range(8)]]),
    (BAG, "changes", [[{"_change_type": RETRACTS[i % 2], **PRESENT[i % 3]} for i in range(20)]]),
]
CASES = [(producer, *job) for producer in ("lookup", "input") for job in JOBS]


@pytest.mark.parametrize(("producer", "options", "mode", "partitions"), CASES)
def test_crash_between_any_two_writes_of_a_job(
    monkeypatch: pytest.MonkeyPatch, producer: str, options: Mapping[str, str], mode: str, partitions: list[Rows]
) -> None:
    """After each recovery, which crashes too, rows and feed are those of a job that was not interrupted."""
    monkeypatch.setattr(job_rows, "_CHUNK_ROWS", 2)
    expected = filled(producer, options)
    run(expected, mode, *partitions)
    for writes in range(1, 12):
        stored = VersionedMap()
        storage = filled(producer, options, CrashingEngine(stored, writes))
        work = staged(storage, mode, *partitions)
        try:
            finished = bool(storage.commit_write(*work))
        except Crash:
            finished = False
            storage = recovered(stored)
        assert contents(storage) == contents(expected)
        assert list(map(sorted_records, commits(storage, "items"))) == list(
            map(sorted_records, commits(expected, "items"))
        )
        newest = entries(storage, "items")[-1].version
        numbers = [entry.chunk for entry in entries(storage, "items") if entry.version == newest]
        assert numbers == [*range(len(numbers))]
        assert not storage.commit_write(*work).applied
        if finished:
            return
    pytest.fail("the job never ended by itself")


def test_tables_with_a_job_that_cannot_be_completed_keep_their_feed() -> None:
    """Else the rest of the job would be missing in the new one."""
    stored = VersionedMap()
    storage = filled("lookup", engine=CrashingEngine(stored, 1))
    with pytest.raises(Crash):
        storage.commit_write(*staged(storage, "upsert", [{"id": 1, "n": 7}]))
    storage = OrderedStorage(LosingEngine(stored), "memory://")
    storage.engine.upcalls.procedures["recover"](b"")
    for producer in ("input", "none"):
        with pytest.raises(DataCorruptionError, match="not whole"):
            storage.admin.create_or_update(spec(producer))
    assert list(storage.repair())
    storage.admin.create_or_update(spec("input"))


def test_tables_with_a_job_that_cannot_be_completed_take_no_index_and_no_rules() -> None:
    """Otherwise the rest of the job, once its rows are back, would be missing in the index and break the rules."""
    stored = VersionedMap()
    storage = filled("none", engine=CrashingEngine(stored, 1))
    storage.admin.drop_index("items", "text")
    with pytest.raises(Crash):
        storage.commit_write(*staged(storage, "upsert", [{"id": 1, "text": "new"}]))
    storage = OrderedStorage(LosingEngine(stored), "memory://")
    storage.engine.upcalls.procedures["recover"](b"")
    with pytest.raises(DataCorruptionError, match="not whole"):
        storage.admin.create_or_update(spec("none"))
    with pytest.raises(DataCorruptionError, match="not whole"):
        storage.admin.set_rules("items", [Derived("text", "n", Cast("string"))])
    storage = recovered(stored)
    storage.admin.create_or_update(spec("none"))
    assert [row["id"] for row in storage.table("items").scan_index("text", "new")] == [1]


def contents(storage: Storage) -> list[str]:
    with storage.transaction(read_only=True) as tx:
        return sorted(str(dict(row)) for row in tx.table("items").scan())


def sorted_records(records: list[Recorded]) -> list[Recorded]:
    return sorted(records, key=lambda record: (str(record.row.get("id")), record.kind, str(record.row)))
