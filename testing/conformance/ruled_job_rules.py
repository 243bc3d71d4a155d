"""Rules of write jobs and scan plans on tables whose fields have rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from structable.spi import (
    AggregateExpression,
    Aggregation,
    Derived,
    Field,
    FieldType,
    InvalidFieldError,
    JsonField,
    RecordChangedError,
    Retired,
    SchemaIncompatibleError,
    Storage,
    TableNotFoundError,
    WriteMode,
    col,
)
from structable.spi.arrow import rows_to_batches

from .field_rule_case import EVENTS, NUMBER, READY, RENAMED, FieldRuleCase, event
from .patch_case import patch_batch
from .rule_change_rules import SINCE
from .samples import Record, plain

FIVE = '{"a": {"n": 5}}'
SIX = '{"a": {"n": 6}}'


class RuledJobRules(FieldRuleCase):
    """Jobs keep the rules, whatever fields their rows name; plans return the rows that tables return."""

    def write_job(
        self, storage: Storage, mode: WriteMode, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]
    ) -> None:
        job = storage.begin_write("events", mode=mode, job_id=self.fresh_id())
        storage.commit_write(job, [storage.stage(job, 0, 0, rows_to_batches(EVENTS, rows, columns))])

    @READY
    def test_overwriting_job_writes_what_follows(self, events: Storage, ready: bool) -> None:
        """A job that names a source writes the fields derived from it, in mode overwrite as in all others."""
        events.admin.set_rules("events", [replace(NUMBER, ready=ready), replace(RENAMED, ready=ready)])
        events.table("events").upsert_many([{"id": 1, "body": SIX, "note": "z"}, {"id": 2, "size": 1}])
        rows: list[Record] = [{"id": 1, "body": FIVE, "remark": "a"}, {"id": 2, "body": "no JSON", "remark": None}]
        self.write_job(events, WriteMode.OVERWRITE, rows, ["id", "body", "remark"])
        whole = [event(1, body=FIVE, number=5, note="a", remark="a"), event(2, body="no JSON")]
        assert plain(events.table("events").scan()) == whole
        self.write_job(events, WriteMode.OVERWRITE, whole, EVENTS.field_names)
        assert plain(events.table("events").scan()) == whole

    @READY
    def test_job_of_changes_writes_what_follows(self, events: Storage, ready: bool) -> None:
        """A job of mode changes writes derived fields, too; its retracts need not fit the rules."""
        events.admin.set_rules("events", [replace(NUMBER, ready=ready)])
        table = events.table("events")
        table.upsert_many([{"id": 1, "body": SIX}, {"id": 2, "body": SIX}])
        import pyarrow as pa

        [batch] = rows_to_batches(EVENTS, [{"id": 1, "body": FIVE}, {"id": 2}, {"id": 3, "body": SIX}], ["id", "body"])
        kinds = pa.array(["+U", "-D", "+I"])
        changed = pa.RecordBatch.from_arrays([*batch.columns, kinds], names=["id", "body", "_change_type"])
        job = events.begin_write("events", mode="changes", job_id=self.fresh_id())
        events.commit_write(job, [events.stage(job, 0, 0, [changed])])
        assert plain(table.scan(columns=["number"])) == [{"id": 1, "number": 5}, {"id": 3, "number": 6}]

    @READY
    def test_rows_must_keep_the_rules(self, events: Storage, ready: bool) -> None:
        """`stage` refuses another value than the computed one, and one whose source the rows do not name."""
        events.admin.set_rules("events", [replace(NUMBER, ready=ready), replace(RENAMED, ready=ready)])
        refused: list[tuple[list[Record], list[str]]] = [
            ([{"id": 1, "body": FIVE, "number": 6}], ["id", "body", "number"]),
            ([{"id": 1, "number": 5}], ["id", "number"]),
            ([{"id": 1, "note": "a", "remark": "b"}], ["id", "note", "remark"]),
        ]
        for rows, columns in refused:
            job = events.begin_write("events", mode="upsert", job_id=self.fresh_id())
            with pytest.raises(InvalidFieldError, match=r"number|remark"):
                events.stage(job, 0, 0, rows_to_batches(EVENTS, rows, columns))

    @READY
    def test_patches_write_what_follows(self, events: Storage, ready: bool) -> None:
        """Each arm of a patch also writes the fields that follow from those it names."""
        self.require("streams")
        events.admin.set_rules("events", [replace(NUMBER, ready=ready), replace(RENAMED, ready=ready)])
        table = events.table("events")
        table.upsert_many([{"id": number, "body": SIX, "note": "x"} for number in (1, 2, 3, 4)])
        arms: list[tuple[str, Record]] = [
            ("expect", {"id": 1, "body": SIX, "remark": "x"}),
            ("present", {"id": 1, "body": FIVE}),
            ("present", {"id": 2, "size": 1, "remark": "y"}),
            ("replace", {"id": 3, "body": FIVE, "note": "z"}),
            ("delete", {"id": 4}),
            ("absent", {"id": 5, "body": FIVE, "number": 5}),
            ("insert", {"id": 6, "remark": "w"}),
        ]
        job = events.begin_write("events", mode="patch", job_id=self.fresh_id())
        events.commit_write(job, [events.stage(job, 0, 0, [patch_batch(EVENTS, arms)])])
        assert plain(table.scan()) == [
            event(1, body=FIVE, number=5, note="x", remark="x"),
            event(2, body=SIX, number=6, size=1, note="y", remark="y"),
            event(3, body=FIVE, number=5, note="z", remark="z"),
            event(5, body=FIVE, number=5),
            event(6, note="w", remark="w"),
        ]
        for arms, error in (
            ([("expect", {"id": 1, "remark": "y"})], RecordChangedError),
            ([("present", {"id": 1, "number": 5})], InvalidFieldError),
            ([("insert", {"id": 7, "number": 5})], InvalidFieldError),
        ):
            job = events.begin_write("events", mode="patch", job_id=self.fresh_id())
            with pytest.raises(error):  # noqa: PT012 - either call refuses
                staged = events.stage(job, 0, 0, [patch_batch(EVENTS, arms)])
                events.commit_write(job, [staged])
            events.abort_write(job)

    def test_rows_staged_under_other_rules_are_refused(self, events: Storage) -> None:
        """Rows staged under other rules are `SchemaIncompatibleError` at the commit; staged again they are taken."""
        rows: list[Record] = [{"id": 1, "body": FIVE}]
        columns = ["id", "body"]
        for mode in (WriteMode.UPSERT, WriteMode.OVERWRITE):
            events.admin.set_rules("events", [])
            job = events.begin_write("events", mode=mode, job_id=self.fresh_id())
            staged = events.stage(job, 0, 0, rows_to_batches(EVENTS, rows, columns))
            assert staged.rules == ""
            events.admin.set_rules("events", [NUMBER])
            with pytest.raises(SchemaIncompatibleError, match="under other rules; stage them again"):
                events.commit_write(job, [staged])
            assert events.table("events").count() == (mode is WriteMode.OVERWRITE)
            staged = events.stage(job, 0, 0, rows_to_batches(EVENTS, rows, columns))
            assert staged.rules
            events.admin.set_rules("events", [replace(NUMBER, ready=True)])
            assert events.commit_write(job, [staged])
            assert events.table("events").read((1,), ["number"]) == {"id": 1, "number": 5}

    def test_rows_staged_for_a_dropped_field_are_refused(self, events: Storage) -> None:
        """Rows that name a field which was dropped since are refused, whatever has its name now; others are taken."""
        for again in (None, EVENTS.field("size"), Field.long("size"), Field.bytes("size")):
            job, other = (events.begin_write("events", mode="upsert", job_id=self.fresh_id()) for _ in range(2))
            given: list[Record] = [{"id": 1, "size": 7, "note": "a"}]
            staged = events.stage(job, 0, 0, rows_to_batches(EVENTS, given, ["id", "size"]))
            unnamed = events.stage(other, 0, 0, rows_to_batches(EVENTS, given, ["id", "note"]))
            events.admin.drop_field("events", "size")
            if again is not None:
                fields = [again if field.name == "size" else field for field in EVENTS.fields]
                events.admin.create_or_update(EVENTS.evolve(fields=fields))
            with pytest.raises(SchemaIncompatibleError, match="staged"):
                events.commit_write(job, [staged])
            assert events.table("events").count() == 0
            assert events.commit_write(other, [unnamed])
            assert plain(events.table("events").scan(columns=["note"])) == [{"id": 1, "note": "a"}]
            events.admin.drop("events")
            events.admin.create(EVENTS)

    def test_job_of_a_retired_table_is_refused(self, events: Storage) -> None:
        """A job is not committed while its table is retired, and may be afterwards."""
        job = events.begin_write("events", mode="upsert", job_id=self.fresh_id())
        staged = events.stage(job, 0, 0, rows_to_batches(EVENTS, [{"id": 1}], ["id"]))
        events.admin.set_rules("events", [Retired(SINCE)])
        with pytest.raises(TableNotFoundError, match="retired"):
            events.commit_write(job, [staged])
        events.admin.set_rules("events", [])
        assert events.commit_write(job, [staged])

    def test_plans_compute_what_is_being_filled(self, events: Storage) -> None:
        """Splits give computed values of fields that are not ready, and evaluate filters on them."""
        table = events.table("events")
        bodies = [FIVE, SIX, None, "{", FIVE]
        table.upsert_many([{"id": one, "body": body, "note": "ab"[one % 2]} for one, body in enumerate(bodies)])
        name = Derived("size_text", "remark", JsonField(("x",), FieldType.STRING))
        events.admin.set_rules("events", [NUMBER, RENAMED, name])
        table.upsert({"id": 5, "body": SIX, "note": "c"})

        def read(**arguments: Any) -> list[Record]:  # noqa: ANN401 - those of plan_scan
            with events.plan_scan("events", splits=2, **arguments) as plan:
                batches = [batch for split in plan.splits for batch in events.read_split(split)]
                assert all(tuple(batch.schema.names) == plan.columns for batch in batches)
                return [row for batch in batches for row in batch.to_pylist()]

        def by_id(rows: list[Record]) -> list[Record]:
            return sorted(rows, key=lambda row: row["id"])

        assert by_id(read()) == plain(table.scan())
        assert [row["number"] for row in by_id(read(columns=["number", "id"]))] == [5, 6, None, None, 5, 6]
        assert by_id(read(columns=["id"], where=col("number") == 6)) == [{"id": 1}, {"id": 5}]
        assert by_id(read(columns=["remark", "id"], where=col("remark") == "b")) == [
            {"remark": "b", "id": 1},
            {"remark": "b", "id": 3},
        ]
        assert read(columns=["id"], where=(col("number") == 5) & (col("remark") == "a") & (col("id") > 0)) == [
            {"id": 4}
        ]
        assert read(columns=["number"], where=col("number") > 9) == []
        if events.capabilities.aggregates:
            total = AggregateExpression.sum("number")
            rows = read(where=col("number") > 5, aggregate=Aggregation((total,)))
            assert sum(value for row in rows for value in row.values() if value) == 12
