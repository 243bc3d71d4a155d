"""Rules of the ids of write jobs: their owner, their lifetime, and the results of commits."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import pytest

from structable.spi import (
    CommitOutcomeUnknownError,
    CommitResult,
    Field,
    StagedWrite,
    Storage,
    StructableError,
    StructuredTable,
    TableNotFoundError,
    TableSpecification,
    TransactionClosedError,
    TransactionConflictError,
    WriteJob,
    WriteMode,
    connect,
)

from .clients import StoreProcess
from .samples import ITEMS, TYPES, item, keys, plain
from .write_jobs import ALL_MODES, BEFORE, JobCase, batch


class JobIdRules(JobCase):
    """An id belongs to the table of that moment, not to its name."""

    def stage_one(self, storage: Storage, job: WriteJob, key: int = 1) -> list[StagedWrite]:
        """Stage a row that fits the job's mode."""
        return [
            storage.stage(job, 0, 0, [batch([{"id": key}] if job.mode is WriteMode.DELETE else [{"id": key, "n": 7}])])
        ]

    def anew(self, storage: Storage) -> StructuredTable:
        """Drop the table and create it again."""
        storage.admin.drop("items")
        storage.admin.create(ITEMS)
        return storage.table("items")

    @ALL_MODES
    def test_commit_says_whether_it_applied(self, storage: Storage, target: StructuredTable, mode: WriteMode) -> None:
        """The commit that makes the rows visible returns true, any later one false; `committed` predicts it."""
        job = self.job(storage, mode)
        staged = self.stage_one(storage, job, 3 if mode is WriteMode.INSERT else 1)
        assert not job.committed
        first = storage.commit_write(job, staged)
        assert (first, bool(first)) == (CommitResult(applied=True), True)
        after = plain(target.scan())
        for again in (job, storage.begin_write("items", mode=mode, job_id=job.job_id)):
            result = storage.commit_write(again, staged)
            assert (result, bool(result)) == (CommitResult(applied=False), False)
        assert again.committed
        assert [one.rows for one in self.stage_one(storage, again)] == [0]
        assert plain(target.scan()) == after
        with pytest.raises(dataclasses.FrozenInstanceError):
            first.applied = False  # type: ignore[misc] # the mistake

    def test_job_without_rows_is_committed_too(self, storage: Storage, target: StructuredTable) -> None:
        """A job without rows is committed like any other."""
        job = self.job(storage, WriteMode.UPSERT)
        assert storage.commit_write(job, [])
        assert not storage.commit_write(job, [])
        assert storage.begin_write("items", mode="upsert", job_id=job.job_id).committed

    def test_aborted_job_is_not_committed(self, storage: Storage, target: StructuredTable) -> None:
        """An aborted id stays aborted for its table: begun again, it is not `committed`, and cannot be committed."""
        job = self.job(storage, WriteMode.OVERWRITE)
        storage.abort_write(job)
        again = storage.begin_write("items", mode="overwrite", job_id=job.job_id)
        assert not again.committed
        with pytest.raises(TransactionClosedError):
            storage.commit_write(again, self.stage_one(storage, again))
        assert plain(target.scan()) == BEFORE

    @ALL_MODES
    @pytest.mark.parametrize("end", ["committed", "aborted", "open"])
    def test_id_of_a_dropped_table_is_unknown(
        self, storage: Storage, target: StructuredTable, mode: WriteMode, end: str
    ) -> None:
        """However a job ended, its id is free once the table is dropped, also for the table's successor."""
        job = self.job(storage, mode)
        staged = self.stage_one(storage, job, 3 if mode is WriteMode.INSERT else 1)
        if end == "committed":
            assert storage.commit_write(job, staged)
        elif end == "aborted":
            storage.abort_write(job)
        target = self.anew(storage)
        target.upsert({"id": 1, "tag": "new"})
        again = storage.begin_write("items", mode=mode, job_id=job.job_id)
        assert not again.committed
        assert storage.commit_write(again, self.stage_one(storage, again, 3 if mode is WriteMode.INSERT else 1))
        expected = {
            WriteMode.INSERT: [item(1, tag="new"), item(3, n=7)],
            WriteMode.DELETE: [],
            WriteMode.REPLACE: [item(1, n=7)],
            WriteMode.OVERWRITE: [item(1, n=7)],
        }
        assert plain(target.scan()) == expected.get(mode, [item(1, n=7, tag="new")])
        assert not storage.commit_write(again, [])

    def test_id_of_a_dropped_table_serves_any_other(self, storage: Storage, target: StructuredTable) -> None:
        """An id of a dropped table may be used for another table and mode, but not an id of an existing table."""
        job = self.job(storage, WriteMode.UPSERT)
        storage.commit_write(job, self.stage_one(storage, job))
        storage.admin.create(TYPES)
        for table, mode in (("types", "upsert"), ("types", "insert"), ("items", "insert")):
            with pytest.raises(ValueError, match=job.job_id):
                storage.begin_write(table, mode=mode, job_id=job.job_id)
        storage.admin.drop("items")
        other = storage.begin_write("types", mode="insert", job_id=job.job_id)
        assert storage.commit_write(other, [storage.stage(other, 0, 0, [batch([{"id": 1}], spec=TYPES)])])
        storage.admin.create(ITEMS)
        with pytest.raises(ValueError, match=job.job_id):
            storage.begin_write("items", mode="upsert", job_id=job.job_id)

    @ALL_MODES
    def test_job_begun_before_the_drop(self, storage: Storage, target: StructuredTable, mode: WriteMode) -> None:
        """A job whose table was dropped ends with `TableNotFoundError`, also when another table has the name."""
        job = self.job(storage, mode)
        staged = self.stage_one(storage, job, 3 if mode is WriteMode.INSERT else 1)
        storage.admin.drop("items")
        with pytest.raises(TableNotFoundError):
            storage.commit_write(job, staged)
        with pytest.raises(TableNotFoundError):
            storage.begin_write("items", mode=mode, job_id=job.job_id)
        storage.admin.create(ITEMS)
        target = storage.table("items")
        target.upsert_many(BEFORE)
        with pytest.raises(TableNotFoundError):
            storage.commit_write(job, staged)
        with pytest.raises(TableNotFoundError):
            storage.commit_write(job, [])
        storage.abort_write(job)
        with pytest.raises(TableNotFoundError):
            storage.commit_write(job, staged)
        assert plain(target.scan()) == BEFORE

    def test_committed_job_of_a_dropped_table(self, storage: Storage, target: StructuredTable) -> None:
        """A committed job whose table was dropped is forgotten: `TableNotFoundError`."""
        job = self.job(storage, WriteMode.UPSERT)
        staged = self.stage_one(storage, job)
        storage.commit_write(job, staged)
        target = self.anew(storage)
        with pytest.raises(TableNotFoundError):
            storage.commit_write(job, staged)
        storage.abort_write(job)
        assert plain(target.scan()) == []

    def test_job_of_the_table_before_leaves_its_successor_alone(
        self, storage: Storage, target: StructuredTable
    ) -> None:
        """A job of a dropped table neither commits nor aborts the job that has its id now, nor adds rows to it."""
        old = self.job(storage, WriteMode.UPSERT)
        staged_before = self.stage_one(storage, old)
        target = self.anew(storage)
        new = storage.begin_write("items", mode="upsert", job_id=old.job_id)
        staged = self.stage_one(storage, new, 5)
        with pytest.raises(TableNotFoundError):
            storage.commit_write(old, staged_before)
        storage.abort_write(old)
        with pytest.raises(StructableError):
            storage.commit_write(new, staged_before)
        assert keys(target.scan()) == []
        assert storage.commit_write(new, staged)
        storage.abort_write(old)
        assert keys(target.scan()) == [(5,)]
        assert storage.begin_write("items", mode="upsert", job_id=old.job_id).committed

    def test_changed_table_keeps_its_ids(self, storage: Storage, target: StructuredTable) -> None:
        """After new fields and indexes, and an overwrite of all rows, a table is the same: its jobs continue."""
        opened, ended = self.job(storage, WriteMode.UPSERT), self.job(storage, WriteMode.UPSERT)
        staged = self.stage_one(storage, opened, 3)
        storage.commit_write(ended, self.stage_one(storage, ended, 4))
        wider = TableSpecification(
            "items", [*ITEMS.fields, Field.int("more")], ITEMS.primary_key, ["tag", "rank", "more"]
        )
        storage.admin.create_or_update(wider)
        self.run_job(storage, WriteMode.OVERWRITE, [{"id": 9}])
        storage.admin.drop_index("items", "more")
        assert storage.begin_write("items", mode="upsert", job_id=ended.job_id).committed
        assert not storage.commit_write(ended, [])
        assert storage.commit_write(opened, staged)
        assert keys(target.scan()) == [(3,), (9,)]

    def test_ids_are_kept_while_others_end(self, storage: Storage, target: StructuredTable) -> None:
        """Ids of jobs that ended are kept for 7 days, regardless of other jobs and storages."""
        done, aborted = self.job(storage, WriteMode.UPSERT), self.job(storage, WriteMode.UPSERT)
        storage.commit_write(done, self.stage_one(storage, done))
        storage.abort_write(aborted)
        for _ in range(20):
            job = self.job(storage, WriteMode.UPSERT)
            storage.commit_write(job, [])
        assert not storage.commit_write(done, [])
        with pytest.raises(TransactionClosedError):
            storage.commit_write(aborted, [])

    def test_ids_outlive_the_storage(self, storage: Storage, target: StructuredTable, storage_url: str) -> None:
        """The store keeps ids, and the fact that a table was dropped."""
        self.require("restartable")
        kept, lost = self.job(storage, WriteMode.UPSERT), self.job(storage, WriteMode.UPSERT)
        storage.commit_write(kept, [])
        storage.close()
        with connect(storage_url) as second:
            assert not second.commit_write(kept, [])
            assert second.begin_write("items", mode="upsert", job_id=kept.job_id).committed
            self.anew(second)
        with connect(storage_url) as third:
            assert not third.begin_write("items", mode="upsert", job_id=kept.job_id).committed
            with pytest.raises(TableNotFoundError):
                third.commit_write(lost, [])

    @ALL_MODES
    def test_one_of_many_commits_applies(self, storage: Storage, target: StructuredTable, mode: WriteMode) -> None:
        """One of several commits of an id at once returns true; others return false, or conflict and may be retried."""
        for _ in range(max(2, self.stress_rounds // 20)):
            job = self.job(storage, mode)
            target.upsert({"id": 1, "n": 1})
            target.delete((3,))
            staged = self.stage_one(storage, job, 3 if mode is WriteMode.INSERT else 1)
            with ThreadPoolExecutor(4) as pool:
                running = [pool.submit(self.commit_at_last, storage, job, staged) for _ in range(4)]
                results = [one.result() for one in running]
            assert results.count(True) == 1 or (None in results and True not in results)
            assert not storage.commit_write(job, staged)

    def commit_at_last(self, storage: Storage, job: WriteJob, staged: list[StagedWrite]) -> bool | None:
        """Commit a job, again after conflicts, and return whether it applied; None if the outcome is unknown."""
        while True:
            try:
                return storage.commit_write(job, staged).applied
            except TransactionConflictError:
                continue
            except CommitOutcomeUnknownError:
                return None

    def test_ids_across_processes(self, storage: Storage, target: StructuredTable, peer: StoreProcess) -> None:
        """Commits, aborts and drops of one process are known to every other."""
        job = self.job(storage, WriteMode.UPSERT)
        staged = self.stage_one(storage, job, 3)
        assert peer.ask("commit_write", job, staged) == CommitResult(applied=True)
        assert storage.commit_write(job, staged) == CommitResult(applied=False)
        assert storage.begin_write("items", mode="upsert", job_id=job.job_id).committed
        assert peer.ask("begin_write", "items", "upsert", job.job_id).committed
        peer.ask("drop", "items")
        with pytest.raises(TableNotFoundError):
            storage.commit_write(job, staged)
        peer.ask("create", ITEMS)
        with pytest.raises(TableNotFoundError):
            storage.commit_write(job, staged)
        again = storage.begin_write("items", mode="overwrite", job_id=job.job_id)
        assert not again.committed
        peer.ask("abort_write", job)
        assert peer.ask("commit_write", again, self.stage_one(storage, again, 4)) == CommitResult(applied=True)
        assert keys(storage.table("items").scan()) == [(4,)]
        aborted = peer.ask("begin_write", "items", "upsert", self.fresh_id())
        peer.ask("abort_write", aborted)
        with pytest.raises(TransactionClosedError):
            storage.commit_write(aborted, [])
