"""Change feeds of ordered stores: positions, pages, splits and layouts, where the engine below does its worst."""

from __future__ import annotations

import datetime as dt
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from structable.backends.memory.engine import MemoryEngine, MemorySnapshot
from structable.backends.memory.versions import VersionedMap
from structable.backends.ordered import OrderedStorage, SplitPlan
from structable.backends.ordered.feeds import source
from structable.backends.ordered.feeds.splits import read_change_split
from structable.backends.ordered.schema.catalog import Catalog
from structable.spi import (
    ChangeIterator,
    ChangesLostError,
    Field,
    Filter,
    StructableError,
    TableNotFoundError,
    TransactionConflictError,
    UnsupportedOperationError,
    col,
)

from .feeds import FIELDS, brief, made, spec


class CommittingEngine(MemoryEngine):
    """Commits a row of each table before it divides a snapshot."""

    before: Callable[[], None] = staticmethod(lambda: None)

    def plan_splits(self, begin: bytes, end: bytes, count: int, *, feed: bytes | None = None) -> SplitPlan:
        self.before()
        return super().plan_splits(begin, end, count, feed=feed)


class DiscardingEngine(MemoryEngine):
    """Tells when a space has been deleted; makes none while garbage is looked for."""

    discarded = threading.Event()

    def discard(self, beginning: bytes, stopped: Callable[[], bool]) -> bool:
        done = super().discard(beginning, stopped)
        self.discarded.set()
        return done

    def create_space(self, space: bytes, *, feed: bool = False) -> None:
        while any(thread.name == "structable-garbage" for thread in threading.enumerate()):
            time.sleep(0.001)
        super().create_space(space, feed=feed)


def test_an_ended_feed_is_deleted() -> None:
    storage = made(spec(), DiscardingEngine)
    storage.admin.create_or_update(spec("input"))
    assert DiscardingEngine.discarded.wait(60)


@pytest.mark.parametrize("rows", [10, 3_000])
@pytest.mark.parametrize("where", [None, col("n") == 1, col("n") >= 0])
def test_the_position_of_a_plan_is_that_of_its_splits(where: Filter | None, rows: int) -> None:
    """Whatever path the plan takes, and whatever is committed between the choice of the path and the snapshot."""
    storage = made(spec(indexes=("n",)), CommittingEngine)
    assert isinstance(storage.engine, CommittingEngine)
    table = storage.table("items")
    table.upsert_many([{"id": number, "n": number % 2_000, "text": "x" * 50} for number in range(rows)])
    later = iter(range(rows, rows + 100))
    storage.engine.before = lambda: table.upsert({"id": next(later), "n": 1})
    with storage.plan_scan("items", where=where, splits=3) as plan:
        found = {row["id"] for split in plan.splits for batch in storage.read_split(split) for row in batch.to_pylist()}
        assert plan.position is not None
        after = {change.row["id"] for change in storage.changes("items").read(plan.position)}
    everything = {row["id"] for row in table.scan(where=where)}
    assert found | (after & everything) == everything
    assert not found & after


