"""Net changes, marks, and the expiry of change feeds, on the memory store."""

from __future__ import annotations

import datetime as dt
import logging
import random
import threading
from collections.abc import Callable

import pytest

from structable.backends.base import change_feed
from structable.backends.base.feed_upkeep import FeedUpkeep
from structable.backends.memory.engine import MemoryEngine
from structable.backends.memory.versions import VersionedMap
from structable.backends.ordered import OrderedStorage
from structable.backends.ordered.engine import EngineSnapshot
from structable.backends.ordered.feeds import feed as ordered_feed
from structable.backends.ordered.feeds.feed import OrderedFeed
from structable.backends.ordered.scan import sorting
from structable.backends.ordered.schema.catalog import Catalog
from structable.spi import (
    FeedPosition,
    RowKind,
    StorageUnavailableError,
    TableNotFoundError,
    UnsupportedOperationError,
    connect,
)

from .feeds import brief, made, spec

Rows = dict[int, object]


def state(storage: OrderedStorage) -> tuple[FeedPosition, Rows]:
    """Return a position, and the rows of that state."""
    with storage.transaction(read_only=True) as transaction:
        position = transaction.position("items")
        rows = transaction.table("items").scan()
        return position, {row["id"]: row["n"] for row in rows}  # type: ignore[misc]


def difference(before: Rows, after: Rows) -> list[tuple[str, int, object]]:
    found: list[tuple[str, int, object]] = []
    for key in sorted({*before, *after}):
        if key not in before:
            found.append(("+I", key, after[key]))
        elif key not in after:
            found.append(("-D", key, before[key]))
        elif before[key] != after[key]:
            found += [("-U", key, before[key]), ("+U", key, after[key])]
    return found


def changed_at_random(storage: OrderedStorage, chance: random.Random) -> None:
    with storage.transaction() as transaction:
        table = transaction.table("items")
        for _ in range(chance.randint(1, 5)):
            key = chance.randint(0, 30)
            if chance.random() < 0.4:
                table.delete((key,))
            else:
                table.upsert({"id": key, "n": chance.randint(0, 3)})


