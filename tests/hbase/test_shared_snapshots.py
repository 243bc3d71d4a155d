"""Shared snapshots: one record and one holder for all plans, lost sessions, and storages that only read."""

from __future__ import annotations

import pytest

from structable.backends.hbase.layout import plan_row
from structable.spi import (
    Range,
    ScanPlan,
    Storage,
    TransactionClosedError,
    TransactionConflictError,
    connect,
    read_split,
)
from structable.testing.conformance.samples import ITEMS, item

from .support.bank import quick
from .support.internals import collect_garbage, drained, engine_of

NAMES = ["items", "other"]


@pytest.fixture
def url(hbase_url: str) -> str:
    url = quick(hbase_url, late_writes=0)
    with connect(url) as storage:
        for name in NAMES:
            storage.admin.create(ITEMS.evolve(name=name))
            storage.table(name).upsert_many(item(number, tag="old") for number in range(20))
    return url


def records(storage: Storage) -> int:
    engine = engine_of(storage)
    begin = plan_row(b"")
    end = begin[:-1] + bytes([begin[-1] + 1])
    pages = engine.gateway.pages(engine.layout.transactions, begin, end, [b"c"], before=None)
    return sum(len(page) for page in pages)


def tags_of(url: str, plan: ScanPlan, **options: bool) -> set[object]:
    return {tag for split in plan.splits for one in read_split(url, split, **options) for tag in one["tag"].to_pylist()}


def replace_and_collect(url: str) -> None:
    with connect(url) as storage:
        for name in NAMES:
            storage.table(name).update_all(Range.all(), {"tag": "new"})
        drained(storage)
        collect_garbage(storage)
        collect_garbage(storage)


def test_one_record_and_holder_for_all_plans(url: str) -> None:
    """The session keeps the versions that all plans read, until the last is closed."""
    with connect(url) as storage:
        session = engine_of(storage).transactions.session
        assert (records(storage), len(session.holders)) == (0, 0)
        with storage.share_snapshot() as shared:
            assert (records(storage), len(session.holders)) == (0, 0)
            plans = [shared.plan_scan(NAMES[number % 2], splits=3) for number in range(6)]
            assert (records(storage), len(session.holders)) == (1, 1)
            replace_and_collect(url)
            plans.append(shared.plan_scan("other"))
        for plan in plans:
            assert tags_of(url, plan) == {"old"}
            assert (records(storage), len(session.holders)) == (1, 1)
            plan.close()
        assert (records(storage), len(session.holders)) == (0, 0)


def test_lost_session_ends_the_shared_snapshot(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of a session that was declared dead are refused: never made of a younger state."""
    with connect(url) as storage:
        shared = storage.share_snapshot()
        plan = shared.plan_scan("items")
        monkeypatch.setattr(engine_of(storage).transactions.session, "over", True)
        for _ in range(2):
            with pytest.raises(TransactionConflictError):
                shared.plan_scan("other")
        shared.close()
        plan.close()
        with pytest.raises(TransactionClosedError):
            list(storage.read_split(plan.splits[0]))
        assert records(storage) == 0


def test_storage_that_only_reads_shares_until_versions_are_removed(url: str) -> None:
    """It writes no record, and misses versions that were removed: a conflict, or a closed snapshot."""
    with connect(url, read_only=True) as storage, storage.share_snapshot() as shared:
        plan = shared.plan_scan("items", splits=2)
        with connect(url) as writer:
            assert records(writer) == 0
        with shared.plan_scan("other") as again:
            assert tags_of(url, again, read_only=True) == tags_of(url, plan, read_only=True) == {"old"}
        replace_and_collect(url)
        with pytest.raises(TransactionConflictError):
            shared.plan_scan("other")
        with pytest.raises(TransactionClosedError):
            tags_of(url, plan, read_only=True)
        with storage.share_snapshot() as new, new.plan_scan("other") as newer:
            assert tags_of(url, newer, read_only=True) == {"new"}
