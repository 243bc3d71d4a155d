"""Rules of write jobs as a whole: atomic, idempotent by their id, and without effect on other writers."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from structable.spi import (
    RecordExistsError,
    StagedWrite,
    Storage,
    StructableError,
    StructuredTable,
    TransactionClosedError,
    WriteJob,
    WriteMode,
)

from .case import Begin, OpenSession
from .clients import StoreProcess
from .samples import TYPES, Record, item, keys, plain
from .write_jobs import ALL_MODES, BEFORE, JobCase, batch


class JobRules(JobCase):
    """Nothing before `commit_write`, all of it after, each row once."""

    def test_wrong_arguments_of_a_job(self, storage: Storage, target: StructuredTable) -> None:
        """An unknown mode, and an id that is empty, over 200 characters or not valid UTF-8, are `ValueError`."""
        for mode, job_id in (("merge", "id"), *(("upsert", one) for one in ("", "x" * 201, "a\0b", "\ud800"))):
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

    def test_last_attempt_handed_over_counts(self, storage: Storage, target: StructuredTable) -> None:
        """The last of two attempts of a partition passed to the commit counts; an attempt not passed never does."""
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
        """Every call of `stage` is a separate attempt, even with equal numbers: either can be committed."""
        for chosen in (0, 1):
            job = self.job(storage, WriteMode.OVERWRITE)
            staged = [storage.stage(job, 0, 0, [batch([{"id": number}])]) for number in (50, 51)]
            storage.commit_write(job, [staged[chosen]])
            assert keys(target.scan()) == [(50 + chosen,)]

    def test_job_committed_twice(self, storage: Storage, target: StructuredTable) -> None:
        """Committing a job id twice does nothing the second time, regardless of changes in between."""
        job = self.job(storage, WriteMode.UPSERT)
        staged = storage.stage(job, 0, 0, [batch([{"id": 3, "n": 3}])])
        storage.commit_write(job, [staged])
        target.upsert({"id": 3, "n": 4})
        storage.commit_write(job, [staged])
        again = storage.begin_write("items", mode="upsert", job_id=job.job_id)
        storage.commit_write(again, [staged])
        assert target.read((3,)) == item(3, n=4)

    def test_job_aborted(self, storage: Storage, target: StructuredTable) -> None:
        """An aborted id cannot be committed, with rows staged before or later; aborting twice is not an error."""
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
        again = storage.begin_write("items", mode=job.mode, job_id=job.job_id)
        storage.commit_write(again, [storage.stage(again, 0, 0, [batch([{"id": 4}])])])

    def test_job_abort_after_commit(self, storage: Storage, target: StructuredTable) -> None:
        """Abort after the commit does nothing."""
        job = self.job(storage, WriteMode.INSERT)
        storage.commit_write(job, [storage.stage(job, 0, 0, [batch([{"id": 3}])])])
        storage.abort_write(job)
        assert keys(target.scan()) == [(1,), (2,), (3,)]

    def test_failed_commit_may_be_tried_again(self, storage: Storage, target: StructuredTable) -> None:
        """A rejected commit wrote nothing, and may succeed once the cause is gone."""
        job = self.job(storage, WriteMode.INSERT)
        staged = storage.stage(job, 0, 0, [batch([{"id": 3, "n": 3}, {"id": 2, "n": 3}])])
        with pytest.raises(RecordExistsError):
            storage.commit_write(job, [staged])
        target.delete((2,))
        storage.commit_write(job, [staged])
        assert plain(target.scan()) == [BEFORE[0], item(2, n=3), item(3, n=3)]

    def test_job_takes_effect_as_of_its_commit(self, storage: Storage, target: StructuredTable) -> None:
        """Changes by others since `stage` do not conflict with a job; its rows are merged with them."""
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
        """A transaction sees nothing of a job that committed after its snapshot."""
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

    def test_jobs_among_writers(self, storage: Storage, target: StructuredTable) -> None:
        """Jobs and transactions that write the same rows at once lose nothing of one another."""
        jobs = max(3, self.stress_rounds // 12)
        done = threading.Event()

        def count() -> int:
            counted = 0
            while not done.is_set() or counted < 3:
                storage.run(lambda transaction: transaction.table("items").increment((1,), "rank"), max_attempts=1000)
                counted += 1
            return counted

        with ThreadPoolExecutor(2) as pool:
            counters = [pool.submit(count) for _ in range(2)]
            try:
                for number in range(jobs):
                    job = self.job(storage, WriteMode.UPSERT)
                    rows: list[Record] = [{"id": key, "n": number, "tag": f"{number}"} for key in range(50)]
                    self.commit_in_the_end(storage, job, [storage.stage(job, 0, 0, [batch(rows)])])
            finally:
                done.set()
            counted = sum(counter.result() for counter in counters)
        assert target.read((1,)) == item(1, n=jobs - 1, tag=f"{jobs - 1}", note="x", rank=counted)
        assert len(keys(target.scan_index("tag", f"{jobs - 1}"))) == 50

    def test_other_processes_stage_and_commit(
        self, storage: Storage, target: StructuredTable, peer: StoreProcess
    ) -> None:
        """Any process stages, any process commits, and committing again from another process does nothing."""
        job = self.job(storage, WriteMode.UPSERT)
        staged = [
            peer.ask("stage", job, 0, [{"id": 3, "n": 3}]),
            storage.stage(job, 1, 0, [batch([{"id": 4, "n": 4}])]),
        ]
        assert plain(target.scan()) == BEFORE
        storage.commit_write(job, staged)
        target.upsert({"id": 3, "n": 33})
        peer.ask("commit_write", job, staged)
        assert plain(target.scan()) == [*BEFORE, item(3, n=33), item(4, n=4)]
        second = self.job(storage, WriteMode.INSERT)
        staged = [peer.ask("stage", second, 0, [{"id": 5}]), storage.stage(second, 1, 0, [batch([{"id": 6}])])]
        peer.ask("commit_write", second, staged)
        assert keys(target.scan()) == [(number,) for number in range(1, 7)]

    def test_staged_rows_outlive_their_process(
        self, storage: Storage, target: StructuredTable, peer: StoreProcess
    ) -> None:
        """Rows staged by a process can be committed after that process was killed."""
        self.require("durable_after_kill")
        job = self.job(storage, WriteMode.UPSERT)
        staged = peer.ask("stage", job, 0, [{"id": 3, "n": 3}])
        peer.kill()
        storage.commit_write(job, [staged])
        assert plain(target.scan()) == [*BEFORE, item(3, n=3)]
