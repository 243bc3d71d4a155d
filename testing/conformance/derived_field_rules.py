"""Rules of fields that are derived from others: their values after writes, and in reads until they are ready."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from structable.spi import (
    Derived,
    FieldType,
    InvalidFieldError,
    JsonField,
    Lower,
    Range,
    RecordNotFoundError,
    Storage,
    StructuredTable,
    UpdateMessage,
    col,
)

from .field_rule_case import EVENTS, NUMBER, READY, RENAMED, TEXT, FieldRuleCase, OpenRuled, event
from .samples import Record, keys, plain
from .writing import OpenWriting, WritingCase

FIVE = '{"a": {"n": 5}}'
SIX = '{"a": {"n": 6}}'
EVENTS_WITH_INDEX = EVENTS.evolve(indexes=["number"])


class DerivedFieldRules(FieldRuleCase, WritingCase):
    """`Derived`: the field always equals a function of its source, whatever verb writes."""

    @READY
    def test_writes_that_name_the_source_compute_it(
        self, migrating: Storage, open_writing: OpenWriting, ready: bool
    ) -> None:
        """Calls and jobs that name the source compute the field, others leave it; a renamed field follows its twin."""
        writing = open_writing(EVENTS, replace(NUMBER, ready=ready), replace(RENAMED, ready=ready))
        table = writing.table
        writing("upsert", {"id": 1, "body": FIVE, "remark": "x"})
        writing("upsert", {"id": 1, "note": "y"})
        assert table.read((1,)) == event(1, body=FIVE, note="y", remark="y", number=5)
        writing("update", {"id": 1, "body": SIX})
        assert table.read((1,)) == event(1, body=SIX, note="y", remark="y", number=6)
        writing("replace", {"id": 1, "note": "z"})
        writing("insert", {"id": 2, "body": FIVE}, {"id": 3, "body": "no JSON", "remark": "w"})
        writing("upsert", {"id": 2, "body": None}, {"id": 4, "body": FIVE}, {"id": 4, "body": SIX})
        whole = [
            event(1, note="z", remark="z"),
            event(2),
            event(3, body="no JSON", note="w", remark="w"),
            event(4, body=SIX, number=6),
        ]
        assert plain(table.scan()) == whole
        for verb in ("upsert", "replace", "update"):
            writing(verb, *whole)
            assert plain(table.scan()) == whole

    @READY
    def test_defaults_and_changes_compute_it(self, ruled: OpenRuled, ready: bool) -> None:
        """Defaults and changes with a kind compute a derived field; the rows of retracts need not fit the rules."""
        table = ruled(replace(NUMBER, ready=ready))
        table.update({"id": 4, "note": "new"}, default={"body": SIX})
        table.update({"id": 5, "body": FIVE}, default={"body": SIX, "note": "d"})
        updates: list[Record | UpdateMessage] = [
            {"id": 4, "body": FIVE},
            UpdateMessage({"id": 1, "note": "n"}, {"body": SIX}),
            {"id": 6, "body": SIX},
        ]
        assert table.update_many(updates) == [(6,)]
        if ready:
            table.apply_changes([("+I", {"id": 7, "body": FIVE}), ("-D", {"id": 4, "number": 9}), ("+U", {"id": 7})])
        else:
            table.apply_changes([("+U", {"id": 7, "body": FIVE}), ("-U", {"id": 4})])
        assert plain(table.scan()) == [
            event(1, body=SIX, note="n", number=6),
            event(5, body=FIVE, note="d", number=5),
            event(7, body=FIVE, number=5),
        ]

    @READY
    def test_steps_swaps_and_ranges_compute_it(self, ruled: OpenRuled, ready: bool) -> None:
        """`increment`, `compare_and_swap` and `update_all` of a source compute the derived field."""
        table = ruled(replace(TEXT, ready=ready))
        table.increment((1,), "size", 5)
        table.increment_many([((1,), "size", 2), ((2,), "size", -1), ((1,), "size", 3)])
        assert table.read((1,)) == event(1, size=10, size_text="10")
        assert table.read((2,)) == event(2, size=-1, size_text="-1")
        assert table.compare_and_swap((1,), "size", 10, 11)
        assert not table.compare_and_swap((1,), "size", 10, 12)
        assert not table.compare_and_swap((3,), "size", 1, 2)
        assert table.compare_and_swap((3,), "size", None, 4)
        assert table.compare_and_swap((3,), "note", None, "x")
        assert plain(table.scan(columns=["size", "size_text", "note"])) == [
            {"id": 1, "size": 11, "size_text": "11", "note": None},
            {"id": 2, "size": -1, "size_text": "-1", "note": None},
            {"id": 3, "size": 4, "size_text": "4", "note": "x"},
        ]
        assert table.update_all(Range.at_least((2,)), {"size": 7}, where=col("size_text").isin(["4", "5"])) == 1
        assert table.update_all(Range.all(), {"note": "y"}, where=col("size_text") == "7") == 1
        assert table.delete_all(Range.all(), where=col("size_text") == "-1") == 1
        assert plain(table.scan(columns=["size_text", "note"])) == [
            {"id": 1, "size_text": "11", "note": None},
            {"id": 3, "size_text": "7", "note": "y"},
        ]
        with pytest.raises(InvalidFieldError, match="overflows 32 bits"):
            table.increment((1,), "size", 2**31 - 1)
        assert table.read((1,), ["size_text"]) == {"id": 1, "size_text": "11"}

    @READY
    def test_only_the_computed_value_may_be_given(self, ruled: OpenRuled, ready: bool) -> None:
        """Naming the derived field is an `InvalidFieldError`, unless the value is the computed one."""
        table = ruled(replace(NUMBER, ready=ready))
        table.upsert({"id": 1, "body": FIVE, "number": 5})
        row = table.read((1,))
        assert row is not None
        for same in ({**row}, {"id": 1, "number": 5}):
            table.upsert(same)
            table.update(same)
            table.upsert_many([{"id": 1, "body": SIX}, {"id": 1, "number": 6}, {"id": 1, "body": FIVE}, same])
            assert table.update_many([same]) == []
        table.replace({**row})
        assert table.compare_and_swap((1,), "number", 5, 5)
        assert table.update_all(Range.all(), {"number": 5}) == 1
        refused: list[Callable[[], object]] = [
            lambda: table.upsert({"id": 1, "number": 6}),
            lambda: table.upsert({"id": 1, "body": SIX, "number": 5}),
            lambda: table.upsert({"id": 2, "number": 5}),
            lambda: table.replace({"id": 1, "number": 5}),
            lambda: table.insert({"id": 2, "body": FIVE, "number": None}),
            lambda: table.update({"id": 1, "number": None}),
            lambda: table.update({"id": 2, "note": "x"}, default={"number": 5}),
            lambda: table.update_many([{"id": 1, "body": SIX}, {"id": 1, "number": 5}]),
            lambda: table.upsert_many([{"id": 3, "note": "x"}, {"id": 3, "number": 1}]),
            lambda: table.apply_changes([("-D", {"id": 1}), ("+U", {"id": 1, "number": 5})]),
            lambda: table.compare_and_swap((1,), "number", 5, 6),
            lambda: table.increment((1,), "number"),
            lambda: table.update_all(Range.all(), {"number": 6}),
        ]
        for call in refused:
            with pytest.raises(InvalidFieldError, match="number"):
                call()
        assert plain(table.scan()) == [event(1, body=FIVE, number=5)]

    @READY
    def test_wrong_arguments_are_refused_as_without_rules(self, ruled: OpenRuled, ready: bool) -> None:
        """Wrong rows, keys and names are the errors that they are without rules, and the call has no effect."""
        table = ruled(replace(NUMBER, ready=ready))
        refused: list[Callable[[], object]] = [
            lambda: table.upsert({"id": 1, "body": 5}),
            lambda: table.upsert({"body": FIVE}),
            lambda: table.upsert_many([{"id": 1, "body": FIVE}, {"id": 2, "other": 1}]),
            lambda: table.upsert_many("ab"),  # type: ignore[arg-type]
            lambda: table.insert(["id"]),  # type: ignore[arg-type]
            lambda: table.update({"id": 1, "body": b"x"}, default={}),
            lambda: table.update({"id": 1, "body": FIVE}, default={"id": 2}),
            lambda: table.update_many([{"id": 1, "body": FIVE}, 5]),  # type: ignore[list-item]
            lambda: table.increment((1,), "body"),
            lambda: table.compare_and_swap((1, 2), "body", None, FIVE),
            lambda: table.update_all(Range.all(), {"id": 2}),
            lambda: table.read((1,), ["other"]),
            lambda: table.scan(where=col("number") == "5"),
            lambda: table.scan(order_by="body"),
            lambda: table.scan(limit=-1),
        ]
        for call in refused:
            with pytest.raises(InvalidFieldError):
                call()
        with pytest.raises(RecordNotFoundError):
            table.update({"id": 1, "body": FIVE})
        assert table.count() == 0

    def test_strict_function_refuses_writes(self, ruled: OpenRuled) -> None:
        """With `strict`, a write that the function fails on is an `InvalidFieldError`; rows from before read null."""
        table = ruled(
            replace(NUMBER, function=JsonField(("a", "n"), "long", strict=True)), before=({"id": 1, "body": "x"},)
        )
        for call in (table.upsert, table.insert, table.replace):
            with pytest.raises(InvalidFieldError, match=r"'body'.* 'number' is derived"):
                call({"id": 2, "body": '{"a": 1}'})
        table.upsert({"id": 3, "body": FIVE})
        table.upsert({"id": 4, "body": None})
        assert [row.number for row in table.scan()] == [None, 5, None]

    def test_filling_field_reads_as_computed(self, ruled: OpenRuled) -> None:
        """Until it is ready, reads, scans and counts give the computed value, and evaluate filters on it."""
        bodies = {1: FIVE, 2: SIX, 3: None, 4: "{", 5: FIVE}
        rows: tuple[Record, ...] = tuple(
            {"id": one, "body": body, "note": "ab"[one % 2]} for one, body in bodies.items()
        )
        table = ruled(NUMBER, before=rows)
        table.upsert({"id": 6, "body": '{"a": {"n": 7}}', "note": "b"})
        assert table.read((2,), ["number"]) == {"id": 2, "number": 6}
        assert plain(table.multi_read([(5,), (9,), (1,)], ["number", "note"])) == [
            {"id": 1, "number": 5, "note": "b"},
            {"id": 5, "number": 5, "note": "b"},
        ]
        assert [row.number for row in table.scan()] == [5, 6, None, None, 5, 7]
        assert keys(table.scan(where=col("number") > 5)) == [(2,), (6,)]
        assert keys(table.scan(where=col("number").is_null() | (col("note") == "a"))) == [(2,), (3,), (4,)]
        assert keys(table.scan(where=(col("number") == 5) & (col("id") > 1), columns=["note"])) == [(5,)]
        assert keys(table.scan(where=col("number") >= 5, reverse=True, limit=3)) == [(6,), (5,), (2,)]
        assert keys(table.scan(where=col("number") >= 5, order_by="note", limit=2)) == [(2,), (1,)]
        assert keys(table.scan_index("note", "b", where=col("number") == 5)) == [(1,), (5,)]
        assert plain(table.scan_index("note", "a", columns=["number"])) == [
            {"id": 2, "number": 6},
            {"id": 4, "number": None},
        ]
        assert list(table.scan(where=col("number") > 0, limit=0)) == []
        ranges = [Range.at_most((2,)), Range.at_least((2,)), Range.prefix((9,))]
        found = table.multi_scan(ranges, where=col("number") > 4, limit_per_range=2)
        assert keys(found) == [(1,), (2,), (5,)]
        found = table.multi_scan(ranges, where=col("number") > 4, limit_per_range=1, order_by="note", reverse=True)
        assert keys(found) == [(6,), (1,)]
        found = table.multi_scan(
            ranges, where=col("number") > 4, limit_per_range=2, reverse=True, limit=3, columns=["number"]
        )
        assert plain(found) == [{"id": 6, "number": 7}, {"id": 5, "number": 5}, {"id": 2, "number": 6}]
        assert table.count(where=col("number") == 5) == 2
        assert table.count([Range.above((1,))], where=col("number").is_not_null()) == 3
        with table.scan(where=col("number") > 0) as scanned:
            assert next(scanned).id == 1

    def test_filling_field_has_no_order_and_no_index(self, ruled: OpenRuled) -> None:
        """Until the field is ready, `order_by` and `scan_index` are refused; `explain` names the computed fields."""
        table = ruled(NUMBER, before=({"id": 1, "body": FIVE},))
        with pytest.raises(InvalidFieldError, match=r"'number'.* is being filled"):
            table.scan(order_by="number")
        with pytest.raises(InvalidFieldError, match=r"'number'.* is being filled"):
            table.scan_index("number", 5)
        text = str(table.explain(where=(col("number") > 5) & (col("note") == "x")))
        assert "number > 5" in text
        assert "computed values" in text
        assert "note" in text
        assert "computed" not in str(table.explain(where=col("note") == "x"))

    def test_ready_field_is_stored(self, migrating: Storage) -> None:
        """A ready field is indexed and ordered by like any other."""
        ready = replace(NUMBER, ready=True)
        spec = EVENTS_WITH_INDEX.evolve(rules=[ready])
        migrating.admin.create(spec)
        assert migrating.admin.get_specification("events") == spec
        table = migrating.table("events")
        table.upsert_many([{"id": 1, "body": SIX}, {"id": 2, "body": FIVE}, {"id": 3}])
        assert keys(table.scan_index("number", 5)) == [(2,)]
        assert keys(table.scan(order_by="number")) == [(3,), (2,), (1,)]
        table.upsert({"id": 2, "body": '{"a": {"n": 9}}'})
        assert keys(table.scan_index("number", 5)) == []

    @READY
    def test_derived_fields_may_follow_each_other(self, ruled: OpenRuled, ready: bool) -> None:
        """The source may itself be derived, and be a field of the key."""
        name = Derived("remark", "body", JsonField(("name",), FieldType.STRING), ready)
        lower = Derived("note", "remark", Lower(), ready)
        text = Derived("size_text", "id", TEXT.function, ready)
        table: StructuredTable = ruled(lower, name, text)
        table.upsert({"id": 1, "body": '{"name": "Ada"}'})
        table.increment((2,), "size")
        assert table.compare_and_swap((3,), "size", None, 1)
        assert table.read((1,)) == event(1, body='{"name": "Ada"}', remark="Ada", note="ada", size_text="1")
        assert plain(table.scan(Range.above((1,)), columns=["size_text", "size"])) == [
            {"id": 2, "size": 1, "size_text": "2"},
            {"id": 3, "size": 1, "size_text": "3"},
        ]
        assert table.count(where=col("note") == "ada") == 1
        with pytest.raises(InvalidFieldError, match="note"):
            table.upsert({"id": 1, "remark": "Ada", "note": "bob"})
