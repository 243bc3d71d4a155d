"""The resources of snapshots, scans, plans and stores, their lifetimes, and the errors afterwards."""

import gc
import tracemalloc

import pytest

from structable.backends.memory.engine import MemoryEngine, MemorySnapshot
from structable.backends.memory.versions import VersionedMap
from structable.backends.ordered import OrderedStorage
from structable.backends.ordered.engine import EngineSnapshot, WriteSet
from structable.spi import (
    Field,
    Range,
    Storage,
    StorageUnavailableError,
    TableSpecification,
    TransactionClosedError,
    connect,
)

NUMBERS = TableSpecification("numbers", [Field.int("n"), Field.int("value")], ["n"])
ROWS = 20_000


@pytest.fixture
def storage() -> Storage:
    storage = connect("memory://")
    storage.admin.create(NUMBERS)
    storage.table("numbers").upsert_many([{"n": n, "value": 0} for n in range(ROWS)])
    return storage


def test_reading_a_split_holds_its_snapshot(storage: Storage) -> None:
    batches = storage.read_split(storage.plan_scan("numbers").splits[0])
    gc.collect()
    storage.table("numbers").delete_all(Range.all())
    assert sum(batch.num_rows for batch in batches) == ROWS


def test_a_plan_closed_while_its_split_is_read(storage: Storage) -> None:
    plan = storage.plan_scan("numbers")
    batches = storage.read_split(plan.splits[0])
    next(batches)
    plan.close()
    storage.table("numbers").delete_all(Range.all())
    with pytest.raises(TransactionClosedError):
        list(batches)


class FailingSnapshot(MemorySnapshot):
    fails = False

    def get(self, key: bytes) -> bytes | None:
        if FailingSnapshot.fails:
            raise StorageUnavailableError("the wire was cut")
        return super().get(key)


class FailingEngine(MemoryEngine):
    def begin(self, read_only: bool) -> MemorySnapshot:
        return FailingSnapshot(self, self._stored)


def test_a_scan_that_failed_does_not_look_exhausted(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = OrderedStorage(FailingEngine(VersionedMap()), "memory://")
    storage.admin.create(NUMBERS)
    storage.table("numbers").upsert_many([{"n": n} for n in range(10)])
    rows = storage.table("numbers").scan()
    next(rows)
    monkeypatch.setattr(FailingSnapshot, "fails", True)
    with pytest.raises(StorageUnavailableError):
        next(rows)
    with pytest.raises(TransactionClosedError):
        next(rows)


def test_memory_frees_deleted_rows() -> None:
    """A table used as a queue does not grow with every row that ever passed through it."""
    stored = VersionedMap()
    storage = OrderedStorage(MemoryEngine(stored), "memory://")
    storage.admin.create(NUMBERS)
    table = storage.table("numbers")
    for n in range(500):
        table.insert({"n": n})
        if n % 10 == 0:
            table.count()
        table.delete((n,))
    table.insert({"n": 7})
    assert [row.n for row in table.scan()] == [7]
    assert len(list(stored.keys(b"\0\0\0\1", b"\0\0\0\2"))) < 20


class CopyingSnapshot(MemorySnapshot):
    """Returns new bytes each time, as a store on disk does."""

    def get(self, key: bytes) -> bytes | None:
        found = super().get(key)
        return None if found is None else bytes(bytearray(found))


class CopyingEngine(MemoryEngine):
    def begin(self, read_only: bool) -> MemorySnapshot:
        return CopyingSnapshot(self, self._stored)


def test_a_transaction_that_reads_much_does_not_hold_it() -> None:
    storage = OrderedStorage(CopyingEngine(VersionedMap()), "memory://")
    storage.admin.create(TableSpecification("files", [Field.int("n"), Field.bytes("content")], ["n"]))
    storage.table("files").upsert_many([{"n": n, "content": bytes(1 << 20)} for n in range(40)])
    with storage.transaction() as transaction:
        files = transaction.table("files")
        tracemalloc.start()
        try:
            for n in range(40):
                files.read((n,))
            files.multi_read([(n,) for n in range(40)])
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert held < 8 << 20


def test_a_commit_that_is_interrupted_is_not_made_again(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have succeeded: the interrupted caller must look."""
    commit = MemoryEngine.commit

    def commit_and_interrupt(engine: MemoryEngine, snapshot: EngineSnapshot | None, changes: WriteSet) -> None:
        commit(engine, snapshot, changes)
        raise KeyboardInterrupt

    transaction = storage.transaction()
    transaction.table("numbers").increment((1,), "value", 1)
    with monkeypatch.context() as patch:
        patch.setattr(MemoryEngine, "commit", commit_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            transaction.commit()
    with pytest.raises(TransactionClosedError):
        transaction.commit()
    row = storage.table("numbers").read((1,))
    assert row is not None
    assert row["value"] == 1
