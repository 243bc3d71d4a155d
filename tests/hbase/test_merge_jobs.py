"""Jobs whose rows are merged: killed at each step of the protocol, and submitted again, they add once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from structable.backends.hbase.failpoints import failpoints
from structable.backends.hbase.layout import MARKER
from structable.backends.hbase.txn.bulk import BulkCommitter
from structable.backends.hbase.txn.prewrite import PendingCommit
from structable.backends.ordered.engine import SPACE_BYTES
from structable.spi import (
    Field,
    Range,
    StagedWrite,
    Storage,
    TableSpecification,
    TransactionConflictError,
    WriteJob,
    connect,
)

from .support.bank import quick
from .support.bank_killing import at_each_step_of_a_job, killed
from .support.bank_worker import SUMS, submit_sums
from .support.internals import collect_garbage, stall_beside_janitor

BAG = TableSpecification("bag", [Field.string("word")], (), ["word"], {"write-mode": "change-log"})
SPEC = TableSpecification(
    "sums",
    [Field.long("k"), Field.long("n")],
    ["k"],
    options={"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
)


def sums(storage: Storage) -> list[tuple[object, object]]:
    return [(row["k"], row["n"]) for row in storage.table("sums").scan()]


def test_stalled_job_beside_its_own_janitor(hbase_url: str) -> None:
    """A process knows that its own jobs are alive, however long they take."""
    with connect(quick(hbase_url, lease=1)) as storage:
        storage.admin.create(SPEC)
        failpoints["bulk_prewritten"] = lambda: stall_beside_janitor(storage, "bulk_prewritten", 3)
        assert submit_sums(storage)
        assert "bulk_prewritten" not in failpoints
        assert sums(storage) == [(k, 5) for k in range(SUMS)]


@pytest.mark.parametrize("indexed", [False, True])
@at_each_step_of_a_job
def test_killed_merge_job_adds_once(hbase_url: str, point: str, number: int, committed: bool, indexed: bool) -> None:
    url = quick(hbase_url, lease=6)  # a job must send heartbeats meanwhile, even on a busy machine
    with connect(url) as storage:
        storage.admin.create(SPEC.evolve(indexes=["n"] * indexed))
        storage.table("sums").upsert_many({"k": k, "n": 1} for k in range(0, SUMS, 2))
        before = [(k, 1) for k in range(0, SUMS, 2)]
        after = [(k, 5 if k % 2 else 6) for k in range(SUMS)]
        killed("sums", url, point, number)
        assert sums(storage) == (after if committed else before)
        assert submit_sums(storage) != committed
        assert sums(storage) == after
        while collect_garbage(storage).repaired:
            continue
        assert not submit_sums(storage)
        assert sums(storage) == after
        if indexed:
            table = storage.table("sums")
            found = [[row["k"] for row in table.scan_index("n", value)] for value in (1, 5, 6)]
            assert found == [[], list(range(1, SUMS, 2)), list(range(0, SUMS, 2))]


def bag(storage: Storage) -> list[str]:
    return sorted(str(row["word"]) for row in storage.table("bag").scan())


def changes(storage: Storage, job_id: str, *parts: dict[str, int]) -> tuple[WriteJob, list[StagedWrite]]:
    """Stage words, each with the number of its +I, or of its -D where negative."""
    pa = pytest.importorskip("pyarrow")
    job = storage.begin_write("bag", mode="changes", job_id=job_id)
    staged = []
    for partition, words in enumerate(parts):
        rows = [(word, "+I" if number > 0 else "-D") for word, number in words.items() for _ in range(abs(number))]
        batch = pa.record_batch({"word": [word for word, _ in rows], "_change_type": [kind for _, kind in rows]})
        staged.append(storage.stage(job, partition, 0, [batch]))
    return job, staged


def test_job_takes_rows_out_of_a_bag(hbase_url: str) -> None:
    with connect(hbase_url) as storage:
        storage.admin.create(BAG)
        storage.table("bag").insert_many([{"word": word} for word in "aaabbc"])
        job, staged = changes(storage, "one", {"a": -2, "c": -5, "d": -1, "e": 3}, {"d": 1, "b": -1, "e": -2})
        storage.commit_write(job, staged)
        assert bag(storage) == ["a", "b", "d", "e"]
        assert [row["word"] for row in storage.table("bag").scan_index("word", "e")] == ["e"]
        storage.commit_write(job, staged)
        assert bag(storage) == ["a", "b", "d", "e"]


@pytest.mark.parametrize("rounds", [5])
def test_two_jobs_and_a_transaction_take_different_rows(hbase_url: str, rounds: int) -> None:
    """Each of three writers takes one of four equal rows away, at once; none is taken twice."""
    with connect(hbase_url) as storage, ThreadPoolExecutor(3) as pool:
        storage.admin.create(BAG)
        for number in range(rounds):
            storage.table("bag").insert_many([{"word": "x"}] * 4)
            jobs = [changes(storage, f"{number}-{job}", {"x": -1}) for job in range(2)]

            def take() -> None:
                storage.run(
                    lambda transaction: transaction.table("bag").apply_changes([("-D", {"word": "x"})]),
                    max_attempts=1_000,
                )

            def commit(job: WriteJob, staged: list[StagedWrite]) -> None:
                while True:
                    with suppress(TransactionConflictError):
                        storage.commit_write(job, staged)
                        return

            ends = [pool.submit(take), *(pool.submit(commit, *one) for one in jobs)]
            for end in ends:
                end.result()
            assert bag(storage) == ["x"]
            storage.table("bag").delete_all(Range.all())


def test_row_that_goes_between_the_search_and_its_lock(hbase_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job then takes another equal row, also one that came meanwhile."""
    with connect(hbase_url) as storage, connect(hbase_url) as other:
        storage.admin.create(BAG)
        storage.table("bag").insert_many([{"word": "x"}] * 2)
        job, staged = changes(storage, "job", {"x": -1})
        lock, taken = BulkCommitter.lock, False

        def late(self: BulkCommitter, pending: PendingCommit, keys: Sequence[bytes]) -> dict[bytes, bytes | None]:
            nonlocal taken
            if not taken and len(keys) == 1 and keys[0][SPACE_BYTES:] != MARKER:
                taken = True
                other.table("bag").delete_all(Range.all())
                other.table("bag").insert_many([{"word": "x"}] * 3)
            return lock(self, pending, keys)

        monkeypatch.setattr(BulkCommitter, "lock", late)
        storage.commit_write(job, staged)
        assert taken
        assert bag(storage) == ["x"] * 2
