"""Rules of feeds that begin and end, and of tables with a feed whose fields and options change."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial

import pytest

from structable.spi import (
    ChangesLostError,
    Field,
    Storage,
    TableSpecification,
    TransactionConflictError,
    UnsupportedOperationError,
    WriteMode,
    connect,
)

from .case import Begin
from .feed_case import (
    GONE,
    PRODUCERS,
    FeedCase,
    after,
    all_or_lost,
    images,
    planned,
    read_between,
    settled,
    state_of,
    with_feed,
    without_gap,
)
from .feed_reading_rules import as_rows
from .keyless_rules import counted
from .model import comparable
from .option_rules import ALLOWED, WITH_FEEDS
from .option_rules import table as keyed
from .samples import ITEMS, Record, item
from .write_jobs import batch

EACH = pytest.mark.parametrize("producer", PRODUCERS)
NARROW = TableSpecification("t", [Field.long("id"), Field.int("n"), Field.float("x"), Field.byte("b")], ["id"])
WIDE = TableSpecification(
    "t",
    [Field.string("new"), Field.long("id"), Field.long("n"), Field.double("x"), Field.short("b"), Field.int("last")],
    ["id"],
)
BAG = TableSpecification("t", NARROW.value_fields, options={"write-mode": "change-log"})
WIDE_BAG = BAG.evolve(fields=[*WIDE.value_fields])


class FeedSchemaRules(FeedCase):
    """A feed begins and ends with its producer; its images have the table's fields as of the reading."""

    def producer(self, storage: Storage, options: Mapping[str, str], spec: TableSpecification = ITEMS) -> None:
        storage.admin.create_or_update(spec.evolve(options={**spec.options, **options}))

    def test_catalog_keeps_options_of_feeds(self, fed: Storage, storage_url: str) -> None:
        """Specifications with feeds are read as they were written; `create_or_update` with the same does nothing."""
        specs = [keyed(options).evolve(name=f"t{number}") for number, options in enumerate(WITH_FEEDS)]
        specs += [with_feed(spec).evolve(name=f"u{number}") for number, spec in enumerate(ALLOWED[1:4])]
        for spec in specs:
            fed.admin.create(spec)
        tokens = [fed.changes(spec.name).earliest() for spec in specs]
        assert len({token.feed for token in tokens}) == len(specs)
        for spec, token in zip(specs, tokens, strict=True):
            fed.admin.create_or_update(spec)
            assert fed.admin.get_specification(spec.name) == spec
            assert fed.changes(spec.name).earliest() == token
        if self.capabilities.restartable:
            fed.close()
            with connect(storage_url) as storage:
                assert [storage.admin.get_specification(spec.name) for spec in specs] == specs
                assert [storage.changes(spec.name).earliest() for spec in specs] == tokens

    def test_feeds_outlast_connections(self, fed: Storage, storage_url: str) -> None:
        """Changes and positions outlast the closing of every connection; later commits are beyond them."""
        self.require("restartable")
        self.fed_items(fed, 4)
        expected, latest = read_between(fed, "items"), fed.changes("items").latest()
        fed.close()
        with connect(storage_url) as storage:
            assert read_between(storage, "items") == expected
            assert storage.changes("items").latest() >= latest
            storage.table("items").upsert({"id": 1, "n": 8})
            assert len(read_between(storage, "items", latest)) == 2
            assert read_between(storage, "items", None, latest) == expected

    @EACH
    def test_feed_of_a_full_table_starts_empty(self, fed: Storage, producer: str) -> None:
        """Rows that exist when a feed begins are not in it; later changes of them have their preimages."""
        fed.admin.create(ITEMS)
        fed.table("items").upsert_many([item(key, n=key) for key in range(5)])
        fed.admin.create_or_update(with_feed(ITEMS, producer))
        feed = fed.changes("items")
        position, rows = feed.latest(), state_of(fed, "items")
        assert read_between(fed, "items") == []
        fed.table("items").update({"id": 1, "n": 7})
        fed.table("items").delete((2,))
        latest = settled(feed, position)
        found = images(read_between(fed, "items", position, latest))
        if producer == "input":
            assert [(kind, row["id"], row["n"]) for kind, row in found] == [("+U", 1, 7), ("-D", 2, None)]
        else:
            assert [(kind, row["id"], row["n"]) for kind, row in found] == [("-U", 1, 1), ("+U", 1, 7), ("-D", 2, 2)]
            assert after(rows, read_between(fed, "items")) == state_of(fed, "items")

    @EACH
    def test_older_program_ends_no_feed(self, fed: Storage, producer: str) -> None:
        """`create_or_update` that names no producer, interval or retention keeps them; it may add fields."""
        spec = with_feed(ITEMS, producer, **{"changelog.time-retained": "3 d"})
        fed.admin.create(spec)
        fed.table("items").insert({"id": 1})
        token = fed.changes("items").earliest()
        fed.admin.create_or_update(ITEMS)
        assert fed.admin.get_specification("items") == spec
        wider = [*ITEMS.fields, Field.int("added")]
        fed.admin.create_or_update(ITEMS.evolve(fields=wider))
        assert fed.admin.get_specification("items") == spec.evolve(fields=wider)
        assert fed.changes("items").earliest() == token
        settled(fed.changes("items"), token)
        assert len(read_between(fed, "items", token)) == 1

    @EACH
    def test_producer_none_ends_a_feed(self, fed: Storage, producer: str) -> None:
        """Only an explicit `changelog-producer=none` ends a feed; one that begins again is another, and empty."""
        fed.admin.create(with_feed(ITEMS, producer))
        fed.table("items").insert({"id": 1})
        feed = fed.changes("items")
        position = feed.earliest()
        settled(feed, position)
        plan, expected = feed.plan(), as_rows(read_between(fed, "items"))
        self.producer(fed, {"changelog-producer": "none"})
        for call in (feed.latest, feed.earliest, feed.read, feed.expire):
            with pytest.raises(UnsupportedOperationError):
                call()
        all_or_lost(partial(planned, fed, plan), expected, GONE)
        with fed.plan_scan("items") as scan:
            assert scan.position is None
        fed.table("items").insert({"id": 2})
        fed.admin.create_or_update(with_feed(ITEMS, producer))
        assert feed.latest().feed != position.feed
        assert read_between(fed, "items") == []
        for lost in (partial(feed.read, position), partial(feed.advance, position, 1), partial(feed.expire, position)):
            with pytest.raises(ChangesLostError):
                lost()

    @pytest.mark.parametrize("one", PRODUCERS)
    def test_another_producer_is_another_feed(self, fed: Storage, one: str) -> None:
        """Another producer ends the feed and begins one without the existing rows: only the retention stays."""
        other = PRODUCERS[PRODUCERS.index(one) - 1]
        fed.admin.create(with_feed(ITEMS, one, **{"changelog.time-retained": "3 d"}))
        fed.table("items").upsert({"id": 1, "n": 1})
        feed = fed.changes("items")
        old = feed.latest()
        spec = with_feed(ITEMS, other)
        fed.admin.create_or_update(spec)
        assert fed.admin.get_specification("items") == with_feed(spec, other, **{"changelog.time-retained": "3 d"})
        start = feed.latest()
        assert start.feed != old.feed
        assert read_between(fed, "items") == []
        with pytest.raises(ChangesLostError):
            feed.read(old)
        fed.table("items").upsert({"id": 1, "n": 2})
        settled(feed, start)
        kinds = [kind for kind, _ in images(read_between(fed, "items", start))]
        assert kinds == (["+U"] if other == "input" else ["-U", "+U"])

    @EACH
    def test_feed_goes_on_when_its_options_change(self, fed: Storage, producer: str) -> None:
        """Another retention, another interval or an option `user.` is the same feed: nothing is lost."""
        fed.admin.create(with_feed(ITEMS, producer))
        fed.table("items").insert({"id": 1})
        feed = fed.changes("items")
        start = feed.earliest()
        latest = settled(feed, start)
        expected = read_between(fed, "items")
        changed = {"changelog.time-retained": "90 d", "user.owner": "me", "changelog-producer": producer}
        if producer == "full-compaction":
            changed["changelog-producer.compaction-interval"] = "2 ms"
        self.producer(fed, changed)
        assert (feed.earliest(), read_between(fed, "items", start)) == (start, expected)
        fed.table("items").insert({"id": 2})
        settled(feed, latest)
        assert len(read_between(fed, "items", latest)) == 1

    @EACH
    def test_images_after_a_schema_change(self, fed: Storage, producer: str) -> None:
        """In `read` and `plan`, fields added since are null and widened ones are widened; positions stay valid."""
        fed.admin.create(with_feed(NARROW, producer))
        table, feed = fed.table("t"), fed.changes("t")
        positions = [feed.latest()]
        row: Record
        for row in ({"id": 1, "n": 2**31 - 1, "x": 0.1, "b": -128}, {"id": 1, "n": -1}, {"id": 2}):
            table.upsert(row)
            positions.append(settled(feed, positions[-1]))
        state = state_of(fed, "t")
        before = images(read_between(fed, "t"))
        fed.admin.create_or_update(with_feed(WIDE, producer))
        found = images(read_between(fed, "t"))
        assert [kind for kind, _ in found] == [kind for kind, _ in before]
        assert [tuple(row) for _, row in found] == [WIDE.field_names] * len(found)
        assert [row for _, row in found] == [{**row, "new": None, "last": None} for _, row in before]
        values = [row["x"] for _, row in found if row["x"] is not None]
        assert values[0] == pytest.approx(0.1)
        plan = feed.plan(positions[0], splits=2)
        assert plan.columns[: len(WIDE.fields)] == WIDE.field_names
        assert [comparable(row) for row in planned(fed, plan)] == as_rows(read_between(fed, "t"))
        fed.table("t").upsert({"id": 1, "n": 2**40, "x": 0.1, "b": 1000, "new": "a"})
        fed.table("t").delete((2,))
        settled(feed, positions[-1])
        tail = read_between(fed, "t", positions[-1])
        assert [dict(one.row)["b"] for one in tail][-2:] == [1000, None]
        if producer != "input":
            wide = counted({**dict(row), "new": None, "last": None} for row in state.elements())
            assert after(wide, tail) == state_of(fed, "t")
            assert after(counted([]), read_between(fed, "t")) == state_of(fed, "t")

    def test_bag_images_after_a_schema_change(self, fed: Storage) -> None:
        """The feed of a bag: rows put before a field was added are taken away as rows with a null in it."""
        fed.admin.create(with_feed(BAG))
        rows: list[Record] = [{"n": 1, "x": 0.5}, {"n": 1, "x": 0.5}, {"b": 7}]
        fed.table("t").insert_many(rows)
        position = fed.changes("t").latest()
        fed.admin.create_or_update(with_feed(WIDE_BAG))
        fed.table("t").apply_changes([("-D", rows[0]), ("+I", {**rows[0], "new": "a"}), ("-D", rows[2])])
        assert len(read_between(fed, "t", position)) == 3
        assert after(counted([]), read_between(fed, "t")) == state_of(fed, "t")

    def test_indexes_of_a_table_with_a_feed(self, fed: Storage) -> None:
        """Adding and dropping an index leaves nothing in the feed."""
        self.fed_items(fed, 3)
        position = fed.changes("items").latest()
        fed.admin.drop_index("items", "tag")
        fed.admin.create_or_update(with_feed(ITEMS.evolve(indexes=["rank", "n"])))
        assert read_between(fed, "items", position) == []
        fed.table("items").upsert({"id": 1, "tag": "a"})
        assert len(read_between(fed, "items", position)) == 2

    @EACH
    def test_overwrite_is_refused(self, fed: Storage, producer: str) -> None:
        """A feed refuses job mode overwrite: at `begin_write`, or at the commit if the feed began after that."""
        fed.admin.create(ITEMS)
        fed.table("items").insert({"id": 1})
        job = fed.begin_write("items", mode=WriteMode.OVERWRITE, job_id=self.fresh_id())
        staged = fed.stage(job, 0, 0, [batch([{"id": 2}])])
        fed.admin.create_or_update(with_feed(ITEMS, producer))
        with pytest.raises(UnsupportedOperationError, match="overwrite"):
            fed.commit_write(job, [staged])
        fed.abort_write(job)
        with pytest.raises(UnsupportedOperationError, match="overwrite"):
            fed.begin_write("items", mode=WriteMode.OVERWRITE, job_id=self.fresh_id())
        assert [row["id"] for row in fed.table("items").scan()] == [1]
        assert read_between(fed, "items") == []
        self.producer(fed, {"changelog-producer": "none"})
        job = fed.begin_write("items", mode=WriteMode.OVERWRITE, job_id=self.fresh_id())
        fed.commit_write(job, [fed.stage(job, 0, 0, [batch([{"id": 2}])])])
        assert [row["id"] for row in fed.table("items").scan()] == [2]

    def test_transaction_over_the_beginning_of_a_feed(self, fed: Storage, begin: Begin) -> None:
        """A transaction that began before a feed conflicts, or its changes are in the feed: none is lost."""
        fed.admin.create(ITEMS)
        fed.table("items").insert({"id": 1})
        transaction = begin()
        transaction.table("items").count()
        fed.admin.create_or_update(with_feed(ITEMS))
        position, rows = without_gap(fed, "items")
        with suppress(TransactionConflictError):
            transaction.table("items").upsert({"id": 1, "n": 1})
            transaction.commit()
        assert after(rows, read_between(fed, "items", position)) == state_of(fed, "items")
