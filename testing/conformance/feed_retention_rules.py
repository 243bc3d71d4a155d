"""Rules of how changes expire, and of the error that a late reader gets."""

from __future__ import annotations

import datetime as dt
from functools import partial

import pytest

from structable.spi import ChangeFeed, ChangesLostError, FeedPosition, Storage, UnsupportedOperationError, connect

from .case import Begin
from .clients import StoreProcess
from .feed_case import (
    GONE,
    PRODUCERS,
    FeedCase,
    all_or_lost,
    by_version,
    planned,
    read_between,
    settled,
    state_of,
    with_feed,
)
from .feed_reading_rules import as_rows
from .samples import ITEMS, Record

EACH = pytest.mark.parametrize("producer", PRODUCERS)
BRIEF = {"changelog.time-retained": "1 ms"}


class FeedRetentionRules(FeedCase):
    """Changes are kept for the retention, and dropped in whole commits."""

    def commits(self, storage: Storage, producer: str, **options: str) -> tuple[ChangeFeed, list[FeedPosition]]:
        """Write five commits of a row or two; return the positions between them."""
        storage.admin.create(with_feed(ITEMS, producer, **options))
        feed = storage.changes("items")
        positions = [feed.latest()]
        for number in range(5):
            storage.table("items").upsert_many([{"id": key, "n": number} for key in range(1 + number % 2)])
            positions.append(settled(feed, positions[-1]))
        return feed, positions

    @EACH
    def test_expire_up_to_a_position(self, fed: Storage, producer: str) -> None:
        """With a position all changes up to it are dropped, however new, and none beyond it; rows do not change."""
        feed, positions = self.commits(fed, producer)
        rows, everything = state_of(fed, "items"), read_between(fed, "items")
        for position in positions[1:4]:
            assert feed.expire(position) == position == feed.earliest()
            assert feed.expire(position) == position
            assert read_between(fed, "items") == [one for one in everything if (one.version or 0) > position.version]
        with pytest.raises(ChangesLostError):
            feed.expire(positions[0])
        assert feed.earliest() == positions[3]
        assert feed.expire(positions[-1]) == feed.earliest() == positions[-1]
        assert read_between(fed, "items") == read_between(fed, "items", positions[-1]) == []
        assert state_of(fed, "items") == rows
        fed.table("items").upsert({"id": 1, "n": 77})
        settled(feed, positions[-1])
        assert len(read_between(fed, "items", positions[-1])) == (1 if producer == "input" else 2)

    @EACH
    def test_expire_by_age(self, fed: Storage, producer: str) -> None:
        """Without a position all changes older than the retention are dropped, and no younger one."""
        feed, positions = self.commits(fed, producer)
        start, everything = feed.earliest(), read_between(fed, "items")
        assert feed.expire() == feed.earliest() == start
        assert read_between(fed, "items") == everything
        fed.admin.create_or_update(with_feed(ITEMS, producer, **BRIEF))
        while _has_changes(fed):
            assert feed.expire() == feed.earliest() >= start
        with pytest.raises(ChangesLostError):
            feed.read(start)
        assert positions[-2] < feed.earliest() <= positions[-1]
        assert read_between(fed, "items", positions[-1]) == []

    def test_expiry_by_age_loses_no_younger_position(self, fed: Storage) -> None:
        """A table without writes in a busy store keeps each position after which nothing was dropped, however old."""
        feed, positions = self.commits(fed, "lookup", **BRIEF)
        fed.admin.create(with_feed(ITEMS, "lookup").evolve(name="other"))
        while _has_changes(fed):
            feed.expire()
        after_all = [positions[-1]]
        for number in range(3):
            fed.table("other").upsert({"id": number})
            after_all.append(feed.latest())
        feed.expire()
        for position in after_all:
            assert read_between(fed, "items", position) == []

    @pytest.mark.parametrize("retained", ["10000000 d", "1000000000000 d"])
    def test_long_retention_keeps_all(self, fed: Storage, retained: str) -> None:
        """A retention longer than time itself drops nothing, however long it is."""
        feed, positions = self.commits(fed, "lookup", **{"changelog.time-retained": retained})
        assert feed.expire() <= positions[0]
        assert len(by_version(read_between(fed, "items"))) == 5

    def test_expire_of_a_version_between(self, fed: Storage) -> None:
        """Expiry up to a version that no commit has keeps what comes after it."""
        feed, positions = self.commits(fed, "lookup")
        middle = feed.position(positions[2].version - 1)
        kept = read_between(fed, "items", middle)
        assert feed.expire(middle) == middle == feed.earliest()
        assert read_between(fed, "items") == kept
        assert len(by_version(kept)) == 4

    @EACH
    def test_late_readers(self, fed: Storage, producer: str) -> None:
        """A split or an iterator whose changes have expired gives all of them or `ChangesLostError`, never a part."""
        feed, positions = self.commits(fed, producer)
        expected = as_rows(read_between(fed, "items"))
        plans = [feed.plan(splits=splits) for splits in (1, 3)]
        begun, fresh = feed.read(), feed.read()
        first = next(begun)
        feed.expire(positions[3])
        fed.table("items").upsert({"id": 8})
        for plan in plans:
            all_or_lost(partial(planned, fed, plan), expected)
        all_or_lost(lambda: as_rows(fresh), expected)
        all_or_lost(lambda: as_rows([first, *begun]), expected)
        tail = feed.plan(positions[3], positions[4])
        assert len(planned(fed, tail)) > 0

    def test_late_readers_of_many_changes(self, fed: Storage) -> None:
        """A reader at the beginning of a feed of many pages gets `ChangesLostError` if the rest expires."""
        feed = self.fed_items(fed)
        rows: list[Record] = [{"id": key, "note": "x" * 200} for key in range(3_000)]
        for number in range(4):
            fed.table("items").upsert_many({**row, "n": number} for row in rows)
        expected = read_between(fed, "items")
        assert len(expected) == 7 * len(rows)
        plan, begun = feed.plan(splits=5), feed.read()
        found = [next(begun) for _ in range(10)]
        feed.expire(feed.latest())
        all_or_lost(partial(planned, fed, plan), as_rows(expected))
        all_or_lost(lambda: as_rows([*found, *begun]), as_rows(expected))

    def test_snapshots_do_not_hold_changes(self, fed: Storage, begin: Begin) -> None:
        """Neither an open transaction nor an open plan nor an iterator keeps changes from expiring."""
        feed, positions = self.commits(fed, "lookup")
        transaction = begin(read_only=True)
        position = transaction.position("items")
        rows = transaction.table("items").count()
        with fed.plan_scan("items") as plan, feed.read() as changes:
            next(changes)
            fed.table("items").upsert({"id": 1, "n": 55})
            latest = feed.latest()
            assert feed.expire(latest) == latest == feed.earliest()
            assert plan.position is not None
            for lost in (position, plan.position, *positions):
                with pytest.raises(ChangesLostError):
                    feed.read(lost)
            assert sum(one.num_rows for split in plan.splits for one in fed.read_split(split)) == rows
        assert transaction.table("items").count() == rows

    def test_positions_of_transactions_before_the_earliest(self, fed: Storage, begin: Begin) -> None:
        """A transaction returns its position even if later changes have expired; reading from there is an error."""
        feed, positions = self.commits(fed, "lookup")
        transaction = begin(read_only=True)
        assert transaction.position("items") >= positions[-1]
        fed.table("items").upsert({"id": 1, "n": 70})
        feed.expire(feed.latest())
        with pytest.raises(ChangesLostError):
            feed.read(transaction.position("items"))

    def test_at_after_expiry(self, fed: Storage) -> None:
        """`at` considers kept changes alone: for a time long ago it is before the first kept change."""
        feed, positions = self.commits(fed, "lookup")
        feed.expire(positions[2])
        kept = read_between(fed, "items")
        assert read_between(fed, "items", feed.at(dt.datetime(1990, 1, 1, tzinfo=dt.UTC))) == kept
        assert len(by_version(kept)) == 3

    def test_expiry_in_other_connections(self, fed: Storage, storage_url: str) -> None:
        """Every connection sees at once that changes were dropped, and none brings them back."""
        feed, positions = self.commits(fed, "lookup")
        with connect(storage_url) as other:
            feed.expire(positions[2])
            assert other.changes("items").earliest() == positions[2]
            with pytest.raises(ChangesLostError):
                other.changes("items").read(positions[1])
            assert other.changes("items").expire(positions[4]) == feed.earliest() == positions[4]
            assert read_between(other, "items") == read_between(fed, "items")

    def test_late_splits_in_other_processes(self, fed: Storage, peer: StoreProcess) -> None:
        """A process that reads a split too late gets `ChangesLostError`, or all of it."""
        feed, positions = self.commits(fed, "lookup")
        expected = as_rows(read_between(fed, "items"))
        splits = feed.plan(splits=2).splits
        feed.expire(positions[4])
        all_or_lost(lambda: [row for split in splits for row in peer.ask("read_split", split)], expected)

    def test_plans_of_a_dropped_table(self, fed: Storage) -> None:
        """Splits of a feed whose table was dropped, and made again: all of it or an error, never another's changes."""
        feed, _ = self.commits(fed, "lookup")
        expected, plan = as_rows(read_between(fed, "items")), feed.plan(splits=2)
        fed.admin.drop("items")
        fed.admin.create(with_feed(ITEMS))
        fed.table("items").insert({"id": 3})
        all_or_lost(partial(planned, fed, plan), expected, GONE)

    def test_expire_with_read_only(self, fed: Storage, storage_url: str) -> None:
        """`expire` is `UnsupportedOperationError` under `read_only`, and drops nothing."""
        _, positions = self.commits(fed, "lookup", **BRIEF)
        everything = read_between(fed, "items", positions[-2])
        with connect(storage_url, read_only=True) as storage:
            for until in (None, positions[-1]):
                with pytest.raises(UnsupportedOperationError):
                    storage.changes("items").expire(until)
        assert len(everything) > 0


def _has_changes(storage: Storage) -> bool:
    """Return whether a feed has changes, or had until they expired while they were read."""
    try:
        return bool(read_between(storage, "items"))
    except ChangesLostError:
        return True
