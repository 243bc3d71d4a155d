"""Rules of positions: their meaning, how they compare, and how a feed finds them."""

from __future__ import annotations

import datetime as dt
import operator
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from functools import partial
from typing import Any

import pytest

from structable.spi import (
    ChangeFeed,
    ChangesLostError,
    FeedPosition,
    Storage,
    StorageUnavailableError,
    TableNotFoundError,
    TableSpecification,
    UnsupportedOperationError,
    WriteMode,
    connect,
)

from .case import Begin
from .feed_case import FeedCase, by_version, images, read_between, with_feed
from .samples import ITEMS

SOME = FeedPosition("0" * 16, 1)
NOW = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


class OtherTime(dt.datetime):
    """A datetime of another class, whose differences are none of Python's."""

    def __sub__(self, other: object) -> Any:  # noqa: ANN401
        raise TypeError("another kind of difference")

    __rsub__ = __sub__


METHODS: dict[str, Callable[[ChangeFeed], object]] = {
    "earliest": lambda feed: feed.earliest(),
    "latest": lambda feed: feed.latest(),
    "at": lambda feed: feed.at(NOW),
    "position": lambda feed: feed.position(1),
    "advance": lambda feed: feed.advance(SOME, 1),
    "read": lambda feed: feed.read(),
    "read net": lambda feed: feed.read(net=True),
    "plan": lambda feed: feed.plan(),
    "expire": lambda feed: feed.expire(),
}
"""Every method of a feed."""

WITH_A_POSITION: dict[str, Callable[[ChangeFeed, FeedPosition], object]] = {
    "advance": lambda feed, position: feed.advance(position, 1),
    "read since": lambda feed, position: feed.read(position),
    "read until": lambda feed, position: feed.read(None, position),
    "read net": lambda feed, position: feed.read(position, net=True),
    "plan since": lambda feed, position: feed.plan(position),
    "plan until": lambda feed, position: feed.plan(None, position),
    "expire": lambda feed, position: feed.expire(position),
}
"""Every call that takes a position."""

NO_POSITIONS = ["", "0" * 16, f"{'0' * 16}:", f"{'0' * 15}:1", f"{'0' * 17}:1", f"{'G' * 16}:1", f"{'A' * 16}:1"]
NO_POSITIONS += [f"{'0' * 16}:{version}" for version in ("01", "-1", "1.0", " 1", "x", str(1 << 63), "1\n", "\u0661")]


def refused(
    call: Callable[[ChangeFeed, FeedPosition], object], feed: ChangeFeed, position: FeedPosition
) -> ChangesLostError:
    """Return the error of a call that is given a lost position."""
    with pytest.raises(ChangesLostError) as lost:
        call(feed, position)
    return lost.value


