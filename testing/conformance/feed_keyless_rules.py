"""Rules of the change feeds of tables without a key."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from structable.spi import Field, Range, Storage, TableSpecification, col

from .feed_case import FeedCase, after, by_version, images, read_between, state_of, with_feed
from .keyless_rules import counted
from .model import comparable
from .samples import Record, plain

LOG = TableSpecification("t", [Field.string("name"), Field.double("x")], options={"write-mode": "append-only"})
BAG = TableSpecification("t", [Field.string("name"), Field.double("x")], options={"write-mode": "change-log"})


def whole(spec: TableSpecification, row: Record) -> Record:
    """Return a row with nulls for the fields it lacks."""
    return comparable({**dict.fromkeys(spec.field_names), **row})


class FeedKeylessRules(FeedCase):
    """The feed of a log has inserts; the feed of a bag has inserts and deletes."""

    @pytest.mark.parametrize("producer", ["lookup", "input"])
    def test_feed_of_a_log(self, fed: Storage, producer: str) -> None:
        """The feed of an append-only table has one insert of each row."""
        spec = with_feed(LOG, producer)
        fed.admin.create(spec)
        rows: list[Record] = [{"name": "a"}, {"name": "a"}, {"x": 0.5}, {"name": "b", "x": math.nan}, {}]
        table = fed.table("t")
        table.insert(rows[0])
        table.insert_many(rows[1:3])
        table.apply_changes([("+I", row) for row in rows[3:]])
        with fed.transaction() as transaction:
            for row in rows:
                transaction.table("t").insert(row)
        commits = by_version(read_between(fed, "t"))
        assert [len(commit) for commit in commits] == [1, 2, 2, 5]
        for commit, some in zip(commits, [rows[:1], rows[1:3], rows[3:], rows], strict=True):
            found = images(commit)
            assert {kind for kind, _ in found} == {"+I"}
            assert counted(row for _, row in found) == counted(whole(spec, row) for row in some)
            if producer == "input":
                assert [row for _, row in found] == [whole(spec, row) for row in some]

    def test_lookup_of_a_bag(self, fed: Storage) -> None:
        """The lookup feed of a bag has inserts and deletes, net by value within a commit."""
        fed.admin.create(with_feed(BAG))
        table = fed.table("t")
        row: Record = {"name": "a", "x": math.nan}
        deeds: list[tuple[Callable[[], object], dict[str, int]]] = [
            (partial(table.insert, row), {"+I": 1}),
            (
                partial(table.apply_changes, [("+I", row), ("-D", row), ("+U", row), ("-U", {"name": "none"})]),
                {"+I": 1},
            ),
            (partial(table.apply_changes, [("-D", row), ("+I", row)]), {}),
            (partial(table.apply_changes, [("-U", row), ("+U", {"name": "b"})]), {"-D": 1, "+I": 1}),
            (partial(table.insert_many, [row, row]), {"+I": 2}),
            (partial(table.delete_all, Range.all(), where=col("name") == "a"), {"-D": 3}),
            (partial(table.apply_changes, [("-D", row)]), {}),
        ]
        state, position = state_of(fed, "t"), fed.changes("t").latest()
        for deed, expected in deeds:
            deed()
            found = read_between(fed, "t", position)
            assert Counter(kind for kind, _ in images(found)) == expected
            state, position = after(state, found), fed.changes("t").latest()
            assert state == state_of(fed, "t")

    def test_input_of_a_bag(self, fed: Storage) -> None:
        """The input feed of a bag has the records as given: also a -D that removes no row; unnamed fields are null."""
        spec = with_feed(BAG, "input")
        fed.admin.create(spec)
        table = fed.table("t")
        row: Record = {"name": "a", "x": 0.5}
        table.insert(row)
        table.insert_many([row, {"x": 1.0}])
        table.apply_changes([("-D", {"name": "none"}), ("-U", row), ("+U", {"name": "b"}), ("-D", row), ("+I", row)])
        table.apply_changes([("-D", row), ("-D", row)])
        given: list[tuple[str, Record]] = [
            *(("+I", row), ("+I", row), ("+I", {"x": 1.0})),
            *(("-D", {"name": "none"}), ("-U", row), ("+U", {"name": "b"}), ("-D", row), ("+I", row)),
            *(("-D", row), ("-D", row)),
        ]
        assert images(read_between(fed, "t")) == [(kind, whole(spec, one)) for kind, one in given]
        position = fed.changes("t").latest()
        left = plain(table.scan())
        table.delete_all(Range.all())
        found = images(read_between(fed, "t", position))
        assert {kind for kind, _ in found} == {"-D"}
        assert counted(one for _, one in found) == counted(left)
