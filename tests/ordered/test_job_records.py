"""Records of write jobs: those of older versions, expired ones, and undecodable ones."""

import json
import time
from contextlib import closing

import pytest

from structable.backends.memory.engine import MemoryEngine
from structable.backends.memory.versions import VersionedMap
from structable.backends.ordered import OrderedStorage, WriteSet
from structable.backends.ordered.schema.catalog import schema_key
from structable.backends.ordered.schema.job_records import job_key
from structable.spi import DataCorruptionError, Field, Storage, TableSpecification, TransactionClosedError, WriteJob
from structable.spi.arrow import rows_to_batches

ITEMS = TableSpecification("items", [Field.long("id"), Field.long("n")], ["id"])


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine(VersionedMap())


@pytest.fixture
def storage(engine: MemoryEngine) -> Storage:
    storage = OrderedStorage(engine, "memory://")
    storage.admin.create(ITEMS)
    return storage


def change(engine: MemoryEngine, key: bytes, value: bytes) -> None:
    with closing(engine.begin(False)) as snapshot:
        engine.commit(snapshot, WriteSet(writes={key: value}, changed_spaces={key[:4]}))


def without_identity(engine: MemoryEngine, key: bytes) -> None:
    """Return a record as it was before tables had identities."""
    with closing(engine.begin(True)) as snapshot:
        document = json.loads(snapshot.get(key) or b"")
    document.pop("identity")
    document.pop("decider", None)
    change(engine, key, json.dumps(document).encode())


def begin(storage: Storage, job_id: str, mode: str = "upsert") -> WriteJob:
    return storage.begin_write("items", mode=mode, job_id=job_id)


def commit(storage: Storage, job: WriteJob, key: int) -> bool:
    staged = storage.stage(job, 0, 0, rows_to_batches(ITEMS, [{"id": key, "n": 1}], ["id", "n"]))
    return storage.commit_write(job, [staged]).applied


@pytest.mark.parametrize("overwritten", [False, True])
def test_records_and_tables_of_an_older_version_belong_together(
    storage: Storage, engine: MemoryEngine, overwritten: bool
) -> None:
    """Nothing is written twice and nothing is lost; older records never apply to a new table."""
    without_identity(engine, schema_key("items"))
    for job_id in ("committed", "aborted", "open"):
        begin(storage, job_id)
    assert commit(storage, begin(storage, "committed"), 1)
    storage.abort_write(begin(storage, "aborted"))
    for job_id in ("committed", "aborted", "open"):
        without_identity(engine, job_key(job_id))
    if overwritten:
        assert commit(storage, begin(storage, "all", "overwrite"), 1)
    assert begin(storage, "committed").committed
    assert not commit(storage, begin(storage, "committed"), 2)
    with pytest.raises(TransactionClosedError):
        commit(storage, begin(storage, "aborted"), 3)
    with pytest.raises(ValueError, match="open"):
        begin(storage, "open", "insert")
    assert commit(storage, begin(storage, "open"), 4)
    assert [row.id for row in storage.table("items").scan()] == [1, 4]
    without_identity(engine, job_key("open"))
    storage.admin.drop("items")
    storage.admin.create(ITEMS)
    for number, job_id in enumerate(("committed", "aborted", "open")):
        assert not begin(storage, job_id).committed
        assert commit(storage, begin(storage, job_id), number)


def test_ids_are_kept_for_seven_days(storage: Storage, engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record goes when it is more than 7 days old, and no earlier."""
    now, clock = time.time(), time.monotonic()
    assert commit(storage, begin(storage, "done"), 1)
    for days, known in ((6.9, True), (7.1, False)):
        monkeypatch.setattr("time.time", lambda days=days: now + days * 86_400)
        monkeypatch.setattr("time.monotonic", lambda days=days: clock + days * 86_400)
        begin(storage, f"another {days}")
        assert begin(storage, "done").committed is known


@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"state": "open", "table": "items", "mode": "unknown", "time": 1}',
        b'{"state": "unknown", "table": "items", "mode": "upsert", "time": 1}',
        b'{"state": "open", "table": "items", "mode": "upsert", "time": 1, "loading": "x"}',
        b"\xff",
    ],
    ids=repr,
)
def test_records_that_cannot_be_decoded(storage: Storage, engine: MemoryEngine, raw: bytes) -> None:
    change(engine, job_key("broken"), raw)
    with pytest.raises(DataCorruptionError, match="broken"):
        begin(storage, "broken")


@pytest.mark.parametrize("raw", [b"[" * 100_000, b'{"specification": ' + b'{"a":' * 100_000])
def test_tables_that_cannot_be_decoded(storage: Storage, engine: MemoryEngine, raw: bytes) -> None:
    change(engine, schema_key("items"), raw)
    with pytest.raises(DataCorruptionError):
        storage.table("items")


def test_commit_stands_if_the_clean_up_fails(
    storage: Storage, engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed clean-up changes no outcome: a job that was committed, or aborted, stays so."""

    def fail(job_id: str) -> None:
        raise PermissionError(job_id)

    monkeypatch.setattr(engine, "drop_runs", fail)
    for mode in ("upsert", "overwrite"):
        job = begin(storage, mode, mode)
        assert commit(storage, job, 1)
        assert not storage.commit_write(job, [])
    aborted = begin(storage, "aborted")
    storage.abort_write(aborted)
    with pytest.raises(TransactionClosedError):
        storage.commit_write(aborted, [])
