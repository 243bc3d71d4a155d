"""Rules of tables without a key: append-only tables, and change-log tables, which are bags of whole rows."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from structable.spi import (
    Change,
    Field,
    FieldSizeLimitError,
    FieldType,
    InvalidFieldError,
    Range,
    RowKind,
    Storage,
    StructuredTable,
    TableSpecification,
    Transaction,
    UnsupportedOperationError,
    WriteMode,
    col,
)

from .case import Begin, OpenSession
from .merge_case import MergeCase, Step, add, delete, postimage, preimage, run_job
from .model import comparable
from .samples import EXTREMES, TYPES, Record
from .write_jobs import batch

FIELDS = [Field.string("name"), Field.int("n"), Field.double("cost")]
LOG = TableSpecification("log", FIELDS, indexes=["n"], options={"write-mode": "append-only"})
BAG = TableSpecification("bag", FIELDS, indexes=["n"], options={"write-mode": "change-log"})
BOTH = pytest.mark.parametrize("spec", [LOG, BAG], ids=lambda spec: spec.options["write-mode"])
ROWS: list[Record] = [{"name": "ab"[number % 2], "n": number % 3, "cost": None} for number in range(6)]

UNSUPPORTED: dict[str, Callable[[StructuredTable], object]] = {
    "upsert": lambda table: table.upsert({"name": "a"}),
    "upsert_many": lambda table: table.upsert_many([{"name": "a"}]),
    "replace": lambda table: table.replace({"name": "a"}),
    "replace_many": lambda table: table.replace_many([{"name": "a"}]),
    "update": lambda table: table.update({"name": "a"}),
    "read": lambda table: table.read(()),
    "multi_read": lambda table: table.multi_read([()]),
    "compare_and_swap": lambda table: table.compare_and_swap((), "n", None, 1),
    "increment": lambda table: table.increment((), "n"),
    "increment_many": lambda table: table.increment_many([((), "n", 1)]),
    "delete": lambda table: table.delete(()),
    "delete_many": lambda table: table.delete_many([()]),
    "update_all": lambda table: table.update_all(Range.all(), {"n": 1}),
}
"""The calls that a table without a key refuses."""

BOUNDED: dict[str, Callable[[StructuredTable], object]] = {
    "scan": lambda table: table.scan(Range.prefix(("a",))),
    "scan by mapping": lambda table: table.scan(Range.at_least({"name": "a"})),
    "multi_scan": lambda table: table.multi_scan([Range.all(), Range((1,), None)]),
    "scan_index": lambda table: table.scan_index("n", 1, range=Range.below((b"",))),
    "count": lambda table: table.count([Range.prefix(("a",))]),
    "explain": lambda table: table.explain(Range.prefix(("a",))),
}

REFUSED: dict[str, Callable[[StructuredTable], object]] = {
    "insert of an unknown field": lambda table: table.insert({"name": "a", "x": 1}),
    "insert of the hidden key": lambda table: table.insert({"name": "a", "_id": b"1"}),
    "insert of a wrong value": lambda table: table.insert({"name": 1}),
    "insert_many": lambda table: table.insert_many([{"name": "a"}, {"name": 1}]),
    "apply_changes": lambda table: table.apply_changes([("+I", {"name": "a"}), ("+I", {"n": "a"})]),
    "a kind that is none": lambda table: table.apply_changes([("+I", {"name": "a"}), ("+X", {"name": "a"})]),
    "an oversized index": lambda table: table.insert_many([{"name": "a"}, {"n": 2**31}]),
    "a filter on the hidden key": lambda table: table.scan(where=col("_id").is_null()),
    "the hidden key as a column": lambda table: table.scan(columns=["_id"]),
    "the hidden key as an order": lambda table: table.scan(order_by="_id"),
    "order by a field without an index": lambda table: table.scan(order_by="name"),
    "no columns": lambda table: table.scan(columns=[]),
}


def counted(rows: Iterable[Mapping[str, Any]]) -> Counter[tuple[tuple[str, Any], ...]]:
    """Return how often each row occurs; the order does not count, and NaN equals NaN."""
    return Counter(tuple(sorted(comparable(row).items())) for row in rows)


class KeylessRules(MergeCase):
    """A table without a key is append-only, or a bag of rows."""

    def keyless(self, storage: Storage, spec: TableSpecification, rows: Iterable[Record] = ()) -> StructuredTable:
        """Create a table, with rows."""
        storage.admin.create(spec)
        storage.table(spec.name).insert_many(rows)
        return storage.table(spec.name)

    def apply(self, changes: list[tuple[str, Record]], transaction: Transaction) -> None:
        transaction.table("bag").apply_changes(changes)

    @BOTH
    def test_rows_without_a_key(self, typed: Storage, spec: TableSpecification) -> None:
        """Equal rows are kept separately; a row has the fields of the table and no key."""
        table = self.keyless(typed, spec)
        table.insert({"name": "a", "n": 1})
        more: list[Record] = [{"name": "a", "n": 1}, {"n": 2}, {}]
        table.insert_many(iter(more))
        table.apply_changes([("+I", {"name": "a", "n": 1}), Change(RowKind.INSERT, {"cost": 0.5})])
        nulls: Record = {"name": None, "n": None, "cost": None}
        once: list[Record] = [{**nulls, "n": 2}, nulls, {**nulls, "cost": 0.5}]
        assert counted(table.scan()) == counted([{**nulls, "name": "a", "n": 1}] * 3 + once)
        assert {row.key for row in table.scan()} == {()}
        assert {tuple(row) for row in table.scan()} == {("name", "n", "cost")}
        assert table.specification == spec
        assert table.count() == 6

    @BOTH
    def test_keyless_scans(self, typed: Storage, spec: TableSpecification, begin: Begin) -> None:
        """`scan`, `multi_scan`, `scan_index`, `count` and `explain` work over committed rows and own writes."""
        self.keyless(typed, spec, ROWS[:3])
        committed = self.keyless(typed, spec.evolve(name="other"), ROWS)
        inside = begin().table(spec.name)
        inside.insert_many(ROWS[3:])
        for table in (inside, committed):
            assert counted(table.scan()) == counted(ROWS)
            assert counted(table.scan(where=col("name") == "a")) == counted(ROWS[::2])
            assert counted(table.multi_scan([Range.all(), Range.prefix(()), Range()])) == counted(ROWS)
            assert counted(table.scan_index("n", 1, where=col("name") == "b")) == counted(ROWS[1:2])
            assert len(list(table.scan(limit=4))) == len(list(table.multi_scan([Range.all()], limit_per_range=4))) == 4
            assert [dict(row) for row in table.scan(columns=["n"], order_by="n")] == [
                {"n": n} for n in (0, 0, 1, 1, 2, 2)
            ]
            assert [row["n"] for row in table.scan(order_by="n", reverse=True, limit=3)] == [2, 2, 1]
            assert {tuple(row) for row in table.scan_index("n", 1, columns=["cost"])} == {("cost",)}
            assert (table.count(), table.count([]), table.count([Range.all(), Range.all()])) == (6, 0, 6)
            assert table.count(where=col("cost").is_null() & (col("n") > 0)) == 4
            assert "_id" not in str(table.explain(where=col("n") == 1))

    @BOTH
    def test_keyless_plans(self, typed: Storage, spec: TableSpecification) -> None:
        """`plan_scan` returns all rows, each once, with the table's columns alone."""
        rows: list[Record] = [{"name": str(number), "n": number % 7, "cost": 0.5} for number in range(500)]
        self.keyless(typed, spec, rows)
        with typed.plan_scan(spec.name, splits=4) as plan:
            assert tuple(plan.columns) == ("name", "n", "cost")
            found = [row for split in plan.splits for one in typed.read_split(split) for row in one.to_pylist()]
        assert counted(found) == counted(rows)
        with typed.plan_scan(spec.name, where=col("n") == 3, columns=["n", "name"]) as plan:
            batches = [one for split in plan.splits for one in typed.read_split(split)]
        assert {tuple(one.schema.names) for one in batches} == {("n", "name")}
        assert sum(one.num_rows for one in batches) == sum(row["n"] == 3 for row in rows)

    @BOTH
    def test_verbs_that_need_a_key(self, typed: Storage, spec: TableSpecification) -> None:
        """All other verbs are `UnsupportedOperationError` that names the table's type, and nothing is written."""
        table = self.keyless(typed, spec, ROWS)
        with typed.transaction() as transaction:
            for view in (table, transaction.table(spec.name)):
                for verb, call in UNSUPPORTED.items():
                    with pytest.raises(UnsupportedOperationError, match=spec.options["write-mode"]):
                        call(view)
                    assert view.count() == len(ROWS), verb

    @BOTH
    def test_bounds_of_keyless_tables(self, typed: Storage, spec: TableSpecification) -> None:
        """A bound that is not empty is `InvalidFieldError`, since no field is a key field."""
        table = self.keyless(typed, spec, ROWS)
        for name, call in BOUNDED.items():
            with pytest.raises(InvalidFieldError):
                call(table)
            assert table.count([Range.prefix(())]) == len(ROWS), name

    @BOTH
    def test_bad_arguments_of_keyless_tables(self, typed: Storage, spec: TableSpecification) -> None:
        """Rows and arguments that do not fit are `InvalidFieldError` when the method is called; nothing is written."""
        table = self.keyless(typed, spec, ROWS)
        for name, call in REFUSED.items():
            with pytest.raises(InvalidFieldError):
                call(table)
            assert table.count() == len(ROWS), name
        with pytest.raises(FieldSizeLimitError):
            table.insert_many([{"name": "a"}, {"name": "x" * 9_000_000}])
        assert table.count() == len(ROWS)

    def test_append_only_takes_inserts_alone(self, typed: Storage) -> None:
        """An append-only table takes +I only, and no `delete_all`."""
        table = self.keyless(typed, LOG, ROWS)
        for kind in ("-U", "+U", "-D", RowKind.DELETE, "update_postimage"):
            with pytest.raises(UnsupportedOperationError, match="append-only"):
                table.apply_changes([("+I", ROWS[0]), (kind, ROWS[0])])
        with pytest.raises(UnsupportedOperationError, match="append-only"):
            table.delete_all(Range.all())
        assert counted(table.scan()) == counted(ROWS)

    def test_bag(self, typed: Storage) -> None:
        """In a bag, +I and +U put one row, -U and -D take one equal row away; if there is none, nothing happens."""
        table = self.keyless(typed, BAG)
        one: Record = {"name": "a", "n": 1}
        table.apply_changes([("+I", one), ("+U", one), ("+I", {"name": "b"})])
        table.apply_changes([("-D", one)])
        assert counted(table.scan(columns=["name", "n"])) == counted([one, {"name": "b", "n": None}])
        table.apply_changes([("-U", {"name": "a"}), ("-D", {"name": "c"}), ("-D", {**one, "cost": 0.0}), ("-U", one)])
        assert counted(table.scan(columns=["name"])) == counted([{"name": "b"}])
        table.apply_changes([("-D", one), ("+I", one)])
        assert table.count() == 2
        table.apply_changes([("+I", one), ("-D", one), ("-D", one), ("-D", one)])
        assert counted(table.scan(columns=["name"])) == counted([{"name": "b"}])

    def test_bag_in_one_transaction(self, typed: Storage) -> None:
        """A transaction takes away rows of its snapshot and its own, and their index entries; its reads see that."""
        table = self.keyless(typed, BAG, ROWS)
        with typed.transaction() as transaction:
            inside = transaction.table("bag")
            inside.insert_many([ROWS[1], {"n": 9}])
            for left in (1, 0, 0):
                inside.apply_changes([("-D", ROWS[1])])
                assert len(list(inside.scan_index("n", 1, where=col("name") == "b"))) == left
            inside.apply_changes([("-U", {"n": 9}), ("+U", {"n": 8})])
            assert inside.count() == 6
        assert counted(table.scan(columns=["n"])) == counted({"n": n} for n in (0, 0, 1, 2, 2, 8))
        assert table.count(where=col("n") == 9) == len(list(table.scan_index("n", 9))) == 0

    @pytest.mark.parametrize("kind", list(EXTREMES), ids=lambda kind: kind.value)
    def test_equal_rows_of_a_bag(self, typed: Storage, kind: FieldType) -> None:
        """Rows are equal if every field is: nulls are equal, NaN equals NaN, 0.0 equals -0.0."""
        spec = TableSpecification(
            "bag", [TYPES.field(kind.value), Field.int("n")], options={"write-mode": "change-log"}
        )
        values = [*EXTREMES[kind], None]
        table = self.keyless(typed, spec, [{kind.value: value, "n": 1} for value in values])
        for place, value in enumerate(values):
            table.apply_changes([("-D", {kind.value: value, "n": 2}), ("-D", {kind.value: value})])
            assert table.count() == len(values) - place
            table.apply_changes([("-D", {kind.value: value, "n": 1})])
            assert table.count() == len(values) - place - 1, value

    def test_values_in_other_notations_are_equal(self, typed: Storage) -> None:
        """Zeros of either sign, decimals of another exponent, instants of another zone, ints as floats are equal."""
        spec = TableSpecification("bag", TYPES.fields, options={"write-mode": "change-log"})
        zone = dt.timezone(dt.timedelta(hours=5))
        pairs: list[tuple[Record, Record]] = [
            ({"double": 0.0, "float": -0.0}, {"double": -0.0, "float": 0.0}),
            ({"decimal": Decimal("1.50")}, {"decimal": Decimal("1.5")}),
            ({"decimal": Decimal("1E+3")}, {"decimal": Decimal("1000.000")}),
            ({"decimal": Decimal("0.0")}, {"decimal": Decimal("-0")}),
            (
                {"timestamp": dt.datetime(2024, 1, 1, 5, tzinfo=zone)},
                {"timestamp": dt.datetime(2024, 1, 1, tzinfo=dt.UTC)},
            ),
            ({"double": 3, "float": 3}, {"double": 3.0, "float": 3.0}),
            ({"float": 0.1}, {"float": 0.10000000149011612}),
            ({"double": math.nan}, {"double": -math.nan}),
        ]
        table = self.keyless(typed, spec)
        for one, other in pairs:
            for put, taken in ((one, other), (other, one)):
                table.apply_changes([("+I", put), ("-D", taken)])
                table.insert(put)
                table.apply_changes([("-D", taken)])
                assert table.count() == 0, put

    def test_bag_after_a_schema_change(self, typed: Storage) -> None:
        """Fields that are added or widened later make no difference to which rows are equal."""
        before = [Field.int("n"), Field.float("x"), Field.byte("small")]
        after = [Field.string("new"), Field.long("n"), Field.double("x"), Field.short("small")]
        spec = TableSpecification("bag", before, options={"write-mode": "change-log"})
        rows: list[Record] = [{"n": n, "x": x, "small": n} for n in (-1, 0, 100, None) for x in (0.1, None)]
        table = self.keyless(typed, spec, rows)
        typed.admin.create_or_update(spec.evolve(fields=after))
        table.insert_many({**row, "new": "x"} for row in rows)
        for row in rows:
            kept = {**row, "x": None if row["x"] is None else 0.10000000149011612}
            table.apply_changes([("-D", kept), ("-D", kept), ("-D", {**row, "new": "x"})])
        assert table.count() == 0

    def test_delete_all_of_a_bag(self, typed: Storage) -> None:
        """`delete_all` of a change-log table takes the range of all rows only, and may take a condition."""
        table = self.keyless(typed, BAG, ROWS)
        with pytest.raises(InvalidFieldError):
            table.delete_all(Range.prefix(("a",)))
        assert table.delete_all(Range.all(), where=col("name") == "a") == 3
        assert counted(table.scan()) == counted(ROWS[1::2])
        assert table.delete_all(Range.all()) == 3
        assert (table.count(), list(table.scan_index("n", 1))) == (0, [])

    @BOTH
    def test_keyless_insert_jobs(self, typed: Storage, spec: TableSpecification) -> None:
        """Mode insert adds rows, equal ones too: each partition's last attempt counts, and a repeated job adds none."""
        table = self.keyless(typed, spec, ROWS)
        job = typed.begin_write(spec.name, mode=WriteMode.INSERT, job_id=self.fresh_id())
        lost = typed.stage(job, 0, 0, [batch(ROWS, spec=spec)])
        staged = [
            typed.stage(job, 0, 1, [batch(ROWS, spec=spec), batch(ROWS, spec=spec)]),
            typed.stage(job, 1, 0, [batch([{"n": 7}], spec=spec)]),
        ]
        assert table.count() == len(ROWS)
        assert typed.commit_write(job, [lost, *staged])
        assert not typed.commit_write(job, [lost, *staged])
        assert counted(table.scan()) == counted([*ROWS * 3, {"name": None, "n": 7, "cost": None}])
        assert len(list(table.scan_index("n", 7))) == 1

    @BOTH
    def test_keyless_job_modes(self, typed: Storage, spec: TableSpecification) -> None:
        """Modes except insert, and changes on change-log tables, are `UnsupportedOperationError` at `begin_write`."""
        self.keyless(typed, spec)
        allowed = {WriteMode.INSERT} if spec is LOG else {WriteMode.INSERT, WriteMode.CHANGES}
        for mode in set(WriteMode) - allowed:
            with pytest.raises(UnsupportedOperationError, match=spec.options["write-mode"]):
                typed.begin_write(spec.name, mode=mode, job_id=self.fresh_id())

    def test_change_jobs_of_a_bag(self, typed: Storage) -> None:
        """Mode changes puts rows and takes them away, in the order of partition and position."""
        table = self.keyless(typed, BAG, [*ROWS, ROWS[0]])
        one: Record = {"name": "z", "n": 9, "cost": math.nan}
        steps: list[Step] = [
            *(delete(**ROWS[0]), preimage(**ROWS[1]), delete(**ROWS[1]), delete(**one), add(**one), postimage(**one)),
            *(delete(**one), delete(name="z"), add(name="y"), preimage(name="y"), add(n=5)),
        ]
        run_job(typed, "bag", steps)
        expected = [ROWS[0], *ROWS[2:], one, {"name": None, "n": 5, "cost": None}]
        assert counted(table.scan()) == counted(expected)
        assert len(list(table.scan_index("n", 9))) == 1
        run_job(typed, "bag", [delete(**row) for row in expected])
        assert table.count() == 0

    def test_jobs_that_name_no_field(self, typed: Storage) -> None:
        """Rows of a batch without columns are rows of nulls."""
        table = self.keyless(typed, BAG, [])
        given = pa.record_batch({"_change_type": ["+I", "+I", "-D"]})
        job = typed.begin_write("bag", mode=WriteMode.CHANGES, job_id=self.fresh_id())
        typed.commit_write(job, [typed.stage(job, 0, 0, [given])])
        job = typed.begin_write("bag", mode=WriteMode.INSERT, job_id=self.fresh_id())
        typed.commit_write(job, [typed.stage(job, 0, 0, [given.select([])])])
        assert counted(table.scan()) == counted([{"name": None, "n": None, "cost": None}] * 4)

    def test_bad_rows_of_keyless_jobs(self, typed: Storage) -> None:
        """`stage` rejects bad rows of a table without a key, and the hidden key."""
        self.keyless(typed, BAG, ROWS)
        job = typed.begin_write("bag", mode=WriteMode.INSERT, job_id=self.fresh_id())
        other = TableSpecification("o", [Field.string("n"), Field.string("x"), Field.bytes("y")], ["x"])
        for columns in (["n"], ["x"], ["y"]):
            wrong = batch([{"n": "1", "x": "1", "y": b"1"}], columns, other)
            with pytest.raises(InvalidFieldError):
                typed.stage(job, 0, 0, [batch(ROWS, spec=BAG), wrong])
            with pytest.raises(InvalidFieldError):
                typed.stage(job, 0, 0, [batch(ROWS, spec=BAG), wrong.rename_columns(["_id"])])
        typed.abort_write(job)
        assert typed.table("bag").count() == len(ROWS)

    def test_conflicts_of_a_bag(self, typed: Storage, session: OpenSession) -> None:
        """Transactions that add rows never conflict; of two that take away the last equal row one commits."""
        table = self.keyless(typed, BAG, [{"n": 1}])
        row: Record = {"n": 1}
        for changes, committed in [([("+I", row)], (True, True)), ([("-D", row)] * 3, (True, False))]:
            one, two = session(), session()
            for each in (one, two):
                each.step(lambda transaction: transaction.table("bag").count())
            for each in (one, two):
                each.step(partial(self.apply, changes))
            assert (one.commit(), two.commit()) == committed
        assert table.count() == 0
