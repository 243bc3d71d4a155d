"""Rules of renamed fields: both names have one value, whichever name is written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from structable.spi import Derived, InvalidFieldError, Lower, Range, Renamed, Storage, UpdateMessage, col
from structable.spi.arrow import rows_to_batches
from structable.spi.authors import same

from .field_rule_case import READY, RENAMED, TEXT, FieldRuleCase, OpenRuled, event
from .samples import EXTREMES, TYPES, Record, keys, plain


class RenamedFieldRules(FieldRuleCase):
    """`Renamed`: two fields of one type that are always equal."""

    @READY
    def test_write_of_either_sets_both(self, ruled: OpenRuled, ready: bool) -> None:
        """A write that names either field sets both; both with different values are an `InvalidFieldError`."""
        table = ruled(replace(RENAMED, ready=ready))
        table.upsert_many([{"id": 1, "note": "a"}, {"id": 1, "remark": "b"}, {"id": 2, "remark": "c", "note": "c"}])
        table.update({"id": 3, "size": 1}, default={"remark": "d"})
        table.update_many([UpdateMessage({"id": 4}, {"note": "f"}), {"id": 2, "size": 2}])
        table.replace({"id": 5, "note": "g"})
        table.apply_changes([("+U", {"id": 6, "remark": "h"}), ("-D", {"id": 5, "note": "x"})])
        assert table.update_all(Range.at_least((6,)), {"remark": "i"}) == 1
        assert plain(table.scan()) == [
            event(1, note="b", remark="b"),
            event(2, note="c", remark="c", size=2),
            event(3, note="d", remark="d", size=1),
            event(4, note="f", remark="f"),
            event(6, note="i", remark="i"),
        ]
        for call in (table.upsert, table.insert, table.replace):
            with pytest.raises(InvalidFieldError, match="remark"):
                call({"id": 7, "note": "a", "remark": "b"})
        with pytest.raises(InvalidFieldError, match="remark"):
            table.update_all(Range.all(), {"note": "a", "remark": "b"})
        assert table.count() == 5

    @READY
    def test_swaps_ask_the_value_of_both(self, ruled: OpenRuled, ready: bool) -> None:
        """`compare_and_swap` of either compares the value that both have, and sets both."""
        table = ruled(replace(RENAMED, ready=ready))
        table.upsert({"id": 1, "note": "a"})
        assert table.compare_and_swap((1,), "remark", "a", "b")
        assert not table.compare_and_swap((1,), "note", "a", "c")
        assert table.compare_and_swap((1,), "note", "b", "c")
        assert table.compare_and_swap((2,), "remark", None, "d")
        assert plain(table.scan()) == [event(1, note="c", remark="c"), event(2, note="d", remark="d")]

    @READY
    def test_steps_step_both(self, ruled: OpenRuled, ready: bool) -> None:
        """An increment of either increments both; a field that is derived from them follows."""
        spare = Renamed("size", "tries", ready)
        table = ruled(spare, replace(TEXT, source="tries", ready=ready))
        table.increment((1,), "size", 3)
        table.increment_many([((1,), "tries", 2), ((2,), "size", 1)])
        assert [(row["size"], row["tries"], row["size_text"]) for row in table.scan()] == [(5, 5, "5"), (1, 1, "1")]

    @READY
    def test_fields_of_every_type_are_renamed(self, migrating: Storage, ready: bool) -> None:
        """Writes, jobs, plans, swaps and filters treat both names as one, whatever the type and its extremes."""
        second = {field.name: f"new_{field.name}" for field in TYPES.value_fields}
        fields = [replace(field, name=second[field.name]) for field in TYPES.value_fields]
        migrating.admin.create(TYPES.evolve(fields=[*TYPES.fields, *fields]))
        migrating.admin.set_rules("types", [Renamed(old, new, ready) for old, new in second.items()])
        table, spec = migrating.table("types"), migrating.table("types").specification
        rows: list[Record] = [{"id": 100}]
        for number in range(10):
            row: Record = {"id": number}
            for field in TYPES.value_fields:
                values = EXTREMES[field.type]
                row[(field.name, second[field.name])[number % 2]] = values[number % len(values)]
            rows.append(row)
        table.upsert_many(rows)
        for of_old in (True, False):
            named = ["id", *(second if of_old else second.values())]
            given = [{**row, "id": row["id"] + 10} for row in rows[1:] if (row["id"] % 2 == 0) is of_old]
            job = migrating.begin_write("types", mode="upsert", job_id=self.fresh_id())
            migrating.commit_write(job, [migrating.stage(job, 0, 0, rows_to_batches(spec, given, named))])
        found = {row["id"]: row for row in table.scan()}
        assert [*found] == [*range(20), 100]
        for row in rows[1:]:
            for old, new in second.items():
                value = row.get(old, row.get(new))
                for stored in (found[row["id"]], found[row["id"] + 10]):
                    assert same(stored[old], value)
                    assert same(stored[new], value)
                assert (row["id"],) in keys(table.scan(where=col(new) == value))
                assert table.compare_and_swap((row["id"],), new, value, value)
        assert all(value is None for name, value in found[100].items() if name != "id")
        for one in table.to_arrow().to_pylist():
            assert all(same(one[old], one[new]) for old, new in second.items())

    def test_filling_field_is_answered_from_the_old_one(self, ruled: OpenRuled) -> None:
        """Until a renamed field is ready, reads, filters, orders and index scans of the new name use the old one."""
        rows = tuple({"id": one, "note": note} for one, note in ((1, "b"), (2, None), (3, "a"), (4, "b")))
        table = ruled(RENAMED, Derived("size_text", "remark", Lower()), before=rows)
        assert plain(table.scan(columns=["remark"], limit=2)) == [{"id": 1, "remark": "b"}, {"id": 2, "remark": None}]
        assert table.read((3,)) == event(3, note="a", remark="a", size_text="a")
        assert keys(table.scan(where=col("remark") == "b")) == [(1,), (4,)]
        assert keys(table.scan(where=col("remark") == col("note"), order_by="remark")) == [(3,), (1,), (4,)]
        assert keys(table.scan_index("remark", None)) == [(2,)]
        assert keys(
            table.multi_scan([Range.all()], where=col("size_text") >= "a", order_by="remark", limit_per_range=2)
        ) == [
            (3,),
            (1,),
        ]
        assert table.count(where=col("remark").startswith("b")) == 2
        assert "note" in str(table.explain(where=col("remark") == "b"))
        assert table.compare_and_swap((1,), "remark", "b", "c")
        assert table.delete_all(Range.all(), where=col("remark") == "b") == 1
        assert table.update_all(Range.all(), {"size": 1}, where=col("remark").is_null()) == 1
        assert plain(table.scan(columns=["note", "remark", "size"])) == [
            {"id": 1, "note": "c", "remark": "c", "size": None},
            {"id": 2, "note": None, "remark": None, "size": 1},
            {"id": 3, "note": "a", "remark": "a", "size": None},
        ]
