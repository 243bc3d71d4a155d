"""Rules of write jobs that run at the same time as other jobs, an abort, or a drop or change of their table."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
import pytest

from structable.spi import (
    CommitOutcomeUnknownError,
    CommitResult,
    Field,
    StagedWrite,
    Storage,
    StructuredTable,
    TableNotFoundError,
    TableSpecification,
    Transaction,
    TransactionClosedError,
    TransactionConflictError,
    WriteJob,
    WriteMode,
)

from .samples import ITEMS, Record, keys, plain
from .write_jobs import JobCase, batch

_IN_PLACE_AND_WHOLE = pytest.mark.parametrize("mode", [WriteMode.UPSERT, WriteMode.OVERWRITE])
_NAMED_BY = pytest.mark.parametrize("kind", ["id", "batch"])
_ROWS = 200


class JobRaceRules(JobCase):
    """A job becomes visible whole or not at all, with anything else going on at the same time."""

    @property
    def races(self) -> int:
        """The number of repetitions of each race."""
        return max(3, self.stress_rounds // 15)

    def stage_many(self, storage: Storage, job: WriteJob, first: int) -> list[StagedWrite]:
        """Stage rows with ids from `first` on, in two partitions; their tag is `first`."""
        rows: list[Record] = [{"id": first + place, "n": first, "tag": f"{first}"} for place in range(_ROWS)]
        return [storage.stage(job, part, 0, [batch(rows[part::2])]) for part in range(2)]

    def together(self, *calls: Callable[[], object]) -> list[object]:
        """Run calls at the same time, and return their results or errors."""
        start = threading.Barrier(len(calls))

        def run(call: Callable[[], object]) -> object:
            start.wait()
            try:
                return call()
            except Exception as error:
                return error

        with ThreadPoolExecutor(len(calls)) as pool:
            return list(pool.map(run, calls))

    def submission(self, storage: Storage, kind: str, mode: WriteMode, number: int) -> Callable[[], WriteJob]:
        """Return a function that begins one job, however often: by an id, or as a batch of a stream."""
        if kind == "batch":
            self.require("streams")
            return partial(storage.begin_write, "items", mode=mode, stream="again", batch=number)
        return partial(storage.begin_write, "items", mode=mode, job_id=self.fresh_id())

    def expect_whole(self, table: StructuredTable, first: int, *, there: bool) -> None:
        """Check that all rows of a job, or none, are in the table and in its index."""
        wanted = [(first + place,) for place in range(_ROWS)] if there else []
        assert [key for key in keys(table.scan()) if first <= int(str(key[0])) < first + _ROWS] == wanted
        assert keys(table.scan_index("tag", f"{first}")) == wanted

    @_IN_PLACE_AND_WHOLE
    def test_commit_meets_an_abort(self, storage: Storage, target: StructuredTable, mode: WriteMode) -> None:
        """Of a commit and an abort at once, one wins: rows and true, or `TransactionClosedError` and no rows."""
        for number in range(1, self.races + 1):
            job = self.job(storage, mode)
            staged = self.stage_many(storage, job, number * 1_000)
            outcome, aborted = self.together(
                partial(self.commit_in_the_end, storage, job, staged),
                partial(storage.abort_write, job),
            )
            assert aborted is None or isinstance(aborted, TransactionConflictError)
            assert outcome == CommitResult(applied=True) or isinstance(outcome, TransactionClosedError)
            done = not isinstance(outcome, TransactionClosedError)
            self.expect_whole(target, number * 1_000, there=done)
            assert storage.begin_write("items", mode=mode, job_id=job.job_id).committed is done

    @_NAMED_BY
    @_IN_PLACE_AND_WHOLE
    def test_commit_meets_the_same_job_again(
        self, storage: Storage, target: StructuredTable, mode: WriteMode, kind: str
    ) -> None:
        """A job that is submitted again during its commit is found committed, or stages undisturbed; it counts once."""
        for number in range(1, self.races + 1):
            begin = self.submission(storage, kind, mode, number)
            first = begin()
            staged = self.stage_many(storage, first, number * 1_000)

            def again(number: int = number, begin: Callable[[], WriteJob] = begin) -> CommitResult:
                job = begin()
                attempts = [self.stage_many(storage, job, number * 1_000) for _ in range(3)]
                return self.commit_in_the_end(storage, job, attempts[-1])

            results = self.together(partial(self.commit_in_the_end, storage, first, staged), again, again, again)
            unknown = [result for result in results if isinstance(result, CommitOutcomeUnknownError)]
            assert all(isinstance(result, CommitResult) for result in results if result not in unknown), results
            assert results.count(CommitResult(applied=True)) == 1 or unknown
            assert begin().committed
            self.expect_whole(target, number * 1_000, there=True)

    @_NAMED_BY
    @_IN_PLACE_AND_WHOLE
    def test_stage_that_outlasts_the_commit(
        self, storage: Storage, target: StructuredTable, mode: WriteMode, kind: str
    ) -> None:
        """Attempts that began before their job was committed stage on after it, and find it committed."""
        begin = self.submission(storage, kind, mode, 1)
        first, second, third = begin(), begin(), begin()
        staged = self.stage_many(storage, first, 1_000)

        def batches() -> Iterator[pa.RecordBatch]:
            yield batch([{"id": 1, "n": 7}])
            assert storage.commit_write(first, staged)
            yield batch([{"id": 2, "n": 7}])

        again = [storage.stage(second, 0, 0, batches())]
        late = [storage.stage(third, 0, 0, [batch([{"id": 1, "n": 8}])])]
        after = plain(target.scan())
        for job, rows in ((second, again), (third, late), (begin(), [*again, *late])):
            assert storage.commit_write(job, rows) == CommitResult(applied=False)
        assert plain(target.scan()) == after
        self.expect_whole(target, 1_000, there=True)

    @_IN_PLACE_AND_WHOLE
    def test_abort_meets_a_batch_that_begins_again(
        self, storage: Storage, streamed: StructuredTable, mode: WriteMode
    ) -> None:
        """A batch that begins again while it is aborted is committed whole, or aborted too; it loses no staged row."""
        for number in range(1, self.races + 1):
            begin = self.submission(storage, "batch", mode, number)
            first = begin()
            self.stage_many(storage, first, number * 1_000)

            def again(number: int = number, begin: Callable[[], WriteJob] = begin) -> CommitResult:
                job = begin()
                return self.commit_in_the_end(storage, job, self.stage_many(storage, job, number * 1_000))

            outcome, aborted = self.together(again, partial(storage.abort_write, first))
            assert aborted is None or isinstance(aborted, TransactionConflictError)
            if isinstance(outcome, TransactionClosedError):
                outcome = again()
            assert outcome == CommitResult(applied=True)
            self.expect_whole(streamed, number * 1_000, there=True)

    def test_two_overwrites_meet(self, storage: Storage, target: StructuredTable) -> None:
        """Two jobs that overwrite one table at once both commit, and the table holds the rows of one of them."""
        for number in range(self.races):
            firsts = [1_000 * (2 * number + 1), 1_000 * (2 * number + 2)]
            jobs = [self.job(storage, WriteMode.OVERWRITE) for _ in firsts]
            staged = [self.stage_many(storage, job, first) for job, first in zip(jobs, firsts, strict=True)]
            results = self.together(
                *(partial(self.commit_in_the_end, storage, job, one) for job, one in zip(jobs, staged, strict=True))
            )
            assert results == [CommitResult(applied=True)] * 2
            assert target.count() == _ROWS
            left = firsts[0] if target.read((firsts[0],)) is not None else firsts[1]
            self.expect_whole(target, left, there=True)

    @pytest.mark.parametrize("mode", ["update", "delete", "changes", "patch"])
    def test_commit_meets_a_row_that_is_written_anew(
        self, storage: Storage, target: StructuredTable, mode: str
    ) -> None:
        """A job that changes or deletes a row which another writer deletes and inserts again at once is not lost."""
        self.require("table_types" if mode == "changes" else "streams")
        kind = {"changes": {"_change_type": "delete"}, "patch": {"_arm": "present"}}.get(mode, {})
        is_over = threading.Event()

        def write_anew(transaction: Transaction) -> None:
            table = transaction.table("items")
            row = table.read((1,))
            if row is not None:
                table.delete((1,))
                table.insert({**row, "n": row.n + 1})
                assert [table.count() for _ in range(5)] == [2] * 5

        def disturb() -> None:
            while not is_over.is_set():
                storage.run(write_anew)

        with ThreadPoolExecutor(1) as pool:
            disturbing = pool.submit(disturb)
            try:
                for number in range(self.stress_rounds // 4):
                    target.upsert({"id": 1, "n": 0})
                    row: Record = {"id": 1} if mode in ("delete", "changes") else {"id": 1, "tag": f"{number}"}
                    made = batch([row])
                    for name, value in kind.items():
                        made = made.append_column(name, pa.array([value]))
                    job = self.job(storage, mode)
                    assert self.commit_in_the_end(storage, job, [storage.stage(job, 0, 0, [made])])
                    found = target.read((1,), ["tag"])
                    assert found == (None if len(row) == 1 else row)
            finally:
                is_over.set()
            disturbing.result()

    @_IN_PLACE_AND_WHOLE
    def test_commit_meets_a_drop(self, storage: Storage, target: StructuredTable, mode: WriteMode) -> None:
        """A job whose table is dropped and made again is committed before that or never: no row is left."""
        for _ in range(self.races):
            job = self.job(storage, mode)
            staged = self.stage_many(storage, job, 1_000)

            def anew() -> None:
                storage.admin.drop("items")
                storage.admin.create(ITEMS)

            outcome, admin = self.together(
                partial(self.commit_in_the_end, storage, job, staged),
                anew,
            )
            assert admin is None
            assert outcome == CommitResult(applied=True) or isinstance(outcome, TableNotFoundError)
            assert keys(storage.table("items").scan()) == []
            assert keys(storage.table("items").scan_index("tag", "1000")) == []
            with pytest.raises(TableNotFoundError):
                storage.commit_write(job, staged)

    @_IN_PLACE_AND_WHOLE
    def test_commit_meets_a_change_of_its_table(
        self, storage: Storage, target: StructuredTable, mode: WriteMode
    ) -> None:
        """A job whose table gets fields and indexes is committed, and the new index has all of its rows."""
        fields = list(ITEMS.fields)
        for number in range(1, self.races + 1):
            job = self.job(storage, mode)
            staged = self.stage_many(storage, job, number * 1_000)
            fields.append(Field.int(f"more{number}"))
            indexes = ["tag", "rank", "n", *(f"more{one}" for one in range(1, number + 1))]
            changed = TableSpecification("items", fields, ITEMS.primary_key, indexes)
            outcome, admin = self.together(
                partial(self.commit_in_the_end, storage, job, staged),
                partial(storage.admin.create_or_update, changed),
            )
            assert (outcome, admin) == (CommitResult(applied=True), None)
            self.expect_whole(target, number * 1_000, there=True)
            assert len(keys(target.scan_index("n", number * 1_000))) == _ROWS
            assert len(keys(target.scan_index(f"more{number}", None))) == target.count()
