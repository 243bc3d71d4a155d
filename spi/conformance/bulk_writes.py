"""Rules of write jobs: atomic, idempotent by their id, in no writer's way."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from structable.spi import (
    Field,
    FieldSizeLimitError,
    FieldType,
    InvalidFieldError,
    RecordExistsError,
    RecordNotFoundError,
    StagedWrite,
    Storage,
    StructableError,
    StructuredTable,
    TableSpecification,
    TransactionClosedError,
    WriteJob,
    WriteMode,
)
from structable.spi.arrow import arrow_schema, rows_to_batches

from .case import Begin, ConformanceCase, OpenSession
from .clients import Client
from .samples import EXTREMES, ITEMS, TYPES, Record, item, keys, plain, type_name

__all__ = ["BulkWriteRules"]

ALL_MODES = pytest.mark.parametrize("mode", list(WriteMode))
BEFORE = [item(1, n=1, tag="a", note="x"), item(2, n=2, tag="a")]


def batch(
    rows: Sequence[Record], columns: Sequence[str] | None = None, spec: TableSpecification = ITEMS
) -> pa.RecordBatch:
    """Return rows as one batch of the columns that the first row names."""
    names = list(rows[0]) if columns is None else list(columns)
    (made,) = rows_to_batches(spec, rows, names, batch_size=100_000)
    return made


class BulkWriteRules(ConformanceCase):
    """DESIGN.md section 5: nothing before `commit_write`, all of it after, each row once."""

    @pytest.fixture
    def target(self, storage: Storage) -> StructuredTable:
        """Return the auto-commit view of ITEMS with rows 1 and 2."""
        storage.admin.create(ITEMS)
        storage.table("items").upsert_many(BEFORE)
        return storage.table("items")

    def job(self, storage: Storage, mode: WriteMode | str) -> WriteJob:
        """Begin a job of a new name."""
        return storage.begin_write("items", mode=mode, job_id=self.fresh_id())

    def run_job(self, storage: Storage, mode: WriteMode | str, rows: Sequence[Record]) -> None:
        """Write rows by one job of one partition."""
        job = self.job(storage, mode)
        storage.commit_write(job, [storage.stage(job, 0, 0, [batch(rows)])])

    def test_job_upsert(self, storage: Storage, target: StructuredTable) -> None:
        """Mode upsert inserts rows, or changes the columns of the batch and keeps the others; null is null."""
        self.run_job(storage, WriteMode.UPSERT, [{"id": 1, "n": 10, "tag": None}, {"id": 3, "n": 30, "tag": "a"}])
        assert plain(target.scan()) == [item(1, n=10, note="x"), item(2, n=2, tag="a"), item(3, n=30, tag="a")]
        assert keys(target.scan_index("tag", "a")) == [(2,), (3,)]

    def test_job_replace(self, storage: Storage, target: StructuredTable) -> None:
        """Mode replace makes rows exactly what the batch says: columns that it lacks become null."""
        self.run_job(storage, WriteMode.REPLACE, [{"id": 1, "n": 10}, {"id": 3, "n": 30}])
        assert plain(target.scan()) == [item(1, n=10), item(2, n=2, tag="a"), item(3, n=30)]
        assert keys(target.scan_index("tag", "a")) == [(2,)]

    def test_job_insert(self, storage: Storage, target: StructuredTable) -> None:
        """Mode insert puts new rows."""
        self.run_job(storage, WriteMode.INSERT, [{"id": 4, "tag": "a"}, {"id": 3, "tag": "b"}])
        assert plain(target.scan()) == [*BEFORE, item(3, tag="b"), item(4, tag="a")]
        assert keys(target.scan_index("tag", "a")) == [(1,), (2,), (4,)]

    def test_job_insert_of_an_existing_key(self, storage: Storage, target: StructuredTable) -> None:
        """Mode insert refuses a job with a key that exists: `RecordExistsError`, and nothing is written."""
        with pytest.raises(RecordExistsError):
            self.run_job(storage, WriteMode.INSERT, [{"id": 3, "n": 3}, {"id": 2, "n": 3}, {"id": 4, "n": 3}])
        assert plain(target.scan()) == BEFORE

    def test_job_insert_of_one_key_twice(self, storage: Storage, target: StructuredTable) -> None:
        """Mode insert refuses one key twice in a job, in one batch or in two partitions, and nothing is written."""
        with pytest.raises(StructableError):
            self.run_job(storage, WriteMode.INSERT, [{"id": 3, "n": 1}, {"id": 3, "n": 1}])
        job = self.job(storage, WriteMode.INSERT)
        staged = [storage.stage(job, partition, 0, [batch([{"id": 3, "n": 1}])]) for partition in range(2)]
        with pytest.raises(StructableError):
            storage.commit_write(job, staged)
        assert plain(target.scan()) == BEFORE

    @pytest.mark.parametrize("mode", [WriteMode.UPSERT, WriteMode.REPLACE, WriteMode.OVERWRITE, WriteMode.UPDATE])
    def test_job_one_key_twice(self, storage: Storage, target: StructuredTable, mode: WriteMode) -> None:
        """One key twice in a job: one of the rows wins, and the row is there once, in its table and its index."""
        job = self.job(storage, mode)
        staged = [
            storage.stage(job, 0, 0, [batch([{"id": 1, "tag": "p"}, {"id": 1, "tag": "q"}])]),
            storage.stage(job, 1, 0, [batch([{"id": 1, "tag": "r"}])]),
        ]
        storage.commit_write(job, staged)
        row = target.read((1,))
        assert row is not None
        assert row["tag"] in ("p", "q", "r")
        tags = [tag for tag in "apqr" if (1,) in keys(target.scan_index("tag", tag))]
        assert tags == [row["tag"]]
        assert keys(target.scan()) == ([(1,)] if mode is WriteMode.OVERWRITE else [(1,), (2,)])

    def test_job_update(self, storage: Storage, target: StructuredTable) -> None:
        """Mode update changes rows that exist; a key that does not is `RecordNotFoundError`, and nothing is written."""
        self.run_job(storage, WriteMode.UPDATE, [{"id": 2, "n": 20}, {"id": 1, "n": 10}])
        after = [item(1, n=10, tag="a", note="x"), item(2, n=20, tag="a")]
        assert plain(target.scan()) == after
        with pytest.raises(RecordNotFoundError):
            self.run_job(storage, WriteMode.UPDATE, [{"id": 2, "n": 0}, {"id": 3, "n": 0}])
        assert plain(target.scan()) == after

    def test_job_delete(self, storage: Storage, target: StructuredTable) -> None:
        """Mode delete takes batches of key columns; an absent key is no error."""
        self.run_job(storage, WriteMode.DELETE, [{"id": 1}, {"id": 9}])
        assert plain(target.scan()) == BEFORE[1:]
        assert keys(target.scan_index("tag", "a")) == [(2,)]

    def test_job_overwrite(self, storage: Storage, target: StructuredTable) -> None:
        """Mode overwrite replaces the whole table: rows, columns and index entries not in the job are gone."""
        self.run_job(storage, WriteMode.OVERWRITE, [{"id": 7, "tag": "a"}, {"id": 2, "tag": "b"}])
        assert plain(target.scan()) == [item(2, tag="b"), item(7, tag="a")]
        assert keys(target.scan_index("tag", "a")) == [(7,)]
        assert keys(target.scan_index("tag", None)) == []
        job = self.job(storage, WriteMode.OVERWRITE)
        storage.commit_write(job, [])
        assert target.count() == 0
        target.insert({"id": 2})
        assert keys(target.scan_index("tag", None)) == [(2,)]

    def test_job_overwrite_is_atomic(self, storage: Storage, target: StructuredTable, begin: Begin) -> None:
        """An overwrite is seen whole or not at all: a snapshot from before it goes on seeing the old rows."""
        old = begin(read_only=True)
        assert plain(old.table("items").scan()) == BEFORE
        with target.scan() as rows:
            first = next(rows)
            self.run_job(storage, WriteMode.OVERWRITE, [{"id": number, "tag": "b"} for number in range(100, 120)])
            assert [dict(first), *plain(rows)] == BEFORE
        assert plain(old.table("items").scan()) == BEFORE
        assert plain(old.table("items").scan_index("tag", "a")) == BEFORE
        assert keys(target.scan()) == [(number,) for number in range(100, 120)]

    @pytest.mark.parametrize("mode", [*WriteMode, *(mode.value for mode in WriteMode)], ids=repr)
    def test_mode_or_its_value(self, storage: Storage, target: StructuredTable, mode: WriteMode | str) -> None:
        """`mode` takes a `WriteMode` or its value; the job tells its table, mode and id."""
        job_id = self.fresh_id()
        job = storage.begin_write("items", mode=mode, job_id=job_id)
        assert (job.table, job.mode, job.job_id) == ("items", WriteMode(mode), job_id)
        storage.abort_write(job)

    def test_wrong_arguments_of_a_job(self, storage: Storage, target: StructuredTable) -> None:
        """An unknown mode, and an id that is empty or over 200 characters, are `ValueError`."""
        for mode, job_id in (("merge", "id"), ("upsert", ""), ("upsert", "x" * 201)):
            with pytest.raises(ValueError, match=r".+"):
                storage.begin_write("items", mode=mode, job_id=job_id)
        storage.abort_write(storage.begin_write("items", mode="upsert", job_id=self.fresh_id().ljust(200, "x")))

    def test_job_is_begun_again_under_its_id(self, storage: Storage, target: StructuredTable) -> None:
        """The same id with the same table and mode is the same job; with another table or mode it is `ValueError`."""
        job = self.job(storage, WriteMode.UPSERT)
        staged = storage.stage(job, 0, 0, [batch([{"id": 3, "n": 3}])])
        again = storage.begin_write("items", mode="upsert", job_id=job.job_id)
        storage.admin.create(TYPES)
        for table, mode in (("items", "insert"), ("types", "upsert")):
            with pytest.raises(ValueError, match=job.job_id):
                storage.begin_write(table, mode=mode, job_id=job.job_id)
        storage.commit_write(again, [staged])
        assert keys(target.scan()) == [(1,), (2,), (3,)]

    def test_nothing_is_visible_before_the_commit(self, storage: Storage, target: StructuredTable) -> None:
        """Nothing is visible before `commit_write`, all of it after, from all partitions and batches."""
        job = self.job(storage, WriteMode.UPSERT)
        staged = []
        for partition in range(3):
            batches = [
                batch([{"id": 1000 * partition + number, "tag": "new"} for number in range(start, start + 100)])
                for start in (100, 200)
            ]
            staged.append(storage.stage(job, partition, 0, iter(batches)))
            assert plain(target.scan()) == BEFORE
        assert [(one.job_id, one.partition, one.attempt, one.rows) for one in staged] == [
            (job.job_id, partition, 0, 200) for partition in range(3)
        ]
        storage.commit_write(job, iter(staged))
        assert target.count() == 602
        assert len(keys(target.scan_index("tag", "new"))) == 600

    def test_job_empty_partitions(self, storage: Storage, target: StructuredTable) -> None:
        """A partition may have no batch, or an empty one, and a job no partition."""
        job = self.job(storage, WriteMode.UPSERT)
        empty = arrow_schema(ITEMS, ["id", "n"]).empty_table().to_batches()
        staged = [
            storage.stage(job, 0, 0, []),
            storage.stage(job, 1, 0, empty),
            storage.stage(job, 2, 0, [batch([{"id": 3}])]),
        ]
        assert [one.rows for one in staged] == [0, 0, 1]
        storage.commit_write(job, staged)
        storage.commit_write(self.job(storage, WriteMode.UPSERT), [])
        assert keys(target.scan()) == [(1,), (2,), (3,)]

    def test_last_attempt_handed_over_counts(self, storage: Storage, target: StructuredTable) -> None:
        """Of two attempts of a partition handed to the commit the last counts; one not handed over never does."""
        for order, expected in (([0, 1], 1), ([1, 0], 0), ([2, 1, 0, 1], 1)):
            job = self.job(storage, WriteMode.UPSERT)
            attempts = [
                storage.stage(job, 0, number, [batch([{"id": 100 + number, "n": number}])]) for number in range(3)
            ]
            other = storage.stage(job, 1, 0, [batch([{"id": 200}])])
            storage.commit_write(job, [*(attempts[number] for number in order), other])
            assert keys(target.scan()) == [(1,), (2,), (100 + expected,), (200,)]
            target.delete((100 + expected,))
            target.delete((200,))

    def test_every_stage_is_its_own_attempt(self, storage: Storage, target: StructuredTable) -> None:
        """Every call of `stage` is its own attempt, even with equal numbers: either can be handed over."""
        for chosen in (0, 1):
            job = self.job(storage, WriteMode.OVERWRITE)
            staged = [storage.stage(job, 0, 0, [batch([{"id": number}])]) for number in (50, 51)]
            storage.commit_write(job, [staged[chosen]])
            assert keys(target.scan()) == [(50 + chosen,)]

    def test_job_committed_twice(self, storage: Storage, target: StructuredTable) -> None:
        """Committing a job id twice does nothing the second time, whatever happened since."""
        job = self.job(storage, WriteMode.UPSERT)
        staged = storage.stage(job, 0, 0, [batch([{"id": 3, "n": 3}])])
        storage.commit_write(job, [staged])
        target.upsert({"id": 3, "n": 4})
        storage.commit_write(job, [staged])
        again = storage.begin_write("items", mode="upsert", job_id=job.job_id)
        storage.commit_write(again, [staged])
        assert target.read((3,)) == item(3, n=4)

    def test_job_aborted(self, storage: Storage, target: StructuredTable) -> None:
        """An aborted id cannot be committed, with what was staged before or later; aborting twice is no error."""
        job = self.job(storage, WriteMode.UPSERT)
        staged = storage.stage(job, 0, 0, [batch([{"id": 3, "n": 3}])])
        storage.abort_write(job)
        storage.abort_write(job)
        with pytest.raises(TransactionClosedError):
            storage.commit_write(job, [staged])
        with pytest.raises(StructableError):
            self.begin_again_and_commit(storage, job)
        assert plain(target.scan()) == BEFORE

    def begin_again_and_commit(self, storage: Storage, job: WriteJob) -> None:
        """Begin a job of the same id, stage a row, and commit."""
        again = storage.begin_write("items", mode=job.mode, job_id=job.job_id)
        storage.commit_write(again, [storage.stage(again, 0, 0, [batch([{"id": 4}])])])

    def test_job_abort_after_commit(self, storage: Storage, target: StructuredTable) -> None:
        """Abort after the commit does nothing."""
        job = self.job(storage, WriteMode.INSERT)
        storage.commit_write(job, [storage.stage(job, 0, 0, [batch([{"id": 3}])])])
        storage.abort_write(job)
        assert keys(target.scan()) == [(1,), (2,), (3,)]

    def test_failed_commit_may_be_tried_again(self, storage: Storage, target: StructuredTable) -> None:
        """A commit that was refused wrote nothing, and may succeed when the cause is gone."""
        job = self.job(storage, WriteMode.INSERT)
        staged = storage.stage(job, 0, 0, [batch([{"id": 3, "n": 3}, {"id": 2, "n": 3}])])
        with pytest.raises(RecordExistsError):
            storage.commit_write(job, [staged])
        target.delete((2,))
        storage.commit_write(job, [staged])
        assert plain(target.scan()) == [BEFORE[0], item(2, n=3), item(3, n=3)]

    @ALL_MODES
    def test_bad_rows_are_refused_when_staged(self, storage: Storage, target: StructuredTable, mode: WriteMode) -> None:
        """Bad rows are refused by `stage`: unknown columns, wrong types, no key, values that do not fit."""
        job = self.job(storage, mode)
        three = pa.array([3], pa.int64())
        wrong: list[dict[str, pa.Array[Any]]] = [
            {"id": three, "unknown": three},
            {"id": pa.array(["3"])},
            {"id": pa.array([None], pa.int64())},
            {"n": three},
        ]
        if mode is not WriteMode.DELETE:
            wrong += [
                {"id": three, "n": pa.array(["x"])},
                {"id": three, "tag": pa.array(["nul\0"])},
                {"id": three, "rank": three},
            ]
        for one in wrong:
            with pytest.raises(InvalidFieldError):
                storage.stage(job, 0, 0, [batch([{"id": 8}]), pa.record_batch(one)])
        storage.abort_write(job)
        assert plain(target.scan()) == BEFORE

    def test_sizes_are_checked_when_staged(self, storage: Storage, target: StructuredTable) -> None:
        """A key or an indexed value over its limit is `FieldSizeLimitError`, from `stage`."""
        job = self.job(storage, WriteMode.UPSERT)
        with pytest.raises(FieldSizeLimitError) as refusal:
            storage.stage(job, 0, 0, [batch([{"id": 3, "tag": "t" * 2001}])])
        assert (refusal.value.size, refusal.value.limit) == (2001, 2000)

    @pytest.mark.parametrize("kind", list(EXTREMES), ids=type_name)
    def test_job_writes_every_type(self, storage: Storage, kind: FieldType) -> None:
        """A job writes values of every type as the table's operations do."""
        storage.admin.create(TYPES)
        values = [*EXTREMES[kind], None]
        rows = [{"id": number, kind.value: value} for number, value in enumerate(values)]
        job = storage.begin_write("types", mode="insert", job_id=self.fresh_id())
        storage.commit_write(job, [storage.stage(job, 0, 0, [batch(rows, spec=TYPES)])])
        found = [row[kind.value] for row in storage.table("types").scan(columns=[kind.value])]
        assert [repr(value) for value in found] == [repr(self.kept(storage, kind, value)) for value in values]

    def kept(self, storage: Storage, kind: FieldType, value: object) -> object:
        """Return a value as the table's own operations keep it."""
        storage.table("types").upsert({"id": -1, kind.value: value})  # type: ignore[dict-item] # a sample
        row = storage.table("types").read((-1,))
        assert row is not None
        return row[kind.value]

    def test_job_composite_keys(self, storage: Storage) -> None:
        """A job writes tables whose key is not at the front, and columns in any order."""
        spec = TableSpecification("t", [Field.string("v"), Field.bytes("b"), Field.short("s")], ["s", "b"], ["v"])
        storage.admin.create(spec)
        rows: list[Record] = [{"b": b, "v": f"{s}", "s": s} for s in (2, -1) for b in (b"\xff", b"", b"\x00")]
        job = storage.begin_write("t", mode="insert", job_id=self.fresh_id())
        storage.commit_write(job, [storage.stage(job, 0, 0, [batch(rows, spec=spec)])])
        assert keys(storage.table("t").scan()) == [(s, b) for s in (-1, 2) for b in (b"", b"\x00", b"\xff")]
        assert keys(storage.table("t").scan_index("v", "2")) == [(2, b""), (2, b"\x00"), (2, b"\xff")]

    def test_job_takes_effect_as_of_its_commit(self, storage: Storage, target: StructuredTable) -> None:
        """What others changed since `stage` does not conflict with a job; its rows are merged with that."""
        job = self.job(storage, WriteMode.UPSERT)
        staged = storage.stage(job, 0, 0, [batch([{"id": 1, "n": 10}, {"id": 2, "n": 20}, {"id": 3, "n": 30}])])
        target.upsert_many([{"id": 1, "n": 5, "note": "later"}, {"id": 3, "rank": 3}])
        target.delete((2,))
        storage.commit_write(job, [staged])
        assert plain(target.scan()) == [item(1, n=10, tag="a", note="later"), item(2, n=20), item(3, n=30, rank=3)]

    @ALL_MODES
    def test_job_in_flight_blocks_no_writer(
        self, storage: Storage, target: StructuredTable, begin: Begin, mode: WriteMode
    ) -> None:
        """A job that is staged and not committed blocks no writer, and a writer in between commits."""
        job = self.job(storage, mode)
        storage.stage(job, 0, 0, [batch([{"id": 1}, {"id": 3}])])
        transaction = begin()
        transaction.table("items").upsert({"id": 1, "n": 7})
        transaction.table("items").insert({"id": 3, "n": 7})
        transaction.commit()
        assert plain(target.scan()) == [item(1, n=7, tag="a", note="x"), BEFORE[1], item(3, n=7)]
        storage.abort_write(job)

    @pytest.mark.parametrize("mode", [WriteMode.UPSERT, WriteMode.UPDATE, WriteMode.DELETE, WriteMode.OVERWRITE])
    def test_transaction_that_overlaps_a_commit_conflicts(
        self, storage: Storage, target: StructuredTable, session: OpenSession, mode: WriteMode
    ) -> None:
        """A job's write of a row counts as any other's: a transaction of an older snapshot conflicts."""
        one = session()
        one.read("items", (1,))
        self.run_job(storage, mode, [{"id": 1}] if mode is WriteMode.DELETE else [{"id": 1, "n": 9}])
        one.step(lambda transaction: transaction.table("items").upsert({"id": 1, "note": "old"}))
        assert not one.commit()

    def test_snapshots_do_not_see_a_later_job(self, storage: Storage, target: StructuredTable, begin: Begin) -> None:
        """A transaction sees of a job that committed after its snapshot nothing at all."""
        transaction = begin()
        assert transaction.table("items").count() == 2
        self.run_job(storage, WriteMode.UPSERT, [{"id": number, "tag": "a"} for number in range(50)])
        assert plain(transaction.table("items").scan()) == BEFORE
        assert plain(transaction.table("items").scan_index("tag", "a")) == BEFORE

    def test_jobs_are_picklable(self, storage: Storage, target: StructuredTable) -> None:
        """Jobs and staged writes are picklable, and the copies do the same."""
        job: WriteJob = pickle.loads(pickle.dumps(self.job(storage, WriteMode.INSERT)))
        staged: StagedWrite = pickle.loads(pickle.dumps(storage.stage(job, 0, 0, [batch([{"id": 3}])])))
        storage.commit_write(pickle.loads(pickle.dumps(job)), [staged])
        assert keys(target.scan()) == [(1,), (2,), (3,)]

    def test_large_job(self, storage: Storage, target: StructuredTable) -> None:
        """A job of many rows over many partitions is one commit."""
        job = self.job(storage, WriteMode.UPSERT)
        staged = []
        for partition in range(4):
            rows: list[Record] = [
                {"id": number, "n": number, "tag": f"tag {number % 7}"} for number in range(partition, 12_000, 4)
            ]
            staged.append(storage.stage(job, partition, 0, rows_to_batches(ITEMS, rows, ["id", "n", "tag"])))
        storage.commit_write(job, staged)
        assert target.count() == 12_000
        assert len(keys(target.scan_index("tag", "tag 3"))) == len(range(3, 12_000, 7))

    @pytest.fixture
    def writer(self, storage_url: str) -> Iterator[Client]:
        """Start another process that does what it is asked for."""
        self.require("multi_process")
        client = Client(storage_url, "obey")
        assert client.next() == "ready"
        yield client
        client.close()

    def test_other_processes_stage_and_commit(self, storage: Storage, target: StructuredTable, writer: Client) -> None:
        """Any process stages, any process commits, and committing again from another process does nothing."""
        job = self.job(storage, WriteMode.UPSERT)
        staged = [
            writer.ask("stage", job, 0, [{"id": 3, "n": 3}]),
            storage.stage(job, 1, 0, [batch([{"id": 4, "n": 4}])]),
        ]
        assert plain(target.scan()) == BEFORE
        storage.commit_write(job, staged)
        target.upsert({"id": 3, "n": 33})
        writer.ask("commit_write", job, staged)
        assert plain(target.scan()) == [*BEFORE, item(3, n=33), item(4, n=4)]
        second = self.job(storage, WriteMode.INSERT)
        staged = [writer.ask("stage", second, 0, [{"id": 5}]), storage.stage(second, 1, 0, [batch([{"id": 6}])])]
        writer.ask("commit_write", second, staged)
        assert keys(target.scan()) == [(number,) for number in range(1, 7)]

    def test_staged_rows_outlive_their_process(self, storage: Storage, target: StructuredTable, writer: Client) -> None:
        """What a process staged can be committed after that process was killed."""
        self.require("durable_after_kill")
        job = self.job(storage, WriteMode.UPSERT)
        staged = writer.ask("stage", job, 0, [{"id": 3, "n": 3}])
        writer.kill()
        storage.commit_write(job, [staged])
        assert plain(target.scan()) == [*BEFORE, item(3, n=3)]
