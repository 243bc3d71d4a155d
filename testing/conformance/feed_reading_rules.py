"""Rules of reading change feeds: ranges, columns, iterators and plans."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from itertools import combinations, pairwise
from typing import Any

import pyarrow as pa
import pytest

from structable.spi import (
    Change,
    ChangePlan,
    ChangesLostError,
    FeedPosition,
    InvalidFieldError,
    Row,
    ScanSplit,
    Storage,
    TransactionClosedError,
    UnsupportedOperationError,
    connect,
)

from .clients import StoreProcess
from .feed_case import PRODUCERS, FeedCase, by_version, images, planned, read_between, settled, with_feed
from .model import comparable
from .samples import EXTREMES, GRID, TYPES, Record

EACH = pytest.mark.parametrize("producer", PRODUCERS)
COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")


def as_rows(changes: Iterable[Change]) -> list[Record]:
    """Return changes as the rows of a plan's batches."""
    return [
        {
            **comparable(dict(change.row)),
            "_change_type": change.kind.change_type,
            "_commit_version": change.version,
            "_commit_timestamp": change.timestamp,
        }
        for change in changes
    ]


def in_order(rows: list[Record], producer: str) -> list[Record]:
    """Return rows of `as_rows`, sorted within each version unless their order there is promised."""
    assert [row["_commit_version"] for row in rows] == sorted(row["_commit_version"] for row in rows)
    if producer == "input":
        return rows
    return sorted(rows, key=lambda row: (row["_commit_version"], row["k1"], row["k2"], row["k3"], row["_change_type"]))