class FeedPositionRules(FeedCase):
    """A position is a commit version: it names a state of the store."""

    def test_positions_are_values(self) -> None:
        """`FeedPosition` is immutable, picklable, hashable, equal by feed and version; `parse` reverses `str`."""
        position = FeedPosition("0123456789abcdef", 42)
        assert (position.feed, position.version, str(position)) == ("0123456789abcdef", 42, "0123456789abcdef:42")
        assert FeedPosition.parse(str(position)) == position == pickle.loads(pickle.dumps(position))
        assert len({position, FeedPosition.parse("0123456789abcdef:42"), FeedPosition("0" * 16, 42)}) == 2
        for name, value in (("version", 1), ("feed", "0" * 16)):
            with pytest.raises(FrozenInstanceError):
                setattr(position, name, value)
        for version in (0, (1 << 63) - 1):
            assert FeedPosition.parse(f"{'f' * 16}:{version}").version == version

    def test_positions_are_ordered_within_a_feed(self) -> None:
        """Positions of one feed compare by version; across feeds it is a `TypeError`, with others too."""
        one, two = FeedPosition("a" * 16, 1), FeedPosition("a" * 16, 20)
        assert one < two <= two
        assert two > one >= one
        assert sorted([two, one]) == [one, two]
        assert max(one, two) == two
        other: Any
        for other in (FeedPosition("b" * 16, 1), 1, "a", None):
            assert one != other
            for compare in (operator.lt, operator.le, operator.gt, operator.ge):
                with pytest.raises(TypeError):
                    compare(one, other)

    @pytest.mark.parametrize("text", NO_POSITIONS)
    def test_texts_that_are_no_position(self, text: str) -> None:
        """`parse` of any other text is a `ValueError`."""
        with pytest.raises(ValueError, match="position"):
            FeedPosition.parse(text)

    def test_table_without_a_feed(self, fed: Storage) -> None:
        """Without a feed, methods of `changes` and `Transaction.position` are unsupported; plans have no position."""
        fed.admin.create(ITEMS)
        feed = fed.changes("items")
        for name, call in METHODS.items():
            with pytest.raises(UnsupportedOperationError):
                call(feed)
            assert fed.table("items").count() == 0, name
        with fed.transaction() as transaction:
            with pytest.raises(UnsupportedOperationError):
                transaction.position("items")
            transaction.table("items").upsert({"id": 1})
        with fed.plan_scan("items") as plan:
            assert plan.position is None
        assert fed.table("items").count() == 1

    def test_feed_of_no_table(self, fed: Storage, begin: Begin) -> None:
        """`changes` of an unknown table is `TableNotFoundError` at once, and methods of a feed once it is dropped."""
        with pytest.raises(TableNotFoundError):
            fed.changes("items")
        with pytest.raises(TableNotFoundError):
            begin().position("items")
        feed = self.fed_items(fed, 1)
        fed.admin.drop("items")
        for name, call in METHODS.items():
            with pytest.raises(TableNotFoundError):
                call(feed)
            assert not fed.admin.exists("items"), name

    def test_closed_storage_has_no_feeds(self, fed: Storage, storage_url: str) -> None:
        """Once the storage is closed, every method of a feed is `StorageUnavailableError`."""
        self.fed_items(fed, 1)
        with connect(storage_url) as other:
            feed = other.changes("items")
        for call in METHODS.values():
            with pytest.raises(StorageUnavailableError):
                call(feed)
        with pytest.raises(StorageUnavailableError):
            other.changes("items")

    def test_earliest_and_latest(self, fed: Storage) -> None:
        """A new feed is empty; `earliest` stays, `latest` is beyond each commit that returned before."""
        feed = self.fed_items(fed)
        first, latest = feed.earliest(), feed.latest()
        assert first <= latest
        assert len(first.feed) == 16
        assert read_between(fed, "items") == []
        for key in range(5):
            fed.table("items").insert({"id": key})
            moved = fed.changes("items").latest()
            (change,) = read_between(fed, "items", latest)
            assert change.version is not None
            assert latest.version < change.version <= moved.version
            latest = moved
        assert feed.earliest() == first
        assert {one.feed for one in (first, latest, feed.latest())} == {first.feed}

    def test_feeds_of_one_store_share_versions(self, fed: Storage) -> None:
        """`latest` is a position of the store: a later call, of whichever feed, never returns a lower version."""
        feed = self.fed_items(fed, 1)
        fed.admin.create(with_feed(ITEMS).evolve(name="other"))
        other = fed.changes("other")
        assert feed.latest().feed != other.latest().feed
        versions = []
        for number in range(3):
            fed.table("other" if number % 2 else "items").upsert({"id": 9, "n": number})
            versions += [feed.latest().version, other.latest().version, feed.latest().version]
        assert versions == sorted(versions)
        with pytest.raises(ChangesLostError):
            feed.read(other.latest())

    def test_position_of_a_version(self, fed: Storage) -> None:
        """`position` takes any int from the earliest to the latest version, of a commit or not; else it is lost."""
        feed = self.fed_items(fed, 6)
        middle = by_version(read_between(fed, "items"))[2][0].version
        assert middle is not None
        first = feed.expire(feed.position(middle))
        latest = feed.latest()
        assert first == feed.earliest() == FeedPosition(latest.feed, middle)
        for version in {first.version, min(first.version + 1, latest.version), latest.version}:
            position = feed.position(version)
            assert position == FeedPosition(first.feed, version)
            kept = [change.version for change in read_between(fed, "items")]
            assert [one.version for one in read_between(fed, "items", position)] == [
                one for one in kept if one is not None and one > version
            ]
        for version in (first.version - 1, 0, -1, -(1 << 70), latest.version + (1 << 40), (1 << 63) - 1, 1 << 70):
            with pytest.raises(ChangesLostError) as lost:
                feed.position(version)
            assert lost.value.earliest == first
        wrong: Any
        for wrong in ("1", 1.0, None, True):
            with pytest.raises(ValueError, match="version"):
                feed.position(wrong)

    def test_at_a_time(self, fed: Storage) -> None:
        """`at` is the position just before the first kept change that is not older, or `latest()` if there is none."""
        feed = self.fed_items(fed, 5)
        changes = read_between(fed, "items")
        for moment in sorted({change.timestamp for change in changes if change.timestamp is not None}):
            first = next(place for place, one in enumerate(changes) if one.timestamp and one.timestamp >= moment)
            for zone in (dt.UTC, dt.timezone(dt.timedelta(hours=-7))):
                assert read_between(fed, "items", feed.at(moment.astimezone(zone))) == changes[first:]
        assert read_between(fed, "items", feed.at(dt.datetime(1, 1, 1, tzinfo=dt.UTC))) == changes
        late = feed.at(OtherTime(9999, 12, 31, tzinfo=dt.UTC))
        assert read_between(fed, "items", late) == []
        assert late <= feed.latest()
        wrong: Any
        for wrong in (dt.datetime(2024, 1, 1), "2024-01-01", 0, None, dt.date(2024, 1, 1)):
            with pytest.raises(ValueError, match="time zone"):
                feed.at(wrong)

    def test_advance(self, fed: Storage) -> None:
        """`advance` returns the last position at most that many changes later, but at least one whole commit later."""
        feed = self.fed_items(fed, 3)
        fed.table("items").upsert_many([{"id": key, "n": 9} for key in range(3)])
        fed.table("items").insert({"id": 8})
        fed.table("items").delete((0,))
        sizes = [len(commit) for commit in by_version(read_between(fed, "items"))]
        assert sizes == [1, 1, 1, 6, 1, 1]
        for rows in (1, 2, 3, 4, 6, 8, 9, 10, 11, 100):
            expected, left = [], list(sizes)
            while left:
                taken = 1
                while taken < len(left) and sum(left[: taken + 1]) <= rows:
                    taken += 1
                expected.append(left[:taken])
                left = left[taken:]
            position = feed.earliest()
            found = []
            while position != (moved := feed.advance(position, rows)):
                assert position < moved <= feed.latest()
                commits = by_version(read_between(fed, "items", position, moved))
                if commits:
                    found.append([len(commit) for commit in commits])
                position = moved
            assert found == expected
        assert feed.advance(feed.latest(), 1) <= feed.latest()
        wrong: Any
        for wrong in (0, -1, 1.5, "1", None, True):
            with pytest.raises(ValueError, match="rows"):
                feed.advance(feed.earliest(), wrong)

    def test_lost_positions(self, fed: Storage) -> None:
        """Every call refuses as lost a position that has expired, is of another feed, or is beyond the newest."""
        feed = self.fed_items(fed, 4)
        old = feed.earliest()
        foreign = FeedPosition("0123456789abcdef", feed.latest().version)
        future = FeedPosition(old.feed, feed.latest().version + (1 << 40))
        earliest = feed.expire(feed.position(by_version(read_between(fed, "items"))[1][0].version or 0))
        for position in (old, foreign, future):
            for name, call in WITH_A_POSITION.items():
                lost = refused(call, feed, position)
                assert (lost.table, lost.position, lost.earliest) == ("items", position, earliest), name
                for text in ("items", str(position), str(earliest), "snapshot"):
                    assert text in str(lost)
                copy = pickle.loads(pickle.dumps(lost))
                assert (type(copy), str(copy)) == (ChangesLostError, str(lost))
                assert (copy.table, copy.position, copy.earliest) == ("items", position, earliest)
                assert isinstance(lost, LookupError)
        texts = {str(refused(WITH_A_POSITION["read since"], feed, one)).partition(":")[2] for one in (old, foreign)}
        assert len(texts) == 2
        assert len(read_between(fed, "items")) == 2

    def test_wrong_positions(self, fed: Storage) -> None:
        """Anything but a position is a `ValueError`, even the text of one."""
        feed = self.fed_items(fed, 1)
        wrong: Any
        for wrong in (str(feed.latest()), 1, ("0" * 16, 1)):
            for call in WITH_A_POSITION.values():
                with pytest.raises(ValueError, match="FeedPosition"):
                    call(feed, wrong)

    def test_open_transactions_hold_nothing_back(self, fed: Storage, begin: Begin) -> None:
        """`latest` does not wait for open transactions, idle or with writes; their later commits are beyond it."""
        feed = self.fed_items(fed, 2)
        idle, writing = begin(), begin()
        idle.table("items").count()
        writing.table("items").upsert({"id": 1, "n": 8})
        with fed.plan_scan("items"):
            position = feed.latest()
            fed.table("items").upsert({"id": 0, "n": 9})
            (commit,) = by_version(read_between(fed, "items", position))
            position = feed.latest()
        again = read_between(fed, "items", None, position)
        writing.commit()
        assert read_between(fed, "items", None, position) == again
        (commit,) = by_version(read_between(fed, "items", position))
        assert {row["id"] for _, row in images(commit)} == {1}
        idle.rollback()

    def test_open_job_holds_nothing_back(self, fed: Storage) -> None:
        """A write job that was begun or staged does not keep `latest` from advancing."""
        feed = self.fed_items(fed, 1)
        job = fed.begin_write("items", mode=WriteMode.UPSERT, job_id=self.fresh_id())
        position = feed.latest()
        fed.table("items").upsert({"id": 5})
        assert len(read_between(fed, "items", position)) == 1
        fed.abort_write(job)
        assert len(read_between(fed, "items", position, feed.latest())) == 1

    def test_feed_objects_look_the_table_up(self, fed: Storage) -> None:
        """A feed object stands for the name: after drop and create it is another feed, whose old positions are lost."""
        feed = self.fed_items(fed, 2)
        position = feed.latest()
        fed.admin.drop("items")
        spec: TableSpecification = with_feed(ITEMS)
        fed.admin.create(spec)
        fed.table("items").insert({"id": 7})
        assert feed.latest().feed != position.feed
        assert [row["id"] for _, row in images(read_between(fed, "items"))] == [7]
        for call in (
            partial(feed.read, position),
            partial(feed.plan, None, position),
            partial(feed.advance, position, 1),
        ):
            with pytest.raises(ChangesLostError):
                call()
