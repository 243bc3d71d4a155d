"""Rules of write jobs that are batches of a stream."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from structable.spi import (
    CommitOutcomeUnknownError,
    CommitResult,
    Field,
    Range,
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
from .feed_case import read_between, with_feed
from .merge_case import add, change_batch
from .merge_job_rules import SUMS
from .samples import ITEMS, item, keys, plain
from .write_jobs import ALL_MODES, BEFORE, JobCase, batch

_ALL = Range.all()
WRONG: dict[str, dict[str, object]] = {
    "neither id nor stream": {},
    "an id and a stream": {"job_id": "j", "stream": "s", "batch": 1},
    "an id and a batch": {"job_id": "j", "batch": 1},
    "a stream without a batch": {"stream": "s"},
    "a batch without a stream": {"batch": 1},
    "a negative batch": {"stream": "s", "batch": -1},
    "a batch that is a bool": {"stream": "s", "batch": True},
    "a batch that is a float": {"stream": "s", "batch": 1.0},
    "a batch that is a text": {"stream": "s", "batch": "1"},
    "a batch of more than 64 bits": {"stream": "s", "batch": 1 << 63},
    "an empty stream": {"stream": "", "batch": 1},
    "a long stream": {"stream": "s" * 201, "batch": 1},
    "NUL in a stream": {"stream": "a\0b", "batch": 1},
    "half a character in a stream": {"stream": "\ud800", "batch": 1},
    "a stream that is not a string": {"stream": 7, "batch": 1},
    "an id like a batch's": {"job_id": "batch 5 of stream s"},
}


class StreamJobRules(JobCase):
    """A batch of a stream is committed at most once as long as the table exists."""

    def begin_batch(self, storage: Storage, number: int, mode: str = "insert", stream: str = "s") -> WriteJob:
        return storage.begin_write("items", mode=mode, stream=stream, batch=number)

    def stage_batch(self, storage: Storage, job: WriteJob, *ids: int) -> list[StagedWrite]:
        rows = [{"id": key} if job.mode is WriteMode.DELETE else {"id": key, "n": job.batch} for key in ids]
        return [storage.stage(job, 0, 0, [batch(rows)])]

    def write_batch(
        self, storage: Storage, number: int, *ids: int, mode: str = "insert", stream: str = "s"
    ) -> CommitResult:
        """Write rows as a batch, even if it was committed before."""
        job = self.begin_batch(storage, number, mode, stream)
        return storage.commit_write(job, self.stage_batch(storage, job, *ids))

    @pytest.mark.parametrize("name", WRONG)
    def test_bad_batches(self, storage: Storage, streamed: StructuredTable, name: str) -> None:
        """A job has an id, or a stream and a batch number from 0 of at most 63 bits: else `ValueError`."""
        with pytest.raises(ValueError, match=r"batch|job_id|stream"):
            storage.begin_write("items", mode="insert", **cast(Any, WRONG[name]))

    def test_batch_of_no_table(self, storage: Storage) -> None:
        """A batch of an absent table is `TableNotFoundError`."""
        self.require("streams")
        with pytest.raises(TableNotFoundError):
            self.begin_batch(storage, 1)

    @ALL_MODES
    def test_batch_counts_once(self, storage: Storage, streamed: StructuredTable, mode: WriteMode) -> None:
        """The commit that makes the rows visible returns true; begun again, the batch is `committed`."""
        job = self.begin_batch(storage, 7, mode)
        assert (job.stream, job.batch, job.mode, job.committed) == ("s", 7, mode, False)
        staged = self.stage_batch(storage, job, 3 if mode is WriteMode.INSERT else 1)
        assert storage.commit_write(job, staged) == CommitResult(applied=True)
        now = plain(streamed.scan())
        assert now != BEFORE
        assert storage.commit_write(job, staged) == CommitResult(applied=False)
        again = self.begin_batch(storage, 7, mode)
        assert again.committed
        assert storage.commit_write(again, self.stage_batch(storage, again, 4)) == CommitResult(applied=False)
        storage.abort_write(again)
        storage.abort_write(job)
        assert plain(streamed.scan()) == now
        assert self.begin_batch(storage, 7, mode).committed

    def test_lower_batches_are_committed(self, storage: Storage, streamed: StructuredTable) -> None:
        """A batch makes every lower one count as committed, even one that was begun and staged; numbers begin at 0."""
        late = self.begin_batch(storage, 3)
        staged = self.stage_batch(storage, late, 30)
        assert not self.begin_batch(storage, 0).committed
        assert self.write_batch(storage, 5, 50)
        assert [self.begin_batch(storage, number).committed for number in (0, 4, 5, 6)] == [True, True, True, False]
        assert storage.commit_write(late, staged) == CommitResult(applied=False)
        assert not self.write_batch(storage, 4, 40)
        assert self.write_batch(storage, 6, 60)
        assert self.write_batch(storage, (1 << 63) - 1, 70)
        assert keys(streamed.scan()) == [(1,), (2,), (50,), (60,), (70,)]

    def test_batches_with_gaps(self, storage: Storage, streamed: StructuredTable) -> None:
        """Numbers need not be consecutive, and a stream may begin with any number."""
        for number in (2, 3, 9, 100):
            assert self.write_batch(storage, number, 1000 + number)
            assert not self.write_batch(storage, number, 2000 + number)
        assert keys(streamed.scan()) == [(1,), (2,), (1002,), (1003,), (1009,), (1100,)]

    def test_streams_of_one_table(self, storage: Storage, streamed: StructuredTable) -> None:
        """Streams of one table have numbers of their own, whatever their names are."""
        names = ["s", "S", "s ", "s/1", "\u00e9", "e\u0301", "'\"%;", "x" * 200, "batch 1 of stream s"]
        for place, name in enumerate(names):
            assert self.write_batch(storage, 1, 100 + place, stream=name)
        for name in names:
            assert self.begin_batch(storage, 1, stream=name).committed
            assert not self.begin_batch(storage, 2, stream=name).committed
        assert streamed.count() == 2 + len(names)

    def test_streams_of_different_tables(self, storage: Storage, streamed: StructuredTable) -> None:
        """Streams of different tables are independent, and so are ids and streams."""
        storage.admin.create(ITEMS.evolve(name="others"))
        assert self.write_batch(storage, 1, 3)
        other = storage.begin_write("others", mode="insert", stream="s", batch=1)
        assert not other.committed
        assert storage.commit_write(other, self.stage_batch(storage, other, 3))
        job = storage.begin_write("items", mode="insert", job_id="s")
        assert not job.committed
        assert storage.commit_write(job, self.stage_batch(storage, job, 4))
        assert keys(streamed.scan()) == [(1,), (2,), (3,), (4,)]

    def test_batch_of_a_dropped_table(self, storage: Storage, streamed: StructuredTable) -> None:
        """Dropping a table drops its numbers: its successor has none, and a batch begun before is refused."""
        assert self.write_batch(storage, 5, 3)
        old = self.begin_batch(storage, 6)
        staged = self.stage_batch(storage, old, 4)
        storage.admin.drop("items")
        with pytest.raises(TableNotFoundError):
            storage.commit_write(old, staged)
        storage.admin.create(ITEMS)
        with pytest.raises(TableNotFoundError):
            storage.commit_write(old, staged)
        assert not self.begin_batch(storage, 0).committed
        assert self.write_batch(storage, 5, 9)
        assert keys(storage.table("items").scan()) == [(9,)]

    def test_changed_table_keeps_its_streams(self, storage: Storage, streamed: StructuredTable) -> None:
        """New fields and indexes, and an overwrite of all rows, leave the numbers."""
        assert self.write_batch(storage, 5, 3)
        storage.admin.create_or_update(
            TableSpecification("items", [*ITEMS.fields, Field.int("more")], ITEMS.primary_key, ["tag", "rank", "more"])
        )
        assert self.write_batch(storage, 8, 4, mode="overwrite", stream="other")
        self.run_job(storage, WriteMode.OVERWRITE, [{"id": 9}])
        assert self.begin_batch(storage, 5).committed
        assert self.begin_batch(storage, 8, stream="other").committed
        assert self.write_batch(storage, 6, 10)
        assert keys(storage.table("items").scan()) == [(9,), (10,)]

    def test_batch_begins_again_after_an_abort(self, storage: Storage, streamed: StructuredTable) -> None:
        """An abort drops the staged rows and nothing else: the batch may begin again, also in another mode."""
        job = self.begin_batch(storage, 1)
        staged = self.stage_batch(storage, job, 3)
        storage.abort_write(job)
        again = self.begin_batch(storage, 1, "upsert")
        assert not again.committed
        with pytest.raises((StructableError, ValueError)):
            storage.commit_write(again, staged)
        assert plain(streamed.scan()) == BEFORE
        again = self.begin_batch(storage, 1, "upsert")
        assert storage.commit_write(again, self.stage_batch(storage, again, 4))
        assert keys(streamed.scan()) == [(1,), (2,), (4,)]

    def test_aborted_batch_is_not_committed(self, storage: Storage, streamed: StructuredTable) -> None:
        """An aborted batch cannot be committed until it begins again, whatever is staged for it; others can."""
        first, other, later = (
            self.begin_batch(storage, 1),
            self.begin_batch(storage, 1, stream="other"),
            self.begin_batch(storage, 2),
        )
        storage.abort_write(first)
        storage.abort_write(later)
        for job in (first, later, first):
            with pytest.raises(TransactionClosedError):
                storage.commit_write(job, self.stage_batch(storage, job, 3))
        assert plain(streamed.scan()) == BEFORE
        assert storage.commit_write(other, self.stage_batch(storage, other, 4))
        again = self.begin_batch(storage, 1)
        assert not again.committed
        with pytest.raises(TransactionClosedError):
            storage.commit_write(later, self.stage_batch(storage, later, 5))
        assert storage.commit_write(again, self.stage_batch(storage, again, 6))
        with pytest.raises(TransactionClosedError):
            storage.commit_write(later, self.stage_batch(storage, later, 7))
        assert storage.commit_write(first, self.stage_batch(storage, first, 8)) == CommitResult(applied=False)
        assert self.write_batch(storage, 3, 9)
        assert storage.commit_write(later, self.stage_batch(storage, later, 10)) == CommitResult(applied=False)
        assert keys(streamed.scan()) == [(1,), (2,), (4,), (6,), (9,)]

    def test_batch_begins_again_in_another_mode(self, storage: Storage, streamed: StructuredTable) -> None:
        """A batch that is not committed may begin again in another mode, which is the one that counts."""
        first = self.begin_batch(storage, 1, "insert")
        self.stage_batch(storage, first, 1)
        again = self.begin_batch(storage, 1, "delete")
        assert storage.commit_write(again, self.stage_batch(storage, again, 1))
        assert self.begin_batch(storage, 1, "insert").committed
        assert keys(streamed.scan()) == [(2,)]

    def test_staged_in_another_mode(self, storage: Storage, streamed: StructuredTable) -> None:
        """Rows that were staged in one mode are never written in another."""
        first = self.begin_batch(storage, 1, "upsert")
        staged = [storage.stage(first, 0, 0, [batch([{"id": 1}])])]
        again = self.begin_batch(storage, 1, "delete")
        with pytest.raises((StructableError, ValueError)):
            storage.commit_write(again, staged)
        assert plain(streamed.scan()) == BEFORE
        assert not self.begin_batch(storage, 1, "delete").committed

    def test_abort_leaves_other_batches(self, storage: Storage, streamed: StructuredTable) -> None:
        """An abort of one batch leaves the rows staged for another batch, and for another stream."""
        one, two, other = (
            self.begin_batch(storage, 1),
            self.begin_batch(storage, 2),
            self.begin_batch(storage, 1, stream="other"),
        )
        staged = {job.job_id: self.stage_batch(storage, job, key) for job, key in ((one, 3), (two, 4), (other, 5))}
        assert len(staged) == 3
        storage.abort_write(one)
        assert storage.commit_write(other, staged[other.job_id])
        assert storage.commit_write(two, staged[two.job_id])
        assert self.begin_batch(storage, 1).committed
        assert keys(streamed.scan()) == [(1,), (2,), (4,), (5,)]

    def test_staged_for_another_batch(self, storage: Storage, streamed: StructuredTable) -> None:
        """Rows that were staged for one batch are refused in another with `ValueError`."""
        one, two = self.begin_batch(storage, 1), self.begin_batch(storage, 2)
        staged = self.stage_batch(storage, one, 3)
        with pytest.raises(ValueError, match="stream"):
            storage.commit_write(two, staged)
        assert plain(streamed.scan()) == BEFORE

    def test_failed_batch_may_come_again(self, storage: Storage, streamed: StructuredTable) -> None:
        """A commit that the rows do not allow writes nothing, and the batch is not committed."""
        with pytest.raises(StructableError):
            self.write_batch(storage, 1, 1, 3)
        assert plain(streamed.scan()) == BEFORE
        assert not self.begin_batch(storage, 1).committed
        assert self.write_batch(storage, 1, 3, 4)
        assert keys(streamed.scan()) == [(1,), (2,), (3,), (4,)]

    def test_committed_batch_stages_nothing(self, storage: Storage, streamed: StructuredTable) -> None:
        """Rows staged for a batch that is committed already never count."""
        assert self.write_batch(storage, 1, 3)
        job = self.begin_batch(storage, 1)
        (staged,) = self.stage_batch(storage, job, *range(100, 200))
        assert staged.rows == 0
        assert not storage.commit_write(job, [staged])
        assert keys(streamed.scan()) == [(1,), (2,), (3,)]

    def test_empty_batch_counts(self, storage: Storage, streamed: StructuredTable) -> None:
        """A batch without rows is committed like any other."""
        job = self.begin_batch(storage, 1)
        assert storage.commit_write(job, [])
        assert self.begin_batch(storage, 1).committed
        assert not self.write_batch(storage, 1, 3)

    def test_streams_outlive_the_storage(self, storage: Storage, streamed: StructuredTable, storage_url: str) -> None:
        """The store keeps the numbers, and another storage finds the rows that were staged before."""
        self.require("restartable")
        assert self.write_batch(storage, 1, 3)
        job = self.begin_batch(storage, 2)
        staged = self.stage_batch(storage, job, 4)
        storage.close()
        with connect(storage_url) as second:
            assert self.begin_batch(second, 1).committed
            assert not self.begin_batch(second, 2).committed
            assert second.commit_write(job, staged)
        with connect(storage_url) as third:
            assert self.begin_batch(third, 2).committed
            assert not self.write_batch(third, 2, 5)
            assert keys(third.table("items").scan()) == [(1,), (2,), (3,), (4,)]

    def test_numbers_are_kept_while_others_end(self, storage: Storage, streamed: StructuredTable) -> None:
        """Many batches, jobs and aborts leave the number of every stream."""
        assert self.write_batch(storage, 1, 3, stream="first")
        for number in range(30):
            assert self.write_batch(storage, number, 100 + number)
            storage.abort_write(self.begin_batch(storage, number + 1))
            storage.commit_write(self.job(storage, WriteMode.UPSERT), [])
        assert self.begin_batch(storage, 1, stream="first").committed
        assert [self.begin_batch(storage, number).committed for number in (0, 29, 30)] == [True, True, False]

    def test_merges_of_a_batch_count_once(self, storage: Storage) -> None:
        """A batch adds to a sum once, however often it is repeated."""
        self.require("streams")
        self.require("table_types")
        storage.admin.create(SUMS)
        for number in (1, 1, 2, 1, 2, 3, 3):
            job = storage.begin_write(SUMS.name, mode="changes", stream="sums", batch=number)
            rows = [change_batch(SUMS, [add(id=1, n=10), add(id=1, n=1)])]
            storage.commit_write(job, [storage.stage(job, 0, 0, rows)])
        assert [row["n"] for row in storage.table(SUMS.name).scan()] == [33]

    def test_feed_of_a_batch(self, storage: Storage) -> None:
        """A batch is one version of the feed; a repeated batch adds none."""
        self.require("streams")
        self.require("table_types")
        self.require("change_feeds")
        storage.admin.create(with_feed(ITEMS))
        for number in (1, 1, 2):
            self.write_batch(storage, number, 10 * number, 10 * number + 1)
        changes = read_between(storage, "items")
        assert [change.row["id"] for change in changes] == [10, 11, 20, 21]
        assert len({change.version for change in changes}) == 2

    def test_one_of_many_commits_of_a_batch_applies(self, storage: Storage, streamed: StructuredTable) -> None:
        """If several commits of one batch, each with its own rows, run at once, exactly one applies."""
        for number in range(max(3, self.stress_rounds // 15)):
            streamed.delete_all(_ALL)

            def commit(place: int, number: int = number) -> bool | None:
                while True:
                    job = self.begin_batch(storage, number)
                    if job.committed:
                        return False
                    try:
                        staged = [storage.stage(job, place, 0, [batch([{"id": 10 * place}, {"id": 10 * place + 1}])])]
                        return storage.commit_write(job, staged).applied
                    except TransactionConflictError:
                        continue
                    except CommitOutcomeUnknownError:
                        return None

            with ThreadPoolExecutor(4) as pool:
                results = list(pool.map(commit, range(4)))
            found = [key for (key,) in keys(streamed.scan())]
            assert len(found) == 2
            assert results.count(True) == 1 or None in results
            if True in results:
                assert found[0] == 10 * results.index(True)

    def test_batches_across_processes(self, storage: Storage, streamed: StructuredTable, peer: StoreProcess) -> None:
        """Every process knows what another process has begun, staged and committed."""
        job = self.begin_batch(storage, 1)
        staged = self.stage_batch(storage, job, 3)
        assert peer.ask("commit_write", job, staged) == CommitResult(applied=True)
        assert storage.commit_write(job, staged) == CommitResult(applied=False)
        assert self.begin_batch(storage, 1).committed
        assert self.write_batch(storage, 2, 4)
        second = self.begin_batch(storage, 3)
        staged = self.stage_batch(storage, second, 5)
        assert peer.ask("commit_write", second, staged) == CommitResult(applied=True)
        assert keys(streamed.scan()) == [(1,), (2,), (3,), (4,), (5,)]

    def test_random_drivers(self, storage: Storage, streamed: StructuredTable) -> None:
        """Drivers that die at any moment and restart write each batch once, in order."""
        chance = random.Random(self.max_steps)
        written: dict[int, int] = {}
        number = 0
        while number < 12:
            job = self.begin_batch(storage, number, "upsert")
            if job.committed:
                number += 1
                continue
            rows = [item(100 + number, n=number), item(99, n=number)]
            staged = [storage.stage(job, 0, attempt, [batch(rows)]) for attempt in range(chance.randint(0, 2))]
            end = chance.random()
            if end < 0.2:
                storage.abort_write(job)
            elif end < 0.7 and staged:
                assert storage.commit_write(job, staged)
                written[number] = written.get(number, 0) + 1
        assert written == dict.fromkeys(range(12), 1)
        assert keys(streamed.scan()) == [(1,), (2,), (99,), *((100 + number,) for number in range(12))]
        assert streamed.read((99,)) == item(99, n=11)