@pytest.mark.parametrize("run_bytes", [1, 2_000, 1 << 25])
def test_net_changes_are_the_difference_of_two_states(run_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorted in files or not; the splits of a plan divide them by key."""
    monkeypatch.setattr(sorting, "_RUN_BYTES", run_bytes)
    chance = random.Random(1)
    storage = made()
    feed = storage.changes("items")
    states = [state(storage)]
    for _ in range(60):
        changed_at_random(storage, chance)
        states.append(state(storage))
    for _ in range(20):
        (begin, before), (end, after) = sorted(chance.sample(states, 2), key=lambda one: one[0].version)
        expected = difference(before, after)
        changes = list(feed.read(begin, end, net=True))
        assert sorted(map(brief, changes), key=lambda change: change[1]) == expected
        last = {change.row["id"]: (change.version, change.timestamp) for change in feed.read(begin, end)}
        assert all((change.version, change.timestamp) == last[change.row["id"]] for change in changes)
        plan = feed.plan(begin, end, splits=3, net=True)
        found, keys = [], list[set[int]]()
        for split in plan.splits:
            rows = [row for batch in storage.read_split(split) for row in batch.to_pylist()]
            keys.append({row["id"] for row in rows})
            found += [(str(RowKind.of(row["_change_type"])), row["id"], row["n"]) for row in rows]
        assert sorted(found, key=lambda change: change[1]) == expected
        assert sum(map(len, keys)) == len(set[int]().union(*keys))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return what sets the clock of feeds so many seconds after now."""
    now = [dt.datetime.now(dt.UTC)]
    begun = now[0]

    class Clock(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:  # type: ignore[override]
            return now[0].astimezone(tz)

    class Module:
        datetime, timedelta, UTC = Clock, dt.timedelta, dt.UTC

    for module in (change_feed, ordered_feed):
        monkeypatch.setattr(module, "dt", Module)

    def later(seconds: float) -> None:
        now[0] = begun + dt.timedelta(seconds=seconds)

    return later


def compacted() -> OrderedStorage:
    return made(spec("full-compaction", compaction_interval="10 s"))


def test_expiry_divides_what_nobody_reads(clock: Callable[[float], None]) -> None:
    """It sets a mark only where the last one is too old itself: a feed that is never read expires, too."""
    storage = made(spec("full-compaction", compaction_interval="10 s", time_retained="1 h"))
    feed, table = storage.changes("items"), storage.table("items")
    unmarking = OrderedFeed(storage.engine, Catalog(storage.engine), "items", read_only=True)
    begin = feed.earliest()
    table.upsert({"id": 1})
    clock(1_800)
    assert feed.expire() == begin == unmarking.latest()
    clock(3_700)
    assert feed.expire() == begin < unmarking.latest()
    table.upsert({"id": 2})
    clock(7_400)
    assert feed.expire() == feed.earliest() > begin
    assert [change.row["id"] for change in feed.read()] == [2]


def test_of_many_that_ask_at_once_one_sets_the_mark(clock: Callable[[float], None]) -> None:
    storage = compacted()
    storage.table("items").upsert({"id": 1})
    feed = storage.changes("items")
    clock(11)
    barrier = threading.Barrier(8)
    found: list[FeedPosition] = []

    def ask() -> None:
        barrier.wait()
        found.append(feed.latest())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert found[0] > feed.earliest()
    assert feed.read(until=found[0]) is not None


def test_a_reader_sets_no_mark(clock: Callable[[float], None]) -> None:
    with connect("memory://marks") as storage:
        storage.admin.create(spec("full-compaction", compaction_interval="10 s"))
        storage.table("items").upsert({"id": 1})
        clock(11)
        with connect("memory://marks", read_only=True) as reader:
            feed = reader.changes("items")
            assert feed.latest() == feed.earliest()
            with pytest.raises(UnsupportedOperationError, match="read_only"):
                feed.expire()
        assert storage.changes("items").latest() > storage.changes("items").earliest()


def entries(storage: OrderedStorage) -> list[int]:
    """Return the versions of the entries that the engine has of the feed, read or not."""
    catalog = Catalog(storage.engine)

    def found(snapshot: EngineSnapshot) -> list[int]:
        feed = catalog.table(snapshot, "items").schema.feed
        assert feed is not None
        return [entry.version for entry in snapshot.entries(feed.space, 0, snapshot.settled_version(feed.space))]

    return storage.engine.look(found)


class CrashingEngine(MemoryEngine):
    """Fails in the middle of a deletion of entries."""

    crashes = False

    def drop_entries(self, feed: bytes, since: int, until: int, stopped: Callable[[], bool]) -> bool:
        if self.crashes:
            super().drop_entries(feed, since, since + 2, stopped)
            raise StorageUnavailableError("the process died")
        return super().drop_entries(feed, since, until, stopped)


def test_the_floor_rises_before_entries_go() -> None:
    """A crash in between leaves no hole, and the next expiry deletes the rest."""
    storage = made(engine=CrashingEngine)
    feed, table = storage.changes("items"), storage.table("items")
    for number in range(8):
        table.upsert({"id": number})
    middle = feed.position(feed.earliest().version + 5)
    storage.engine.crashes = True  # type: ignore[attr-defined]
    with pytest.raises(StorageUnavailableError):
        feed.expire(middle)
    assert feed.earliest() == middle
    assert [change.row["id"] for change in feed.read()] == [5, 6, 7]
    assert min(entries(storage)) < middle.version
    storage.engine.crashes = False  # type: ignore[attr-defined]
    assert feed.expire() == middle
    assert min(entries(storage)) > middle.version


def test_what_is_too_old_goes_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the feed is written; `close` ends the thread."""
    expired = threading.Event()
    storage = made(spec(time_retained="1 ms"))
    raised = storage.engine.drop_entries

    def noted(feed: bytes, since: int, until: int, stopped: Callable[[], bool]) -> bool:
        try:
            return raised(feed, since, until, stopped)
        finally:
            expired.set()

    monkeypatch.setattr(storage.engine, "drop_entries", noted)
    feed = storage.changes("items")
    storage.table("items").upsert({"id": 1})
    assert expired.wait(60)
    storage.close()
    assert not storage._feeds._background.running
    with pytest.raises(StorageUnavailableError):
        feed.latest()


def test_a_store_that_is_only_read_expires_nothing() -> None:
    storage = OrderedStorage(MemoryEngine(VersionedMap()), "memory://", read_only=True)
    storage.admin.create(spec())
    storage.changes("items").latest()
    storage.table("items").upsert({"id": 1})
    assert not storage._feeds._background.running


def test_a_table_without_a_feed_starts_no_thread() -> None:
    storage = made(spec("none"))
    storage.table("items").upsert({"id": 1})
    storage.table("items").increment((1,), "n", 1)
    assert not storage._feeds._background.running


def test_a_feed_is_expired_at_most_once_in_a_while() -> None:
    calls: list[str] = []
    twice = threading.Event()

    def expire(table: str) -> None:
        calls.append(table)
        if calls.count("a") == 2:
            twice.set()

    upkeep = FeedUpkeep(expire, first=0.0, pause=0.05)
    while not twice.is_set():
        for table in "ab":
            upkeep.noticed(table)
    upkeep.stop()
    assert calls.count("b") <= 3
    upkeep.noticed("c")
    assert "c" not in calls


def test_an_expiry_that_fails_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    calls = 0
    done = threading.Event()

    def expire(table: str) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise StorageUnavailableError("down")
        done.set()

    upkeep = FeedUpkeep(expire, first=0.0, pause=0.01)
    with caplog.at_level(logging.WARNING, "structable.feeds"):
        upkeep.noticed("a")
        assert done.wait(60)
    upkeep.stop()
    assert "dropping old changes of table 'a' failed and will be repeated: down" in caplog.text


def test_a_feed_that_is_gone_is_left_alone() -> None:
    calls: list[str] = []
    other = threading.Event()

    def expire(table: str) -> None:
        calls.append(table)
        if table == "gone":
            raise TableNotFoundError(table)
        other.set()

    upkeep = FeedUpkeep(expire, first=0.0, pause=0.0)
    upkeep.noticed("gone")
    upkeep.noticed("other")
    assert other.wait(60)
    upkeep.stop()
    assert calls.count("gone") == 1
