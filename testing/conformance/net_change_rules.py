"""Rules of net changes: of ranges read with `net`, and of feeds with full compaction, which are net between marks."""

from __future__ import annotations

import datetime as dt
from itertools import combinations, pairwise
from typing import cast

import pytest

from structable.spi import ChangeFeed, FeedPosition, InvalidFieldError, Storage, UnsupportedOperationError

from .clients import StoreProcess
from .feed_case import (
    FeedCase,
    State,
    after,
    by_version,
    difference,
    images,
    planned,
    read_between,
    settled,
    state_of,
    texts,
    with_feed,
    without_gap,
)
from .feed_keyless_rules import BAG, LOG
from .feed_reading_rules import as_rows
from .keyless_rules import counted
from .model import comparable
from .samples import ITEMS, Record

LONG = {"changelog-producer.compaction-interval": "1 d"}
COMPACTED = ["lookup", "full-compaction"]
STEPS: list[dict[int, int | None]] = [
    {1: 1, 2: 2, 3: 3},
    {1: 5, 3: None, 4: 4},
    {1: 1, 4: None},
    {3: 3, 2: None},
    {2: 9},
]
"""Values of n by id, one step after the other; None deletes the row."""


def by_key(row: Record) -> tuple[object, ...]:
    """Return the sort key of a row of `as_rows`."""
    return row["id"], row["_change_type"]


