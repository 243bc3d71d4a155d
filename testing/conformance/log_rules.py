"""Rules of logs: tables that keep no rows, whose changes are numbered within each commit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from structable.spi import (
    Change,
    ChangeFeed,
    ChangesLostError,
    Field,
    InvalidFieldError,
    InvalidSpecificationError,
    Isolation,
    Range,
    SchemaIncompatibleError,
    Storage,
    StructuredTable,
    TableSpecification,
    TableStatistics,
    Transaction,
    UnsupportedOperationError,
    WriteMode,
)

from .case import Begin, OpenSession
from .feed_case import FeedCase, all_or_lost, by_version, images, planned, read_between, with_feed
from .samples import ITEMS, Record
from .write_jobs import batch

LOG = TableSpecification("log", [Field.string("name"), Field.long("n")], options={"write-mode": "log"})
READ_ITS_CHANGES = "a log keeps no rows: read its changes"

REFUSED: dict[str, Callable[[StructuredTable], object]] = {
    "upsert": lambda table: table.upsert({"name": "a"}),
    "upsert_many": lambda table: table.upsert_many([{"name": "a"}]),
    "replace": lambda table: table.replace({"name": "a"}),
    "replace_many": lambda table: table.replace_many([{"name": "a"}]),
    "update": lambda table: table.update({"name": "a"}),
    "update_many": lambda table: table.update_many([{"name": "a"}]),
    "update_all": lambda table: table.update_all(Range.all(), {"n": 1}),
    "read": lambda table: table.read(()),
    "multi_read": lambda table: table.multi_read([()]),
    "compare_and_swap": lambda table: table.compare_and_swap((), "n", None, 1),
    "increment": lambda table: table.increment((), "n"),
    "increment_many": lambda table: table.increment_many([((), "n", 1)]),
    "delete": lambda table: table.delete(()),
    "delete_many": lambda table: table.delete_many([()]),
    "delete_all": lambda table: table.delete_all(Range.all()),
    "scan": lambda table: table.scan(),
    "scan with a limit": lambda table: table.scan(limit=1),
    "multi_scan": lambda table: table.multi_scan([Range.all()]),
    "scan_index": lambda table: table.scan_index("n", 1),
    "count": lambda table: table.count(),
    "explain": lambda table: table.explain(),
}
"""The calls that a log refuses."""

INVALID: dict[str, dict[str, Any]] = {
    "a primary key": {"primary_key": ["name"]},
    "an index": {"indexes": ["name"]},
    "no producer": {"options": {"changelog-producer": "none"}},
    "the producer lookup": {"options": {"changelog-producer": "lookup"}},
    "the producer full-compaction": {"options": {"changelog-producer": "full-compaction"}},
    "a merge engine": {"options": {"merge-engine": "aggregation"}},
}


def _rows_of(changes: list[Change]) -> list[Record]:
    return [dict(change.row) for change in changes]


def numbered(changes: list[Change]) -> list[list[int | None]]:
    """Return the numbers of the changes of each commit."""
    return [[change.number for change in commit] for commit in by_version(changes)]


def _named(*names: str) -> list[Record]:
    return [{"name": name, "n": None} for name in names]


class LogRules(FeedCase):
    """A log has its rows in its change feed alone."""

    def make_log(self, storage: Storage, spec: TableSpecification = LOG) -> tuple[StructuredTable, ChangeFeed]:
        storage.admin.create(spec)
        return storage.table(spec.name), storage.changes(spec.name)

    @pytest.mark.parametrize("change", INVALID)
    def test_specification_of_a_log(self, change: str) -> None:
        """A log has no key, no index and no merge engine, and the producer is input, which may be left out."""
        evolved = {**INVALID[change], "options": {**LOG.options, **INVALID[change].get("options", {})}}
        with pytest.raises(InvalidSpecificationError):
            LOG.evolve(**evolved)
        assert LOG.table_options == LOG.evolve(options={**LOG.options, "changelog-producer": "input"}).table_options

    def test_inserts_into_a_log(self, fed: Storage) -> None:
        """Inserted rows are in the feed by commit, within a commit in the order of the calls, numbered from 0."""
        table, feed = self.make_log(fed)
        since = feed.latest()
        table.insert({"name": "a"})
        table.insert_many(_named("b", "b", "c"))
        table.apply_changes([("+I", row) for row in _named("d", "e")])
        table.insert_many([])
        with fed.transaction() as transaction:
            inside = transaction.table("log")
            inside.insert({"n": 1})
            inside.insert_many(_named("f", "g"))
            inside.apply_changes([("insert", {})])
            inside.insert({"n": 2, "name": "h"})
        found = read_between(fed, "log", since)
        assert {kind for kind, _ in images(found)} == {"+I"}
        assert _rows_of(found) == [
            *_named("a", "b", "b", "c", "d", "e"),
            *({"name": None, "n": 1}, *_named("f", "g"), {"name": None, "n": None}, {"name": "h", "n": 2}),
        ]
        assert numbered(found) == [[0], [0, 1, 2], [0, 1], [0, 1, 2, 3, 4]]
        assert fed.statistics("log") == TableStatistics(0, 0, exact=True)

    def test_numbers_are_of_each_table(self, fed: Storage) -> None:
        """A transaction numbers the changes of each table separately, if the table's producer is input."""
        fed.admin.create(LOG)
        fed.admin.create(with_feed(ITEMS, "input"))
        with fed.transaction() as transaction:
            log, items = transaction.table("log"), transaction.table("items")
            for number in range(3):
                items.upsert({"id": number})
                log.insert({"n": number})
            items.delete((1,))
        job = fed.begin_write("items", mode=WriteMode.UPSERT, job_id=self.fresh_id())
        fed.commit_write(job, [fed.stage(job, 0, 0, [batch([{"id": 7}, {"id": 8}])])])
        assert numbered(read_between(fed, "log")) == [[0, 1, 2]]
        assert numbered(read_between(fed, "items")) == [[0, 1, 2, 3], [0, 1]]

    def test_changes_without_numbers(self, fed: Storage) -> None:
        """Changes of another producer have no number, and are not read after one."""
        feed = self.fed_items(fed, 1)
        assert [change.number for change in read_between(fed, "items")] == [None]
        with pytest.raises(UnsupportedOperationError):
            feed.read(feed.latest(), after=0)

    @pytest.mark.parametrize("operation", REFUSED)
    def test_what_a_log_refuses(self, fed: Storage, operation: str) -> None:
        """Every other operation is refused when called, and the transaction continues."""
        table, feed = self.make_log(fed)
        with pytest.raises(UnsupportedOperationError, match=READ_ITS_CHANGES):
            REFUSED[operation](table)
        with fed.transaction() as transaction:
            inside = transaction.table("log")
            inside.insert({"name": "a"})
            with pytest.raises(UnsupportedOperationError, match=READ_ITS_CHANGES):
                REFUSED[operation](inside)
        assert _rows_of(list(feed.read())) == _named("a")

    def test_plans_and_jobs_of_a_log(self, fed: Storage) -> None:
        """No scan of a log is planned, and its jobs insert."""
        self.make_log(fed)
        with pytest.raises(UnsupportedOperationError, match=READ_ITS_CHANGES):
            fed.plan_scan("log")
        for mode in set(WriteMode) - {WriteMode.INSERT}:
            with pytest.raises(UnsupportedOperationError, match=READ_ITS_CHANGES):
                fed.begin_write("log", mode=mode, job_id=self.fresh_id())

    def test_rows_that_a_log_refuses(self, fed: Storage) -> None:
        """A call is all or nothing: one wrong row, or a kind that is not +I, and nothing is appended."""
        table, feed = self.make_log(fed)
        for kind in ("-U", "+U", "-D"):
            with pytest.raises(UnsupportedOperationError):
                table.apply_changes([("+I", {"name": "a"}), (kind, {"name": "a"})])
        for row in ({"name": 1}, {"x": 1}, {"_id": b"1"}, {"n": 1 << 63}):
            with pytest.raises(InvalidFieldError):
                table.insert_many([{"name": "a"}, row])
        with fed.transaction() as transaction:
            inside = transaction.table("log")
            inside.insert({"name": "b"})
            with pytest.raises(InvalidFieldError):
                inside.insert_many([{"name": "a"}, {"n": "1"}])
        assert _rows_of(list(feed.read())) == _named("b")

    def test_what_is_rolled_back_is_not_in_a_log(self, fed: Storage, begin: Begin) -> None:
        """A transaction that is rolled back, and a job that is aborted, leave nothing."""
        _, feed = self.make_log(fed)
        transaction = begin()
        transaction.table("log").insert({"name": "a"})
        transaction.rollback()
        job = fed.begin_write("log", mode=WriteMode.INSERT, job_id=self.fresh_id())
        fed.stage(job, 0, 0, [batch(_named("b"), spec=LOG)])
        fed.abort_write(job)
        assert list(feed.read()) == []

    def append_number(self, number: int, transaction: Transaction) -> None:
        transaction.table("log").insert({"n": number})

    @pytest.mark.parametrize("isolation", list(Isolation))
    def test_writers_of_a_log_never_conflict(self, fed: Storage, session: OpenSession, isolation: Isolation) -> None:
        """Transactions and jobs append at the same time; a transaction that loses a conflict appends nothing."""
        _, feed = self.make_log(fed)
        fed.admin.create(ITEMS)
        sessions = [session(isolation) for _ in range(3)]
        for each in sessions:
            each.step(lambda transaction: transaction.table("items").read((100,)))
        for number, each in enumerate(sessions):
            each.step(partial(self.append_number, number))
        job = fed.begin_write("log", mode=WriteMode.INSERT, job_id=self.fresh_id())
        fed.commit_write(job, [fed.stage(job, 0, 0, [batch([{"n": 7}], spec=LOG)])])
        fed.table("log").insert({"n": 8})
        assert [each.commit() for each in reversed(sessions)] == [True] * 3
        assert [row["n"] for row in _rows_of(list(feed.read()))] == [7, 8, 2, 1, 0]
        loser = session(isolation)
        loser.step(lambda transaction: transaction.table("items").read((1,)))
        loser.step(partial(self.append_number, 9))
        fed.table("items").upsert({"id": 1, "n": 1})
        loser.step(lambda transaction: transaction.table("items").upsert({"id": 1, "n": 2}))
        assert not loser.commit()
        assert len(list(feed.read())) == 5

    @pytest.mark.parametrize("spec", [LOG, with_feed(ITEMS, "input")], ids=["log", "input"])
    @pytest.mark.parametrize("size", [1, 15_000])
    def test_reading_after_a_number(self, fed: Storage, spec: TableSpecification, size: int) -> None:
        """A reader that stopped inside a commit continues after its last change, whatever was committed since."""
        feed = self.make_log(fed, spec)[1]
        texts = "name" if spec is LOG else "note"
        rows: list[Record] = [{texts: Random(number).randbytes(size).hex()} for number in range(10)]
        if spec is not LOG:
            rows = [{**row, "id": number} for number, row in enumerate(rows)]
        with fed.transaction() as transaction:
            inside = transaction.table(spec.name)
            for row in rows[:3]:
                inside.insert(row)
            inside.insert_many(rows[3:])
        with fed.transaction() as transaction:
            transaction.table(spec.name).insert({"id": 99} if spec is not LOG else {})
        everything = list(feed.read())
        version = everything[0].version
        assert version is not None
        since = feed.position(version)
        for number in range(len(rows)):
            assert list(feed.read(since, after=number)) == everything[number + 1 :]
            assert list(feed.read(since, since, after=number)) == everything[number + 1 : 10]
            with feed.read(since, columns=[texts], after=number) as changes:
                assert next(changes).number == (number + 1 if number < 9 else 0)
        for number in (10, 1 << 40, (1 << 63) - 1):
            assert list(feed.read(since, after=number)) == everything[10:]
        assert list(feed.read(feed.latest(), since, after=0)) == []

    def test_wrong_numbers_to_read_after(self, fed: Storage) -> None:
        """`after` is the number of a change, and comes with the position of its commit."""
        table, feed = self.make_log(fed)
        table.insert({})
        for wrong in (-1, True, "1", 1.0, 1 << 63):
            with pytest.raises(ValueError, match="after"):
                feed.read(feed.latest(), after=wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="since"):
            feed.read(after=0)

    def test_rest_of_an_expired_commit(self, fed: Storage) -> None:
        """Reading the rest of a commit at or below the floor is `ChangesLostError`; after a whole commit it is not."""
        table, feed = self.make_log(fed)
        for _ in range(2):
            table.insert_many(_named("a", "b", "c"))
        first, second = (commit[0].version for commit in by_version(list(feed.read())))
        assert first is not None
        assert second is not None
        one, two = feed.position(first), feed.position(second)
        begun = feed.read(one, after=0)
        feed.expire(one)
        assert _rows_of(list(feed.read(one))) == _named("a", "b", "c")
        for number in (0, 2, 5):
            with pytest.raises(ChangesLostError) as lost:
                feed.read(one, after=number)
            assert (lost.value.position, lost.value.earliest) == (one, one)
        all_or_lost(lambda: _rows_of(list(begun)), _named("b", "c", "a", "b", "c"))
        assert _rows_of(list(feed.read(two, after=0))) == _named("b", "c")
        feed.expire(two)
        assert list(feed.read(two)) == []
        for position in (one, two):
            with pytest.raises(ChangesLostError):
                feed.read(position, after=2)

    def test_order_of_a_job(self, fed: Storage) -> None:
        """The rows of a job come by partition number, then as staged, whatever the order of staging; equal ones too."""
        _, feed = self.make_log(fed)
        partitions = [[list(range(number, number + 40, 2)) + [number] * 3 for number in (10, 0)] for _ in range(2)]
        job = fed.begin_write("log", mode=WriteMode.INSERT, job_id=self.fresh_id())
        staged = [
            fed.stage(job, number, 0, [batch([{"n": n} for n in some], spec=LOG) for some in partitions[number]])
            for number in (1, 0)
        ]
        lost = fed.stage(job, 0, 1, [batch(_named("lost"), spec=LOG)])
        assert fed.commit_write(job, [lost, *staged])
        assert not fed.commit_write(job, staged)
        expected = [n for some in partitions for batch_ in some for n in batch_]
        found = list(feed.read())
        assert [change.row["n"] for change in found] == expected
        assert numbered(found) == [list(range(len(expected)))]
        assert [row["n"] for row in planned(fed, feed.plan(splits=3))] == expected

    @pytest.mark.parametrize("by_job", [False, True], ids=["transaction", "job"])
    def test_large_commit_in_parts(self, fed: Storage, by_job: bool) -> None:
        """A commit of many rows can be read in parts, each from the end of the one before, with the same result."""
        table, feed = self.make_log(fed)
        rows: list[Record] = [{"name": "x" * (n % 200), "n": n} for n in range(20_000)]
        if by_job:
            job = fed.begin_write("log", mode=WriteMode.INSERT, job_id=self.fresh_id())
            halves = [rows[:9_000], rows[9_000:]]
            fed.commit_write(job, [fed.stage(job, n, 0, [batch(some, spec=LOG)]) for n, some in enumerate(halves)])
        else:
            table.insert_many(rows)
        table.insert({"n": -1})
        version = next(iter(feed.read())).version
        assert version is not None
        position, number, found = feed.position(version), 0, [next(iter(feed.read()))]
        while found[-1].version == version:
            with feed.read(position, after=number) as changes:
                found += [change for change, _ in zip(changes, range(3_000), strict=False)]
            number = found[-1].number or 0
        assert _rows_of(found[:20_000]) == rows
        assert [change.number for change in found[:20_000]] == list(range(20_000))
        assert _rows_of(found[20_000:21_000]) == [{"name": None, "n": -1}]

    def test_restart_of_a_feed(self, fed: Storage) -> None:
        """A feed that restarts loses all earlier positions and its changes; later changes are in the new feed."""
        table, feed = self.make_log(fed)
        table.insert_many(_named("a", "b"))
        before, begun = feed.latest(), feed.read()
        plan = feed.plan()
        begin = feed.restart()
        assert begin.feed != before.feed
        assert begin == feed.earliest() <= feed.latest()
        for lost in (partial(feed.read, before), partial(feed.read, before, after=0), partial(feed.advance, before, 1)):
            with pytest.raises(ChangesLostError) as error:
                lost()
            assert error.value.earliest == begin
        for late in (
            lambda: _rows_of(list(begun)),
            lambda: [{"name": row["name"], "n": row["n"]} for row in planned(fed, plan)],
        ):
            all_or_lost(late, _named("a", "b"))
        table.insert({"name": "c"})
        assert _rows_of(list(feed.read(begin))) == _named("c") == _rows_of(list(feed.read()))

    def test_restart_of_images(self, fed: Storage) -> None:
        """Any feed can restart: rows stay, and are not in the new feed."""
        feed = self.fed_items(fed, 3)
        before = feed.latest()
        assert feed.restart() == feed.earliest()
        with pytest.raises(ChangesLostError):
            feed.read(before)
        fed.table("items").delete((1,))
        assert [kind for kind, _ in images(feed.read())] == ["-D"]
        assert fed.table("items").count() == 2
        fed.admin.create(ITEMS.evolve(name="unfed"))
        with pytest.raises(UnsupportedOperationError):
            fed.changes("unfed").restart()

    def test_schema_changes_of_a_log(self, fed: Storage) -> None:
        """A log may get new and wider fields, keeps its retention, and cannot become another type of table."""
        spec = TableSpecification(
            "log", [Field.int("n")], options={"write-mode": "log", "changelog.time-retained": "3 d"}
        )
        table, feed = self.make_log(fed, spec)
        table.insert({"n": 1})
        before = feed.earliest()
        fed.admin.create_or_update(LOG)
        table.insert({"n": 1 << 40, "name": "a"})
        assert _rows_of(list(feed.read(before))) == [{"n": 1, "name": None}, {"n": 1 << 40, "name": "a"}]
        found = fed.admin.get_specification("log").table_options
        assert (found.log, found.time_retained) == (True, 3 * 86_400)
        for options in ({"write-mode": "append-only"}, {"write-mode": "change-log", "changelog-producer": "input"}):
            with pytest.raises(SchemaIncompatibleError):
                fed.admin.create_or_update(LOG.evolve(options=options))
        fed.admin.create(LOG.evolve(name="bag", options={"write-mode": "change-log"}))
        with pytest.raises(SchemaIncompatibleError):
            fed.admin.create_or_update(LOG.evolve(name="bag"))
        fed.admin.drop("log")
        fed.admin.create(LOG)
        assert list(fed.changes("log").read()) == []