class FeedReadingRules(FeedCase):
    """A range is (since, until]; its changes stay the same."""

    def fed_grid(self, storage: Storage, producer: str = "lookup") -> list[FeedPosition]:
        """Write some commits of inserts, updates and deletes; return the positions between them."""
        storage.admin.create(with_feed(GRID, producer))
        table, feed = storage.table("grid"), storage.changes("grid")
        positions = [feed.latest()]
        for number in range(6):
            with storage.transaction() as transaction:
                inside = transaction.table("grid")
                keys: list[Record] = [{"k1": key, "k2": number % 3, "k3": "a"} for key in range(1, 2 + number)]
                inside.upsert_many([{**key, "v": number, "color": "red" if number % 2 else None} for key in keys])
                if number > 3:
                    inside.delete((1, 0, "a"))
            positions.append(settled(feed, positions[-1]))
        table.increment((1, 1, "a"), "v")
        positions.append(settled(feed, positions[-1]))
        return positions

    @EACH
    def test_ranges(self, fed: Storage, producer: str) -> None:
        """A read returns (since, until], by default all that is kept; ranges concatenate, and repeated reads agree."""
        positions = self.fed_grid(fed, producer)
        everything = read_between(fed, "grid")
        assert everything == read_between(fed, "grid", fed.changes("grid").earliest(), fed.changes("grid").latest())
        assert len(by_version(everything)) == len(positions) - 1
        for since, until in combinations(positions, 2):
            found = read_between(fed, "grid", since, until)
            assert found == [one for one in everything if since.version < (one.version or 0) <= until.version]
            assert read_between(fed, "grid", until, since) == read_between(fed, "grid", since, since) == []
        for position in positions:
            head, tail = read_between(fed, "grid", None, position), read_between(fed, "grid", position)
            assert head + tail == everything
        fed.table("grid").upsert({"k1": 1, "k2": 1, "k3": "z"})
        assert read_between(fed, "grid", None, positions[-1]) == everything

    @EACH
    def test_positions_between_commits(self, fed: Storage, producer: str) -> None:
        """A version that no commit has is a position as well: it divides the same changes."""
        positions = self.fed_grid(fed, producer)
        feed, everything = fed.changes("grid"), read_between(fed, "grid")
        for since, until in pairwise(positions):
            for version in {since.version, (since.version + until.version) // 2, until.version - 1, until.version}:
                position = feed.position(version)
                assert position.version == version
                expected = [one for one in everything if (one.version or 0) <= version]
                assert read_between(fed, "grid", None, position) == expected

    @EACH
    def test_changes_of_a_read(self, fed: Storage, producer: str) -> None:
        """`read` gives each `Change` a `Row` of all fields with its key; a postimage comes right after its preimage."""
        self.fed_grid(fed, producer)
        found = read_between(fed, "grid")
        assert len(by_version(found)) == 7
        for change in found:
            assert isinstance(change.row, Row)
            assert tuple(change.row) == GRID.field_names
            assert change.row.key == tuple(change.row[name] for name in GRID.primary_key)
            assert pickle.loads(pickle.dumps(change)) == change
        if producer != "input":
            for place, change in enumerate(found):
                if str(change.kind) == "-U":
                    assert str(found[place + 1].kind) == "+U"
                    assert found[place + 1].row.key == change.row.key  # type: ignore[attr-defined] # a Row

    def test_columns_of_a_read(self, fed: Storage) -> None:
        """`columns` of `read` always include the key; a pair is returned even if the chosen fields are equal."""
        self.fed_grid(fed)
        everything = read_between(fed, "grid")
        for columns in (["color"], ["v", "k3"], ("k2",), iter(["k1", "color", "k1"])):
            wanted = list(columns)
            found = read_between(fed, "grid", columns=iter(wanted))
            names = {*GRID.primary_key, *wanted}
            assert [one.kind for one in found] == [one.kind for one in everything]
            assert [dict(one.row) for one in found] == [
                {name: one.row[name] for name in GRID.field_names if name in names} for one in everything
            ]
        wrong: Any
        for wrong in ([], ["unknown"], ["v", "_commit_version"], ["_change_type"], "v", [1]):
            for call in (fed.changes("grid").read, fed.changes("grid").plan):
                with pytest.raises(InvalidFieldError):
                    call(columns=wrong)

    def test_iterator_of_changes(self, fed: Storage) -> None:
        """A read is a context manager and its own iterator; once closed, `next` is `TransactionClosedError`."""
        self.fed_grid(fed)
        feed = fed.changes("grid")
        with feed.read() as changes:
            assert iter(changes) is changes
            first = next(changes)
        with pytest.raises(TransactionClosedError):
            next(changes)
        changes.close()
        again = feed.read()
        assert next(again) == first
        again.close()
        again.close()
        with pytest.raises(TransactionClosedError):
            next(again)
        rest = feed.read()
        assert list(rest) == read_between(fed, "grid")
        assert next(rest, None) is None
        opened = [feed.read() for _ in range(20)]
        assert [next(one) for one in opened] == [first] * 20
        for one in opened:
            one.close()

    def test_range_is_taken_at_the_call(self, fed: Storage) -> None:
        """Changes that are committed while an iterator or a plan is open are beyond its range."""
        self.fed_grid(fed)
        expected = read_between(fed, "grid")
        changes, plan = fed.changes("grid").read(), fed.changes("grid").plan()
        fed.table("grid").upsert({"k1": 99, "k2": 1, "k3": "b"})
        assert list(changes) == expected
        assert [comparable(row) for row in planned(fed, plan)] == as_rows(expected)

    @EACH
    def test_plans_of_changes(self, fed: Storage, producer: str) -> None:
        """Splits, one after the other, have the order of `read`; a plan has its range, and holds nothing."""
        positions = self.fed_grid(fed, producer)
        feed = fed.changes("grid")
        for since, until in [(None, None), (positions[1], positions[4]), (positions[3], None), (None, positions[0])]:
            expected = in_order(as_rows(read_between(fed, "grid", since, until)), producer)
            for splits in (1, 2, 3, 50):
                plan = feed.plan(since, until, splits=splits)
                assert isinstance(plan, ChangePlan)
                assert plan.table == "grid"
                assert plan.since == (since or feed.earliest())
                assert plan.until == until if until else plan.until <= feed.latest()
                assert plan.columns == (*GRID.field_names, *COLUMNS)
                assert len(plan.splits) >= 1
                assert [split.index for split in plan.splits] == list(range(len(plan.splits)))
                assert in_order([comparable(row) for row in planned(fed, plan)], producer) == expected
                self.check_pairs(fed, plan)
                plan.close()
                assert in_order([comparable(row) for row in planned(fed, plan)], producer) == expected
        empty = feed.plan(positions[3], positions[2], splits=4)
        assert planned(fed, empty) == []
        wrong: Any
        for wrong in (0, -1, 1.5, "1", None, True):
            with pytest.raises(ValueError, match="splits"):
                feed.plan(splits=wrong)

    def check_pairs(self, storage: Storage, plan: ChangePlan) -> None:
        """Check that no pair of images is divided by a split."""
        for split in plan.splits:
            kinds = [row["_change_type"] for one in storage.read_split(split) for row in one.to_pylist()]
            assert "update_postimage" not in kinds[:1] or "update_preimage" not in kinds
            assert kinds[-1:] != ["update_preimage"]

    def test_splits_of_a_large_commit(self, fed: Storage) -> None:
        """No pair of images of a large commit is divided between splits."""
        fed.admin.create(with_feed(GRID))
        keys: list[Record] = [{"k1": key % 7, "k2": key, "k3": "x" * (key % 5)} for key in range(2_000)]
        fed.table("grid").insert_many([{**key, "v": 1} for key in keys])
        position = fed.changes("grid").latest()
        fed.table("grid").upsert_many([{**key, "v": 2} for key in keys])
        plan = fed.changes("grid").plan(position, splits=7)
        self.check_pairs(fed, plan)
        rows = planned(fed, plan)
        assert [row["_change_type"] for row in rows] == ["update_preimage", "update_postimage"] * len(keys)
        assert {(row["k1"], row["k2"]) for row in rows} == {(key["k1"], key["k2"]) for key in keys}
        assert rows == as_rows(read_between(fed, "grid", position))

    def test_columns_of_a_plan(self, fed: Storage) -> None:
        """`columns` of `plan` are exact and in their order, then kind, version and time, of fixed types."""
        self.fed_grid(fed)
        for columns in (["color"], ["v", "k1"], ["k3", "color", "k2"]):
            plan = fed.changes("grid").plan(columns=columns, splits=2)
            assert plan.columns == (*columns, *COLUMNS)
            for split in plan.splits:
                for one in fed.read_split(split):
                    assert tuple(one.schema.names) == plan.columns
                    assert pa.types.is_string(one.schema.field("_change_type").type)
                    assert one.schema.field("_commit_version").type == pa.int64()
                    assert one.schema.field("_commit_timestamp").type == pa.timestamp("us", tz="UTC")
            expected = [{name: row[name] for name in plan.columns} for row in as_rows(read_between(fed, "grid"))]
            assert planned(fed, plan) == expected

    def test_values_of_every_type(self, fed: Storage) -> None:
        """Images keep the values of every type, extremes and nulls, by `read` and by `plan`."""
        spec = with_feed(TYPES)
        fed.admin.create(spec)
        most = max(map(len, EXTREMES.values()))
        rows: list[Record] = [
            {"id": key, **{kind.value: values[key % len(values)] for kind, values in EXTREMES.items()}}
            for key in range(most)
        ]
        fed.table("types").insert_many([*rows, {"id": most}])
        stored = [comparable(dict(row)) for row in fed.table("types").scan()]
        fed.table("types").delete_many([(key,) for key in range(most + 1)])
        inserts, deletes = by_version(read_between(fed, "types"))
        for commit, kind in ((inserts, "+I"), (deletes, "-D")):
            found = images(commit)
            assert {one for one, _ in found} == {kind}
            assert sorted((row for _, row in found), key=lambda row: row["id"]) == stored
        batches = [comparable(row) for row in planned(fed, fed.changes("types").plan(splits=2))]
        assert batches == as_rows(read_between(fed, "types"))

    def test_read_only_storage_reads_feeds(self, fed: Storage, storage_url: str) -> None:
        """With `read_only` everything of a feed can be read, and nothing dropped."""
        positions = self.fed_grid(fed)
        fed.admin.create(with_feed(GRID, "full-compaction").evolve(name="marked"))
        fed.table("marked").upsert({"k1": 1, "k2": 1, "k3": "a"})
        with connect(storage_url, read_only=True) as storage:
            feed = storage.changes("grid")
            assert read_between(storage, "grid") == read_between(fed, "grid")
            assert feed.advance(positions[0], 1) <= feed.latest()
            assert planned(storage, feed.plan(splits=2)) == planned(fed, fed.changes("grid").plan())
            for until in (None, positions[3]):
                with pytest.raises(UnsupportedOperationError, match="read_only"):
                    feed.expire(until)
            marked = storage.changes("marked")
            assert marked.earliest() <= marked.latest() <= fed.changes("marked").latest()
            with storage.transaction(read_only=True) as transaction:
                assert transaction.position("grid") <= feed.latest()
        assert fed.changes("grid").earliest() <= positions[0]
        settled(fed.changes("marked"), fed.changes("marked").earliest())
        assert len(read_between(fed, "marked")) == 1

    def test_splits_of_changes_are_picklable(self, fed: Storage) -> None:
        """Splits are picklable, and can be read more than once."""
        self.fed_grid(fed)
        expected = read_between(fed, "grid")
        splits: list[ScanSplit] = pickle.loads(pickle.dumps(fed.changes("grid").plan(splits=3).splits))
        for _ in range(2):
            found = [row for split in splits for one in fed.read_split(split) for row in one.to_pylist()]
            assert [comparable(row) for row in found] == as_rows(expected)

    def test_splits_of_changes_in_other_processes(self, fed: Storage, storage_url: str, peer: StoreProcess) -> None:
        """Every process reads the splits, connected or by the URL alone, even once the plan is gone."""
        self.fed_grid(fed)
        expected = as_rows(read_between(fed, "grid"))
        plan = fed.changes("grid").plan(splits=3)
        splits = list(plan.splits)
        del plan
        assert [row for split in splits for row in peer.ask("read_split", split)] == expected
        assert [row for split in splits for row in peer.ask("read_split_by_url", storage_url, split)] == expected

    def test_feeds_in_other_processes(self, fed: Storage, peer: StoreProcess) -> None:
        """Positions are the same in every process, and changes are seen by all; errors arrive unchanged."""
        positions = self.fed_grid(fed)
        assert peer.ask("feed", "grid", "latest") >= positions[-1]
        for position in positions:
            assert peer.ask("changes", "grid", position, None) == [
                (str(one.kind), dict(one.row), one.version, one.timestamp)
                for one in read_between(fed, "grid", position, positions[-1])
            ]
        before = fed.changes("grid").latest()
        peer.ask("upsert", "grid", {"k1": 50, "k2": 1, "k3": "b", "v": 4})
        (change,) = read_between(fed, "grid", before)
        assert change.row["k1"] == 50
        fed.table("grid").upsert({"k1": 51, "k2": 1, "k3": "b", "v": 4})
        assert len(peer.ask("changes", "grid", before, None)) == 2
        peer.ask("feed", "grid", "expire", positions[2])
        assert fed.changes("grid").earliest() == positions[2]
        with pytest.raises(ChangesLostError) as lost:
            peer.ask("changes", "grid", positions[1], None)
        assert (lost.value.position, lost.value.earliest) == (positions[1], positions[2])
