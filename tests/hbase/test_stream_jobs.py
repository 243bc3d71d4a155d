"""Batches of streams, and patches: killed at each step of the protocol, and submitted again, they count once."""

from __future__ import annotations

from typing import Literal

import pytest

from structable.spi import CommitResult, Field, FindingLevel, TableSpecification, connect

from .support.bank import quick
from .support.bank_killing import at_each_step_of_a_job, killed
from .support.bank_worker import SUMS, submit_batch
from .support.internals import collect_garbage

SPEC = TableSpecification(
    "sums",
    [Field.long("k"), Field.long("n")],
    ["k"],
    ["n"],
    {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "changelog-producer": "lookup"},
)
MISSING = 10


@pytest.mark.parametrize("mode", ["upsert", "patch"])
@at_each_step_of_a_job
def test_killed_batch_counts_once(
    hbase_url: str, point: str, number: int, committed: bool, mode: Literal["upsert", "patch"]
) -> None:
    url = quick(hbase_url, lease=6)  # a job must send heartbeats meanwhile, even on a busy machine
    before = [(k, 1) for k in range(0, SUMS, 2)]
    odd, even = (100, 2) if mode == "patch" else (5, 6)
    after = [(k, odd if k % 2 else even) for k in range(SUMS)]
    missing = MISSING if mode == "patch" else 0
    with connect(url) as storage:
        storage.admin.create(SPEC)
        table = storage.table("sums")
        table.upsert_many({"k": k, "n": n} for k, n in before)
        killed("batch" if mode == "upsert" else "patch", url, point, number)
        assert [(row["k"], row["n"]) for row in table.scan()] == (after if committed else before)
        expected = CommitResult(applied=False) if committed else CommitResult(applied=True, missing=missing)
        assert submit_batch(storage, mode) == expected
        assert [(row["k"], row["n"]) for row in table.scan()] == after
        while collect_garbage(storage).repaired:
            continue
        for old in (1, 0):
            assert submit_batch(storage, mode, old) == CommitResult(applied=False)
        assert [(row["k"], row["n"]) for row in table.scan()] == after
        found = [[row["k"] for row in table.scan_index("n", value)] for value in (1, odd, even)]
        assert found == [[], list(range(1, SUMS, 2)), list(range(0, SUMS, 2))]
        changes = list(storage.changes("sums").read())
        assert len({change.version for change in changes}) == 2
        assert len(changes) == SUMS // 2 + SUMS // 2 + 2 * (SUMS // 2)
        assert not [one for one in storage.diagnose() if one.level is FindingLevel.PROBLEM]
