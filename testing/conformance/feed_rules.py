"""Rules of what change feeds hold: of every producer, verb, type of table and way to write."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter

import pytest

from structable.spi import (
    Change,
    FeedPosition,
    Field,
    InvalidFieldError,
    Range,
    RecordExistsError,
    Storage,
    TableSpecification,
    TransactionConflictError,
)

from .case import Begin
from .feed_case import (
    PRODUCERS,
    FeedCase,
    Image,
    after,
    by_version,
    difference,
    images,
    read_between,
    settled,
    text_of,
    texts,
    with_feed,
)
from .feed_keyless_rules import BAG, LOG, whole
from .feed_verbs import SEVERAL, SPACING, VERBED, VERBS, FeedVerb, rows_before
from .keyless_rules import counted
from .merge_case import WAYS, Step, add, delete, postimage, preimage
from .samples import plain

EACH = pytest.mark.parametrize("producer", PRODUCERS)
_IMPOSSIBLE = ("first-row", "input")
SKEW = dt.timedelta(minutes=5)

FIELDS = [Field.long("id"), Field.long("n"), Field.string("list"), Field.long("seq"), Field.boolean("gone")]
AGGREGATION = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
PARTIAL = {"merge-engine": "partial-update"}


def _keyed(options: dict[str, str], *indexes: str) -> TableSpecification:
    return TableSpecification("t", FIELDS, ["id"], indexes, options)


MIXED: list[list[Step]] = [
    [add(n=1, list="a"), postimage(n=2), preimage(n=2), add(n=3, list="b"), delete()],
    [add(n=1), add(n=1), postimage(n=1)],
    [delete(), preimage(n=4)],
    [delete(), add(n=4)],
    [add(n=1, list="x"), add(list="y")],
]
SEQUENCED: list[list[Step]] = [
    [add(n=1, seq=5), add(n=2, seq=4), add(n=3, seq=5), delete(seq=3), add(n=4, seq=7), delete(seq=7)],
    [delete(seq=3), add(n=1, seq=2)],
    [add(n=1), add(n=2, seq=1), postimage(n=2, seq=1)],
]
ADDS: list[list[Step]] = [[one for one in steps if one[0] in ("+I", "+U")] or [add(n=9)] for steps in MIXED]
SUMS: list[list[Step]] = [
    [add(n=1), add(n=2), postimage(n=-3), preimage(n=7), delete(n=-7)],
    [delete(n=4)],
    [add(n=5), add(n=0), add(n=None)],
    [add(n=1), preimage(n=1), add()],
]

TYPES_OF_TABLES: dict[str, tuple[TableSpecification, list[list[Step]]]] = {
    "deduplicate": (_keyed({}, "n"), MIXED),
    "ignore-delete": (_keyed({"ignore-delete": "true"}), MIXED),
    "sequence": (_keyed({"sequence.field": "seq"}), SEQUENCED),
    "soft delete": (_keyed({"soft-delete.field": "gone"}, "gone"), MIXED),
    "soft delete by sequence": (_keyed({"sequence.field": "seq", "soft-delete.field": "gone"}), SEQUENCED),
    "partial-update": (_keyed({**PARTIAL, "remove-record-on-delete": "true"}), MIXED),
    "groups": (
        _keyed({**PARTIAL, "fields.seq.sequence-group": "n,list", "fields.n.aggregate-function": "sum"}),
        SEQUENCED,
    ),
    "blind": (
        TableSpecification(
            "t", [Field.long("id"), Field.long("n"), Field.int("top")], ["id"], options=AGGREGATION
        ).evolve(options={**AGGREGATION, "fields.top.aggregate-function": "max", "remove-record-on-delete": "true"}),
        [*SUMS, [add(n=1, top=4), add(n=1, top=2), delete(n=1), add(n=3, top=1)]],
    ),
    "not blind": (_keyed({**AGGREGATION, "fields.list.aggregate-function": "listagg"}, "n"), [*SUMS, *ADDS]),
    "first-row": (_keyed({"merge-engine": "first-row", "ignore-delete": "true"}), MIXED),
}
"""Tables with merge engines, and changes of some rows, whose keys are added."""
MERGED = [(kind, producer) for kind in TYPES_OF_TABLES for producer in PRODUCERS if (kind, producer) != _IMPOSSIBLE]


class FeedRules(FeedCase):
    """A feed holds every change of its table's rows, whichever call made it."""

    def all_verbs(self, storage: Storage, producer: str, verbs: dict[str, FeedVerb], base: int) -> FeedPosition:
        """Write the rows that all verbs need, and return the position after them."""
        spec = with_feed(VERBED, producer)
        if not storage.admin.exists("t"):
            storage.admin.create(spec)
        feed = storage.changes("t")
        before = feed.latest()
        rows = [row for number in range(len(verbs)) for row in rows_before(base + SPACING * number)]
        storage.table("t").insert_many(rows)
        return settled(feed, before)

    def compare_input(self, found: list[Image], verb: FeedVerb, base: int, name: str) -> None:
        expected = verb.images(base)
        if verb.ordered:
            assert found == expected, name
        else:
            assert Counter(text_of(*one) for one in found) == Counter(text_of(*one) for one in expected), name

    @EACH
    def test_feed_of_every_verb(self, fed: Storage, producer: str) -> None:
        """Each call of the view is one commit: input has the given rows, or +U of the result; lookup, net images."""
        position = self.all_verbs(fed, producer, VERBS, 0)
        table, feed = fed.table("t"), fed.changes("t")
        for number, (name, verb) in enumerate(VERBS.items()):
            base = SPACING * number
            rows = Range((base,), (base + SPACING,))
            before = plain(table.scan(rows))
            verb.call(table, base)
            expected = difference(before, table.scan(rows), ["id"])
            since, wanted = position, verb.records if producer == "input" else expected
            position = settled(feed, since) if wanted else feed.latest()
            found = read_between(fed, "t", since, position)
            if producer == "input":
                self.compare_input(images(found), verb, base, name)
            else:
                assert texts(found) == expected, name
            assert len(by_version(found)) == bool(wanted), name

    @EACH
    def test_feed_of_one_transaction(self, fed: Storage, producer: str) -> None:
        """A transaction has one version; input has the records of its calls in their order, lookup one net change."""
        verbs = {**VERBS, **SEVERAL}
        position = self.all_verbs(fed, producer, verbs, 0)
        before = plain(fed.table("t").scan())
        with fed.transaction() as transaction:
            for number, verb in enumerate(verbs.values()):
                verb.call(transaction.table("t"), SPACING * number)
        latest = settled(fed.changes("t"), position)
        found = read_between(fed, "t", position, latest)
        assert len(by_version(found)) == 1
        if producer != "input":
            assert texts(found) == difference(before, fed.table("t").scan(), ["id"])
            return
        listed = images(found)
        for number, (name, verb) in enumerate(verbs.items()):
            base, many = SPACING * number, len(verb.records)
            self.compare_input(listed[:many], verb, base, name)
            listed = listed[many:]
        assert listed == []

    @EACH
    def test_rejected_writes_are_in_no_feed(self, fed: Storage, producer: str, begin: Begin) -> None:
        """A refused call, a transaction that is rolled back and one that conflicts leave nothing in a feed."""
        position = self.all_verbs(fed, producer, {"one": VERBS["upsert"]}, 0)
        table = fed.table("t")
        with pytest.raises(RecordExistsError):
            table.insert_many([{"id": 8}, {"id": 1}])
        with pytest.raises(InvalidFieldError):
            table.apply_changes([("+I", {"id": 8}), ("+I", {"id": 9, "n": "x"})])
        gone = begin()
        gone.table("t").upsert({"id": 8})
        gone.rollback()
        late = begin()
        late.table("t").count()
        table.upsert({"id": 1, "n": 7})
        with pytest.raises(TransactionConflictError):  # noqa: PT012 - the write may raise it, or the commit
            late.table("t").upsert({"id": 1, "n": 8})
            late.table("t").upsert({"id": 9, "n": 8})
            late.commit()
        with fed.transaction() as transaction:
            inside = transaction.table("t")
            with pytest.raises(RecordExistsError):
                inside.insert({"id": 2})
            inside.upsert({"id": 2, "n": 3})
        settled(fed.changes("t"), position)
        found = read_between(fed, "t", position)
        expected = [(row, n) for row, n in ((1, 7), (2, 3)) for _ in range(1 if producer == "input" else 2)]
        assert [row["id"] for _, row in images(found)] == [row for row, _ in expected]
        assert [row["n"] for kind, row in images(found) if kind == "+U"] == [7, 3]

    @pytest.mark.parametrize(("kind", "producer"), MERGED)
    def test_feed_of_merges(self, fed: Storage, kind: str, producer: str) -> None:
        """On every engine, input has all records of calls, transactions and jobs, even ignored ones; lookup images."""
        plain_spec, cases = TYPES_OF_TABLES[kind]
        spec = with_feed(plain_spec, producer)
        fed.admin.create(spec)
        feed = fed.changes("t")
        for place, (way, write_all) in enumerate(WAYS.items()):
            rows = [[(sign, {"id": 100 * place + at, **row}) for sign, row in steps] for at, steps in enumerate(cases)]
            since, before = feed.latest(), plain(fed.table("t").scan())
            write_all(fed, "t", rows)
            now = plain(fed.table("t").scan())
            until = settled(feed, since) if producer == "input" or counted(now) != counted(before) else feed.latest()
            found = read_between(fed, "t", since, until)
            commits = by_version(found)
            if producer == "input":
                self.compare_steps(spec, found, rows, way)
            else:
                assert after(counted(before), found) == counted(now), way
                for commit in commits:
                    assert len(images(commit)) == sum(texts(commit).values())
                if producer == "full-compaction" or len(commits) == 1:
                    assert texts(found) == difference(before, now, ["id"]), way
            if way not in ("single calls", "upsert_many"):
                assert len(commits) <= 1, way

    def compare_steps(
        self,
        spec: TableSpecification,
        found: list[Change],
        rows: list[list[Step]],
        way: str,
    ) -> None:
        """Compare the records of each row with its steps; an add by the verb upsert is +U."""
        by_upsert = way in ("single calls", "one transaction", "reading in between", "upsert_many")
        for steps in rows:
            key = steps[0][1]["id"]
            expected = [("+U" if by_upsert and sign == "+I" else str(sign), whole(spec, row)) for sign, row in steps]
            assert [one for one in images(found) if one[1]["id"] == key] == expected, f"{way}: {steps}"
        assert len(found) == sum(map(len, rows)), way

    @EACH
    def test_one_version_in_all_feeds(self, fed: Storage, producer: str) -> None:
        """A transaction over several tables has one version in all their feeds; later commits have higher ones."""
        specs = [
            with_feed(VERBED, producer).evolve(name="one"),
            with_feed(VERBED, "lookup").evolve(name="two"),
            VERBED.evolve(name="three"),
            with_feed(BAG, "input").evolve(name="four"),
        ]
        for spec in specs:
            fed.admin.create(spec)
        position = fed.changes("one").latest()
        for number in range(3):
            with fed.transaction() as transaction:
                for name in ("three", "two", "one"):
                    transaction.table(name).upsert({"id": number, "n": number})
                transaction.table("four").insert({"name": str(number)})
            position = settled(fed.changes("one"), position)
            fed.table("two").upsert({"id": 100 + number})
        versions = {
            name: [change.version or 0 for change in read_between(fed, name)] for name in ("one", "two", "four")
        }
        assert all(0 < version < 1 << 63 for version in versions["two"])
        assert versions["two"] == sorted(set(versions["two"]))
        assert versions["two"][::2] == versions["four"]
        assert len(versions["one"]) == 3
        if producer != "full-compaction":
            assert versions["one"] == versions["four"]

    def test_times_of_commits(self, fed: Storage) -> None:
        """Each change has the version and the time of its commit: a datetime in UTC by the clock of the committer."""
        fed.admin.create(with_feed(VERBED))
        began = dt.datetime.now(dt.UTC)
        with fed.transaction() as transaction:
            transaction.table("t").insert_many([{"id": key} for key in range(5)])
        fed.table("t").upsert({"id": 1, "n": 1})
        commits = by_version(read_between(fed, "t"))
        assert [len(commit) for commit in commits] == [5, 2]
        for commit in commits:
            (time,) = {change.timestamp for change in commit}
            assert time is not None
            assert time.utcoffset() == dt.timedelta(0)
            assert began - SKEW < time < dt.datetime.now(dt.UTC) + SKEW

    def test_equal_rows_are_left_out(self, fed: Storage) -> None:
        """Under lookup a row that is equal afterwards has not changed: NaN equals NaN, and 0.0 equals -0.0."""
        spec = TableSpecification("t", [Field.long("id"), Field.double("x"), Field.string("s")], ["id"])
        fed.admin.create(with_feed(spec))
        table = fed.table("t")
        table.upsert_many([{"id": 1, "x": 0.0}, {"id": 2, "x": math.nan, "s": ""}, {"id": 3}])
        position = fed.changes("t").latest()
        table.upsert({"id": 1, "x": -0.0})
        table.replace({"id": 2, "x": -math.nan, "s": ""})
        table.upsert({"id": 3, "x": None})
        table.update({"id": 2, "s": ""})
        table.apply_changes([("-U", {"id": 1}), ("+U", {"id": 1, "x": 0.0}), ("-D", {"id": 7})])
        with fed.transaction() as transaction:
            transaction.table("t").delete((3,))
            transaction.table("t").insert({"id": 3})
        assert read_between(fed, "t", position) == []
        table.upsert({"id": 2, "s": None})
        assert len(read_between(fed, "t", position)) == 2

    def test_feeds_add_no_conflicts(self, fed: Storage, begin: Begin) -> None:
        """Transactions that write different rows of a table with a feed all commit, in whatever order."""
        fed.admin.create(with_feed(VERBED))
        fed.admin.create(with_feed(LOG).evolve(name="log"))
        fed.table("t").insert_many([{"id": key, "n": 0} for key in range(6)])
        position = fed.changes("t").latest()
        opened = [begin() for _ in range(3)]
        for number, transaction in enumerate(opened):
            transaction.table("t").upsert({"id": number, "n": 1})
            transaction.table("t").increment((3 + number,), "n")
            transaction.table("log").insert({"name": str(number)})
        for place in (1, 2, 0):
            opened[place].commit()
        commits = by_version(read_between(fed, "t", position))
        written = [sorted(row["id"] for kind, row in images(commit) if kind == "+U") for commit in commits]
        assert written == [[1, 4], [2, 5], [0, 3]]
        assert [row["name"] for _, row in images(read_between(fed, "log"))] == ["1", "2", "0"]

    @EACH
    def test_transaction_that_changes_nothing(self, fed: Storage, producer: str) -> None:
        """Reads and empty transactions leave nothing in a feed."""
        position = self.all_verbs(fed, producer, {"one": VERBS["upsert"]}, 0)
        with fed.transaction() as transaction:
            transaction.table("t").count()
        with fed.transaction(read_only=True) as transaction:
            transaction.table("t").read((1,))
        fed.table("t").upsert_many([])
        fed.table("t").apply_changes([])
        assert read_between(fed, "t", position) == []