def test_a_schema_change_after_a_position_does_not_move_the_snapshot() -> None:
    storage = made()
    with storage.transaction(read_only=True) as transaction:
        position = transaction.position("items")
        storage.admin.create_or_update(spec().evolve(fields=[*FIELDS, Field.int("late")]))
        storage.table("items").upsert({"id": 1, "late": 2})
        assert list(transaction.table("items").scan()) == []
    assert [change.row["late"] for change in storage.changes("items").read(position)] == [2]


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pages have one entry."""
    monkeypatch.setattr(source, "_FIRST_ENTRIES", 1)
    monkeypatch.setattr(source, "_MOST_ENTRIES", 1)


def ended_by(ending: str, storage: OrderedStorage) -> None:
    """End, in some way, what a reader is reading."""
    feed = storage.changes("items")
    match ending:
        case "expired":
            feed.expire(feed.latest())
        case "dropped":
            storage.admin.drop("items")
        case "made again":
            storage.admin.drop("items")
            storage.admin.create(spec())
        case "another feed":
            storage.admin.create_or_update(spec("input"))
        case "no feed":
            storage.admin.create_or_update(spec("none"))


ENDINGS: dict[str, type[StructableError]] = {
    "expired": ChangesLostError,
    "dropped": TableNotFoundError,
    "made again": ChangesLostError,
    "another feed": ChangesLostError,
    "no feed": UnsupportedOperationError,
}


@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_reader_whose_changes_go_gets_no_hole(ending: str) -> None:
    storage = made()
    table = storage.table("items")
    for number in range(10):
        table.upsert({"id": number})
    feed = storage.changes("items")
    begin = feed.earliest()
    changes = feed.read()
    read = [next(changes).row["id"] for _ in range(3)]
    split = feed.plan().splits[0]
    batches = storage.read_split(split)
    read_batches = [next(batches)]
    ended_by(ending, storage)
    with pytest.raises(ENDINGS[ending]) as lost:
        read += [change.row["id"] for change in changes]
    with pytest.raises(ENDINGS[ending]):
        next(changes)
    assert read == list(range(len(read)))
    assert len(read) < 10
    if isinstance(lost.value, ChangesLostError):
        assert lost.value.position.feed == begin.feed
        assert lost.value.earliest == storage.changes("items").earliest()
    with pytest.raises(ENDINGS[ending]):
        read_batches += batches
    assert [row["id"] for batch in read_batches for row in batch.to_pylist()] == list(range(len(read_batches)))
    with pytest.raises(ENDINGS[ending]):
        list(storage.read_split(split))


@pytest.mark.usefixtures("pages")
def test_a_reader_holds_no_snapshot() -> None:
    stored = VersionedMap()
    storage = made(stored=stored)
    for number in range(5):
        storage.table("items").upsert({"id": number})
    with storage.changes("items").read() as changes:
        next(changes)
        assert not stored._open
        batches = storage.read_split(storage.changes("items").plan().splits[0])
        next(batches)
        assert not stored._open
    assert isinstance(changes, ChangeIterator)


class DyingSnapshot(MemorySnapshot):
    """Ends at its first few reads, as one whose holder dies."""

    left = 0

    def get(self, key: bytes) -> bytes | None:
        if DyingSnapshot.left > 0:
            DyingSnapshot.left -= 1
            raise TransactionConflictError("the process that owned the snapshot has ended")
        return super().get(key)


class DyingEngine(MemoryEngine):
    def begin(self, read_only: bool) -> MemorySnapshot:
        super().begin(read_only).close()
        return DyingSnapshot(self, self._stored)


@pytest.mark.parametrize("deaths", [1, 2, 5])
def test_a_feed_outlives_the_process_that_holds_its_snapshots(deaths: int) -> None:
    """No call but a transaction has a conflict."""
    storage = made(engine=DyingEngine)
    for number in range(3):
        storage.table("items").upsert({"id": number})
    feed = storage.changes("items")
    earliest = feed.earliest()
    calls: list[Callable[[], object]] = [
        lambda: type(storage.changes("items")),
        feed.earliest,
        feed.latest,
        lambda: feed.at(dt.datetime.now(dt.UTC)),
        lambda: feed.position(earliest.version),
        lambda: feed.advance(earliest, 1),
        lambda: [brief(change) for change in feed.read()],
        lambda: [brief(change) for change in feed.read(net=True)],
        lambda: [batch.to_pylist() for split in feed.plan(splits=2).splits for batch in storage.read_split(split)],
        lambda: feed.expire(earliest),
    ]
    expected = [call() for call in calls]
    for call, result in zip(calls, expected, strict=True):
        DyingSnapshot.left = deaths
        assert call() == result
    DyingSnapshot.left = 0


def test_splits_are_of_about_equal_size() -> None:
    storage = made()
    table = storage.table("items")
    for begin in range(0, 4_000, 10):
        table.upsert_many([{"id": number, "text": "x" * 100} for number in range(begin, begin + 10)])
    plan = storage.changes("items").plan(splits=4)
    rows = [sum(batch.num_rows for batch in storage.read_split(split)) for split in plan.splits]
    assert len(rows) == 4
    assert max(rows) < 1_100


class BackwardEngine(MemoryEngine):
    """Its clock goes back."""

    traits = replace(MemoryEngine.traits, times_ascend=False)


def test_a_clock_that_goes_back_delivers_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """`at` finds the first change in order that is not earlier: whatever follows it is read, however old."""
    stored = VersionedMap()
    storage = made(engine=BackwardEngine, stored=stored)
    times = iter([1_000_000, 3_000_000, 2_000_000, 4_000_000])
    monkeypatch.setattr(stored, "next_time", lambda: next(times))
    for number in range(4):
        storage.table("items").upsert({"id": number})
    feed = storage.changes("items")

    def after(seconds: float) -> list[int]:
        moment = dt.datetime.fromtimestamp(seconds, dt.UTC)
        return [brief(change)[1] for change in feed.read(feed.at(moment))]

    whole, later = [0, 1, 2, 3], [1, 2, 3]
    assert [after(seconds) for seconds in (0, 1, 1.5, 2.5, 3.5)] == [whole, whole, later, later, [3]]
    assert feed.at(dt.datetime.fromtimestamp(5, dt.UTC)) == feed.latest()


def test_a_time_is_found_by_few_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where times ascend, `at` bisects, also over versions that this feed has not."""
    stored = VersionedMap()
    storage = made(stored=stored)
    storage.admin.create(spec().evolve(name="others"))
    seconds = iter(range(1, 10_000))
    monkeypatch.setattr(stored, "next_time", lambda: next(seconds) * 1_000_000)
    changed = []
    for number in range(500):
        storage.table("others" if number % 3 else "items").upsert({"id": number})
        if not number % 3:
            changed.append(number + 1)
    feed = storage.changes("items")
    reads = 0
    get = MemorySnapshot.get

    def counted(snapshot: MemorySnapshot, key: bytes) -> bytes | None:
        nonlocal reads
        reads += 1
        return get(snapshot, key)

    monkeypatch.setattr(MemorySnapshot, "get", counted)
    for moment in (1, 2, 250, 499, 500):
        reads = 0
        position = feed.at(dt.datetime.fromtimestamp(moment, dt.UTC))
        assert reads < 40
        first = next(iter(feed.read(position)), None)
        later = [second for second in changed if second >= moment]
        assert (None if first is None or first.timestamp is None else first.timestamp.timestamp()) == (
            later[0] if later else None
        )


def test_a_split_is_read_in_its_process_only(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = made()
    storage.table("items").upsert({"id": 1})
    split = storage.changes("items").plan().splits[0]
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with pytest.raises(UnsupportedOperationError, match="lives in one process"):
        read_change_split(storage.engine, Catalog(storage.engine), split)