class NetChangeRules(FeedCase):
    """Net changes are the difference of two states."""

    def steps(self, storage: Storage, producer: str) -> list[tuple[FeedPosition, list[Record]]]:
        """Make the steps, and return the rows at each position between them."""
        storage.admin.create(with_feed(ITEMS, producer))
        feed, table = storage.changes("items"), storage.table("items")
        states: list[tuple[FeedPosition, list[Record]]] = [(feed.latest(), [])]
        for step in STEPS:
            for key, value in step.items():
                if value is None:
                    table.delete((key,))
                else:
                    table.upsert({"id": key, "n": value})
            position = settled(feed, states[-1][0])
            if producer == "full-compaction":
                while len(read_between(storage, "items", states[-1][0])) < self.changed(states[-1][1], table.scan()):
                    position = feed.latest()
            states.append((position, [dict(row) for row in table.scan()]))
        return states

    def changed(self, before: list[Record], now: object) -> int:
        return sum(difference(before, now, ["id"]).values())  # type: ignore[arg-type] # rows

    @pytest.mark.parametrize("producer", COMPACTED)
    def test_net_changes(self, fed: Storage, producer: str) -> None:
        """`net` compares each key's row at since and at until; a change has version and time of the last one."""
        states = self.steps(fed, producer)
        everything = read_between(fed, "items")
        for (since, old), (until, new) in combinations(states, 2):
            found = read_between(fed, "items", since, until, net=True)
            assert texts(found) == difference(old, new, ["id"])
            within = [one for one in everything if since.version < (one.version or 0) <= until.version]
            for change in found:
                last = [one for one in within if one.row["id"] == change.row["id"]][-1]
                assert (change.version, change.timestamp) == (last.version, last.timestamp)
            assert read_between(fed, "items", until, since, net=True) == []
        whole = read_between(fed, "items", net=True)
        assert texts(whole) == difference([], states[-1][1], ["id"])

    @pytest.mark.parametrize("producer", COMPACTED)
    def test_splits_of_net_changes(self, fed: Storage, producer: str) -> None:
        """Together the splits of a net plan have each key once, both images in one split, whatever their number."""
        states = self.steps(fed, producer)
        fed.table("items").upsert_many([{"id": 100 + key, "n": key} for key in range(200)])
        settled(fed.changes("items"), states[-1][0])
        for since in (states[0][0], states[1][0], states[-1][0]):
            expected = sorted(as_rows(read_between(fed, "items", since, net=True)), key=by_key)
            for splits in (1, 3, 8):
                plan = fed.changes("items").plan(since, splits=splits, net=True)
                keys: set[object] = set()
                rows = []
                for split in plan.splits:
                    part = [row for one in fed.read_split(split) for row in one.to_pylist()]
                    assert keys.isdisjoint(row["id"] for row in part)
                    keys |= {row["id"] for row in part}
                    for one, other in pairwise(part):
                        if one["_change_type"] == "update_preimage":
                            assert (other["_change_type"], other["id"]) == ("update_postimage", one["id"])
                    rows += part
                assert sorted((comparable(row) for row in rows), key=by_key) == expected

    def test_splits_of_net_changes_in_other_processes(self, fed: Storage, peer: StoreProcess) -> None:
        """Splits of net changes give the same in other processes as in this one."""
        self.steps(fed, "lookup")
        plan = fed.changes("items").plan(splits=3, net=True)
        for split in plan.splits:
            here = [row for one in fed.read_split(split) for row in one.to_pylist()]
            assert sorted(peer.ask("read_split", split), key=by_key) == sorted(here, key=by_key)

    def test_columns_of_net_changes(self, fed: Storage) -> None:
        """A net pair is returned even if the chosen columns are equal: whole rows are compared."""
        states = self.steps(fed, "lookup")
        position = states[-1][0]
        fed.table("items").update({"id": 2, "tag": "a"})
        found = read_between(fed, "items", position, columns=["n"], net=True)
        assert [(kind, row) for kind, row in images(found)] == [("-U", {"id": 2, "n": 9}), ("+U", {"id": 2, "n": 9})]
        plan = fed.changes("items").plan(position, columns=["n"], net=True)
        assert [(row["n"], row["_change_type"]) for row in planned(fed, plan)] == [
            (9, "update_preimage"),
            (9, "update_postimage"),
        ]

    def test_net_needs_images_and_a_key(self, fed: Storage) -> None:
        """`net` is `UnsupportedOperationError` under producer input, and of tables without a key."""
        for spec in (
            with_feed(ITEMS, "input"),
            with_feed(BAG).evolve(name="bag"),
            with_feed(LOG).evolve(name="log"),
            with_feed(BAG, "input").evolve(name="raw"),
        ):
            fed.admin.create(spec)
            feed = fed.changes(spec.name)
            for call in (feed.read, feed.plan):
                with pytest.raises(UnsupportedOperationError, match="net"):
                    call(net=True)

    @pytest.mark.parametrize("value", [1, 0, "yes", None])
    def test_net_is_true_or_false(self, fed: Storage, value: object) -> None:
        """`net` takes True and False only: `InvalidFieldError`."""
        fed.admin.create(with_feed(ITEMS))
        feed = fed.changes("items")
        for call in (feed.read, feed.plan):
            with pytest.raises(InvalidFieldError, match="net"):
                call(net=cast("bool", value))

    def test_more_splits_than_changes(self, fed: Storage) -> None:
        """`splits` is approximate: a plan of any number is made at once, and has all changes."""
        fed.admin.create(with_feed(ITEMS))
        feed = fed.changes("items")
        fed.table("items").upsert_many([{"id": number, "n": 1} for number in range(3)])
        for net in (False, True):
            whole = sorted(planned(fed, feed.plan(net=net)), key=by_key)
            plan = feed.plan(net=net, splits=10**30)
            assert sorted(planned(fed, plan), key=by_key) == whole

    def marked(self, storage: Storage, interval: str) -> ChangeFeed:
        """Create a table with full compaction."""
        storage.admin.create(
            with_feed(ITEMS, "full-compaction", **{"changelog-producer.compaction-interval": interval})
        )
        return storage.changes("items")

    def test_no_mark_before_the_interval(self, fed: Storage) -> None:
        """Until the interval is over no mark is set, and no call reads a change."""
        feed = self.marked(fed, "1 d")
        start = feed.earliest()
        fed.table("items").insert({"id": 1})
        fed.table("items").upsert({"id": 1, "n": 1})
        assert feed.latest() == feed.earliest() == feed.advance(start, 10) == start
        assert feed.at(dt.datetime(1990, 1, 1, tzinfo=dt.UTC)) == start
        assert feed.at(dt.datetime(9999, 1, 1, tzinfo=dt.UTC)) == start
        assert read_between(fed, "items") == read_between(fed, "items", net=True) == []
        assert planned(fed, feed.plan(splits=2)) == []
        position, _ = without_gap(fed, "items")
        assert position.version > start.version
        assert read_between(fed, "items", start, position) == []
        assert read_between(fed, "items", position) == []

    def test_no_mark_without_a_commit(self, fed: Storage) -> None:
        """A mark is set only if something was committed since the last."""
        feed = self.marked(fed, "1 ms")
        start = feed.latest()
        for _ in range(20):
            fed.table("items").count()
            assert feed.latest() == start
        fed.table("items").insert({"id": 1})
        mark = settled(feed, start)
        ended = dt.datetime.now(dt.UTC) + dt.timedelta(milliseconds=5)
        while dt.datetime.now(dt.UTC) < ended:
            assert feed.latest() == mark

    def test_changes_have_their_mark(self, fed: Storage) -> None:
        """Changes come net between marks, with version and time of their mark, however many commits there were."""
        feed = self.marked(fed, "1 d")
        marks, states = [feed.latest()], [state_of(fed, "items")]
        for number in range(3):
            for key in (number, number + 1, 7):
                fed.table("items").upsert({"id": key, "n": 10 * number})
                fed.table("items").upsert({"id": key, "n": 10 * number + key})
            fed.table("items").insert({"id": 99})
            fed.table("items").delete((99,))
            marks.append(self.mark(fed, feed, marks[-1]))
            states.append(state_of(fed, "items"))
        commits = by_version(read_between(fed, "items"))
        assert [commit[0].version for commit in commits] == [mark.version for mark in marks[1:]]
        times = [commit[0].timestamp for commit in commits]
        assert times == sorted(time for time in times if time is not None)
        for number, commit in enumerate(commits):
            assert after(states[number], commit) == states[number + 1]
            assert sum(texts(commit).values()) == len(commit)
            assert {row["id"] for _, row in images(commit)} == {number, number + 1, 7}
        self.ranges_of_marks(fed, marks, states)
        self.times_of_marks(feed, marks, [time for time in times if time is not None])

    def mark(self, storage: Storage, feed: ChangeFeed, last: FeedPosition) -> FeedPosition:
        """Set a mark now: the interval is short for as long as it takes."""
        storage.admin.create_or_update(with_feed(ITEMS, "full-compaction"))
        mark = settled(feed, last)
        storage.admin.create_or_update(with_feed(ITEMS, "full-compaction", **LONG))
        assert feed.latest() == mark
        return mark

    def ranges_of_marks(self, storage: Storage, marks: list[FeedPosition], states: list[State]) -> None:
        """Check ranges: `until` is rounded down to a mark; ranges concatenate at marks; a range is netted by itself."""
        feed = storage.changes("items")
        everything = read_between(storage, "items")
        for mark in marks:
            assert read_between(storage, "items", None, mark) + read_between(storage, "items", mark) == everything
        for old, new in pairwise(marks):
            between = feed.position(new.version - 1)
            assert read_between(storage, "items", None, between) == read_between(storage, "items", None, old)
            assert feed.plan(None, between).until == old
        assert after(states[1], read_between(storage, "items", marks[1], net=True)) == states[-1]
        assert len(by_version(read_between(storage, "items", marks[0], marks[2], net=True))) == 2

    def times_of_marks(self, feed: ChangeFeed, marks: list[FeedPosition], times: list[dt.datetime]) -> None:
        """Check that `at`, `advance` and `earliest` give marks."""
        assert feed.earliest() == marks[0]
        for before, time in zip(marks, times, strict=False):
            assert feed.at(time) == before
        assert feed.at(times[-1] + dt.timedelta(days=1)) == marks[-1]
        position = marks[0]
        for mark in marks[1:]:
            position = feed.advance(position, 1)
            assert position == mark
        assert feed.advance(marks[0], 1_000) == feed.advance(position, 1) == marks[-1]
        assert feed.expire(feed.position(marks[2].version - 1)) == feed.earliest() == marks[1]
        assert feed.expire(marks[2]) == feed.earliest() == marks[2]

    def test_since_a_snapshot_between_marks(self, fed: Storage) -> None:
        """`since` may be any position, such as a snapshot's: the first interval is netted from there to its mark.

        `plan_net` ends at any position, too.
        """
        feed = self.marked(fed, "1 d")
        start = feed.latest()
        fed.table("items").upsert_many([{"id": key, "n": 1} for key in range(4)])
        position, rows = without_gap(fed, "items")
        fed.table("items").upsert({"id": 1, "n": 2})
        fed.table("items").delete((2,))
        fed.table("items").insert({"id": 5})
        second, other = without_gap(fed, "items")
        fed.table("items").upsert({"id": 1, "n": 1})
        fed.table("items").insert({"id": 6})
        mark = self.mark(fed, feed, start)
        now = state_of(fed, "items")
        assert start < position < second < mark
        for since, state in ((position, rows), (second, other)):
            found = read_between(fed, "items", since)
            assert after(state, found) == now
            assert {change.version for change in found} == {mark.version}
            assert texts(found) == texts(read_between(fed, "items", since, net=True))
        assert [row["id"] for _, row in images(read_between(fed, "items", position))].count(1) == 0
        assert read_between(fed, "items", position, second) == []
        for splits in (1, 3):
            net = planned(fed, feed.plan_net(position, second, splits=splits))
            assert sorted((row["id"], row["_change_type"]) for row in net) == [
                (1, "update_postimage"),
                (1, "update_preimage"),
                (2, "delete"),
                (5, "insert"),
            ]
            assert {position.version < row["_commit_version"] <= second.version for row in net} == {True}
        assert after(counted([]), read_between(fed, "items", start)) == now
        assert feed.advance(position, 1) == mark
