"""Jobs whose rows are merged: killed at each step of the protocol, and submitted again, they add once."""

from __future__ import annotations

import pytest

from structable.spi import Field, Storage, TableSpecification, connect

from .support.bank import quick
from .support.bank_killing import killed
from .support.bank_worker import SUMS, submit_sums
from .support.internals import collect_garbage

SPEC = TableSpecification(
    "sums",
    [Field.long("k"), Field.long("n")],
    ["k"],
    options={"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
)


def sums(storage: Storage) -> list[tuple[object, object]]:
    return [(row["k"], row["n"]) for row in storage.table("sums").scan()]


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize(
    ("point", "number", "committed"),
    [
        ("after_listed", 1, False),
        ("bulk_locked", 1, False),
        ("bulk_locked", 2, False),
        ("bulk_prewritten", 1, False),
        ("before_commit", 1, False),
        ("after_commit", 1, True),
        ("bulk_committed", 1, True),
        ("mid_bulk_cleanup", 1, True),
        ("mid_bulk_cleanup", 2, True),
    ],
)
def test_killed_merge_job_adds_once(hbase_url: str, point: str, number: int, committed: bool, indexed: bool) -> None:
    url = quick(hbase_url, lease=3)  # a job must send heartbeats meanwhile, even on a busy machine
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
