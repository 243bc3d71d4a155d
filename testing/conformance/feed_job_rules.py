"""Rules of the changes that write jobs leave in feeds, and of jobs that write a feed's changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from structable.spi import (
    Change,
    FeedPosition,
    RecordExistsError,
    StagedWrite,
    Storage,
    TableSpecification,
    WriteJob,
    WriteMode,
)

from .clients import StoreProcess
from .feed_case import (
    PRODUCERS,
    FeedCase,
    Image,
    State,
    after,
    by_version,
    difference,
    images,
    read_between,
    settled,
    state_of,
    text_of,
    texts,
    with_feed,
    without_gap,
)
from .feed_keyless_rules import BAG, LOG, whole
from .feed_rules import TYPES_OF_TABLES
from .keyless_rules import counted
from .merge_case import add, by_one_call, delete, postimage, preimage, run_job, stage_changes
from .samples import ITEMS, Record, plain
from .write_jobs import batch

EACH = pytest.mark.parametrize("producer", PRODUCERS)
MANY = 5_000
GIVEN: dict[WriteMode, list[Record]] = {
    WriteMode.UPSERT: [{"id": 1, "n": 5}, {"id": 3, "n": None}, {"id": 2, "n": 2}],
    WriteMode.REPLACE: [{"id": 1, "n": 5}, {"id": 3, "n": 3}, {"id": 2, "n": 2}],
    WriteMode.INSERT: [{"id": 4, "n": 4}, {"id": 3, "n": None}],
    WriteMode.UPDATE: [{"id": 2, "n": 7}, {"id": 1, "n": 1}],
    WriteMode.DELETE: [{"id": 1}, {"id": 9}],
}
"""Rows of a job of each mode, on a table that has rows 1 and 2."""
BEFORE: list[Record] = [{"id": 1, "n": 1, "tag": "a", "note": "x"}, {"id": 2, "n": 2}]


def _full(row: Record) -> Record:
    return {**dict.fromkeys(ITEMS.field_names), **row}


RECORDS: dict[WriteMode, list[Image]] = {
    WriteMode.UPSERT: [("+U", _full(row)) for row in GIVEN[WriteMode.UPSERT]],
    WriteMode.REPLACE: [("+U", _full(row)) for row in GIVEN[WriteMode.REPLACE]],
    WriteMode.INSERT: [("+I", _full(row)) for row in GIVEN[WriteMode.INSERT]],
    WriteMode.UPDATE: [("+U", _full({**BEFORE[1], "n": 7})), ("+U", _full(BEFORE[0]))],
    WriteMode.DELETE: [("-D", _full({"id": 1})), ("-D", _full({"id": 9}))],
}
"""The records of these jobs in a feed of the producer input."""


class FeedJobRules(FeedCase):
    """A write job is one commit of its table's feed."""

    def fed_target(self, storage: Storage, producer: str) -> None:
        storage.admin.create(with_feed(ITEMS, producer))
        storage.table("items").insert_many(BEFORE)

    def stage_rows(
        self, storage: Storage, mode: WriteMode, partitions: Sequence[Sequence[Record]], table: str = "items"
    ) -> tuple[WriteJob, list[StagedWrite]]:
        """Begin a job, and stage partitions."""
        job = storage.begin_write(table, mode=mode, job_id=self.fresh_id())
        spec = storage.admin.get_specification(table)
        return job, [storage.stage(job, number, 0, [batch(rows, spec=spec)]) for number, rows in enumerate(partitions)]

    @EACH
    @pytest.mark.parametrize("mode", GIVEN)
    def test_feed_of_a_job(self, fed: Storage, mode: WriteMode, producer: str) -> None:
        """A job has one version: with `input` the records of its mode's verb, with lookup images; repeated, no more."""
        self.fed_target(fed, producer)
        feed = fed.changes("items")
        since = settled(feed, feed.earliest()) if producer == "full-compaction" else feed.latest()
        before = plain(fed.table("items").scan())
        job, staged = self.stage_rows(fed, mode, [GIVEN[mode][:1], GIVEN[mode][1:]])
        assert read_between(fed, "items", since) == []
        assert fed.commit_write(job, staged)
        until = settled(feed, since)
        found = read_between(fed, "items", since, until)
        assert len(by_version(found)) == 1
        if producer == "input":
            assert Counter(text_of(*one) for one in images(found)) == Counter(text_of(*one) for one in RECORDS[mode])
        else:
            assert texts(found) == difference(before, fed.table("items").scan(), ["id"])
        assert not fed.commit_write(job, staged)
        fed.abort_write(job)
        assert read_between(fed, "items", until) == []

    @pytest.mark.parametrize("mode", [WriteMode.UPSERT, WriteMode.REPLACE])
    def test_input_of_a_job_with_equal_keys(self, fed: Storage, mode: WriteMode) -> None:
        """With `input` all rows of a key are recorded, by partition, then as staged, even if only the last counts."""
        self.fed_target(fed, "input")
        since = fed.changes("items").latest()
        partitions: list[list[Record]] = [[{"id": 1, "n": 5}, {"id": 3}, {"id": 1, "n": 6}], [{"id": 1, "n": 5}]]
        job, staged = self.stage_rows(fed, mode, partitions)
        fed.commit_write(job, reversed(staged))
        found = images(read_between(fed, "items", since))
        assert [(kind, row["n"]) for kind, row in found if row["id"] == 1] == [("+U", 5), ("+U", 6), ("+U", 5)]
        assert len(found) == 4
        row = fed.table("items").read((1,))
        assert row is not None
        assert (row["n"], row["note"]) == (5, "x" if mode is WriteMode.UPSERT else None)

    @EACH
    def test_feed_of_a_job_that_fails(self, fed: Storage, producer: str) -> None:
        """A job that is refused, or aborted, leaves nothing in a feed."""
        self.fed_target(fed, producer)
        feed = fed.changes("items")
        since = settled(feed, feed.earliest()) if producer == "full-compaction" else feed.latest()
        job, staged = self.stage_rows(fed, WriteMode.INSERT, [[{"id": 7}], [{"id": 1}]])
        with pytest.raises(RecordExistsError):
            fed.commit_write(job, staged)
        fed.abort_write(job)
        job, _ = self.stage_rows(fed, WriteMode.UPSERT, [[{"id": 7}]])
        fed.abort_write(job)
        assert read_between(fed, "items", since) == []
        assert fed.table("items").count() == 2

    @EACH
    def test_feed_of_a_changes_job(self, fed: Storage, producer: str) -> None:
        """Mode changes: input records each change with its kind, in the order of each key; lookup is net."""
        self.fed_target(fed, producer)
        feed = fed.changes("items")
        since, before = feed.latest(), plain(fed.table("items").scan())
        if producer == "full-compaction":
            since = settled(feed, feed.earliest())
        steps = [
            *(add(id=3, n=1), postimage(id=3, n=2), preimage(id=3, n=2), delete(id=1, n=None), add(id=2, n=5)),
            *(delete(id=2), add(id=2, n=2), add(id=5, n=5), delete(id=6, n=1), delete(id=3), add(id=3, n=9)),
        ]
        run_job(fed, "items", steps, most=3)
        found = read_between(fed, "items", since, settled(feed, since))
        assert len(by_version(found)) == 1
        if producer != "input":
            assert texts(found) == difference(before, fed.table("items").scan(), ["id"])
            return
        for key in (1, 2, 3, 5, 6):
            expected = [(str(kind), whole(ITEMS, row)) for kind, row in steps if row["id"] == key]
            assert [one for one in images(found) if one[1]["id"] == key] == expected
        assert len(found) == len(steps)

    def test_feed_of_keyless_jobs(self, fed: Storage) -> None:
        """Jobs of logs and bags: one version, every row once; a bag is net by value."""
        row: Record = {"name": "a", "x": 0.5}
        for producer in ("lookup", "input"):
            for plain_spec in (LOG, BAG):
                spec = with_feed(plain_spec, producer)
                fed.admin.create(spec)
                job, staged = self.stage_rows(fed, WriteMode.INSERT, [[row, row], [row, {"name": "b", "x": None}]], "t")
                fed.commit_write(job, staged)
                (commit,) = by_version(read_between(fed, "t"))
                assert {kind for kind, _ in images(commit)} == {"+I"}
                assert counted(one for _, one in images(commit)) == state_of(fed, "t")
                if plain_spec is BAG:
                    self.changes_of_a_bag(fed, producer, row)
                fed.admin.drop("t")

    def changes_of_a_bag(self, storage: Storage, producer: str, row: Record) -> None:
        since, before = storage.changes("t").latest(), state_of(storage, "t")
        steps = [delete(**row), delete(**row), add(**row), delete(name="none", x=None), add(name="c", x=1.0)]
        run_job(storage, "t", steps, most=2)
        (commit,) = by_version(read_between(storage, "t", since))
        if producer == "lookup":
            assert Counter(kind for kind, _ in images(commit)) == {"-D": 1, "+I": 1}
            assert after(before, commit) == state_of(storage, "t")
        else:
            assert sorted(map(str, images(commit))) == sorted(str((str(kind), one)) for kind, one in steps)

    @EACH
    def test_feed_of_a_large_job(self, fed: Storage, producer: str) -> None:
        """However many rows: one version, nothing twice, no pair divided, and the position is all or nothing."""
        self.fed_target(fed, producer)
        feed = fed.changes("items")
        rows: list[Record] = [{"id": key, "n": key, "note": "x" * 50} for key in range(MANY)]
        since = settled(feed, feed.earliest()) if producer == "full-compaction" else feed.latest()
        before = state_of(fed, "items")
        job, staged = self.stage_rows(fed, WriteMode.UPSERT, [rows[::2], rows[1::2]])
        fed.commit_write(job, staged)
        until = settled(feed, since)
        (commit,) = by_version(read_between(fed, "items", since, until))
        assert feed.advance(since, 10) == (
            until if producer == "full-compaction" else feed.position(commit[0].version or 0)
        )
        if producer == "input":
            assert counted(change.row for change in commit) == counted(_full(row) for row in rows)
        else:
            assert after(before, commit) == state_of(fed, "items")
            assert sum(texts(commit).values()) == MANY + 2
        job, staged = self.stage_rows(fed, WriteMode.DELETE, [[{"id": key} for key in range(MANY)]])
        fed.commit_write(job, staged)
        settled(feed, until)
        found = read_between(fed, "items", until)
        assert [(str(one.kind), len(by_version(found))) for one in found[:1]] == [("-D", 1)]
        assert len(found) == MANY

    def test_job_over_the_beginning_of_a_feed(self, fed: Storage) -> None:
        """A job that was staged before a feed began, and is committed afterwards, is in the feed."""
        fed.admin.create(ITEMS)
        fed.table("items").insert_many(BEFORE)
        job, staged = self.stage_rows(fed, WriteMode.UPSERT, [GIVEN[WriteMode.UPSERT]])
        fed.admin.create_or_update(with_feed(ITEMS))
        position, rows = without_gap(fed, "items")
        assert fed.commit_write(job, staged)
        (commit,) = by_version(read_between(fed, "items", position))
        assert after(rows, commit) == state_of(fed, "items")

    def test_job_over_the_end_of_a_feed(self, fed: Storage) -> None:
        """A job's changes are in the feed that its table has at the commit, if any, not in the one at `stage`."""
        self.fed_target(fed, "lookup")
        job, staged = self.stage_rows(fed, WriteMode.UPSERT, [GIVEN[WriteMode.UPSERT]])
        fed.admin.create_or_update(with_feed(ITEMS, "input"))
        assert fed.commit_write(job, staged)
        assert len(read_between(fed, "items")) == 3
        job, staged = self.stage_rows(fed, WriteMode.UPSERT, [[{"id": 1, "n": 70}]])
        fed.admin.create_or_update(ITEMS.evolve(options={"changelog-producer": "none"}))
        assert fed.commit_write(job, staged)
        row = fed.table("items").read((1,))
        assert row is not None
        assert row["n"] == 70

    def test_feed_of_a_job_of_other_processes(self, fed: Storage, peer: StoreProcess) -> None:
        """A job may be staged in one process and committed in another: both processes read the same feed."""
        self.fed_target(fed, "lookup")
        since, before = fed.changes("items").latest(), state_of(fed, "items")
        job = peer.ask("begin_write", "items", "upsert", self.fresh_id())
        staged = [peer.ask("stage", job, 0, [{"id": 1, "n": 8}]), fed.stage(job, 1, 0, [batch([{"id": 5, "n": 5}])])]
        assert peer.ask("commit_write", job, staged)
        (commit,) = by_version(read_between(fed, "items", since))
        assert after(before, commit) == state_of(fed, "items")
        assert len(peer.ask("changes", "items", since, None)) == 3

    @pytest.mark.parametrize("kind", TYPES_OF_TABLES)
    def test_feed_pipes_into_a_copy(self, fed: Storage, kind: str) -> None:
        """Batches of a plan, written unchanged to a plain table in mode changes, make an equal copy of any table."""
        plain_spec, cases = TYPES_OF_TABLES[kind]
        source = with_feed(plain_spec)
        copy = TableSpecification("copy", plain_spec.fields, plain_spec.primary_key)
        self.piped(fed, source, copy)
        position = fed.changes("t").earliest()
        for start in (0, 2):
            rows = [[(sign, {"id": key, **row}) for sign, row in steps] for key, steps in enumerate(cases, start)]
            by_one_call(fed, "t", rows)
            fed.table("t").delete((start,))
            position = self.pipe(fed, position)
            assert state_of(fed, "copy") == state_of(fed, "t")

    def piped(self, storage: Storage, source: TableSpecification, copy: TableSpecification) -> None:
        """Create a table with a feed, and a plain one for its copy."""
        storage.admin.create(source)
        storage.admin.create(copy)

    def pipe(self, storage: Storage, position: FeedPosition) -> FeedPosition:
        """Write the changes since a position into the copy, by a job of a partition per split."""
        plan = storage.changes("t").plan(position, splits=3)
        job = storage.begin_write("copy", mode=WriteMode.CHANGES, job_id=str(plan.until).replace(":", "-"))
        staged = [storage.stage(job, split.index, 0, storage.read_split(split)) for split in plan.splits]
        storage.commit_write(job, staged)
        return plan.until

    def test_feed_of_a_bag_pipes_into_a_bag(self, fed: Storage) -> None:
        """The changes of a bag, by `apply_changes` or by a job, make an equal bag."""
        self.piped(fed, with_feed(BAG), BAG.evolve(name="copy"))
        fed.admin.create(BAG.evolve(name="called"))
        position = fed.changes("t").earliest()
        row: Record = {"name": "a", "x": 0.5}
        for steps in ([add(**row), add(**row), add(x=None)], [delete(**row), add(name="b")], [delete(**row)]):
            fed.table("t").apply_changes(steps)
            changes: list[Change] = read_between(fed, "t", position)
            fed.table("called").apply_changes(changes)
            position = self.pipe(fed, position)
            state: State = state_of(fed, "t")
            assert state_of(fed, "copy") == state_of(fed, "called") == state

    def test_first_version_of_partitions(self, fed: Storage) -> None:
        """Rows of a job that merge are one net change of their key, whatever partitions they were in."""
        spec, _ = TYPES_OF_TABLES["not blind"]
        fed.admin.create(with_feed(spec))
        run_job(fed, "t", [add(id=1, n=1, list="a"), add(id=1, n=2, list="b"), add(id=2, n=1, list="c")], most=1)
        (commit,) = by_version(read_between(fed, "t"))
        found = [(kind, row["id"], row["n"], row["list"]) for kind, row in images(commit)]
        assert sorted(found) == [("+I", 1, 3, "a,b"), ("+I", 2, 1, "c")]
        job = fed.begin_write("t", mode=WriteMode.CHANGES, job_id=self.fresh_id())
        fed.commit_write(job, stage_changes(fed, job, [add(id=1, n=1, list="d"), preimage(id=1, n=1, list=None)]))
        assert [kind for kind, _ in images(read_between(fed, "t"))][2:] == ["-U", "+U"]
