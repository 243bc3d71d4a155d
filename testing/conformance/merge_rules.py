"""Rules of the merge engines deduplicate, partial-update and first-row, and of the options for retracts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from structable.spi import (
    Field,
    FieldSizeLimitError,
    InvalidFieldError,
    Range,
    RecordExistsError,
    Storage,
    StructuredTable,
    TableSpecification,
    UnsupportedOperationError,
)

from .case import OpenTable
from .merge_case import MergeCase, Step, add, delete, postimage, preimage
from .samples import Record, keys

FIELDS = [
    Field.long("id"),
    Field.int("n"),
    Field.string("a"),
    Field.string("b"),
    Field.double("x"),
    Field.boolean("gone"),
]


def table(*, indexes: list[str] | None = None, **options: str) -> TableSpecification:
    """Return a table with options; an underscore in a name stands for a hyphen."""
    named = {name.replace("_", "-"): value for name, value in options.items()}
    return TableSpecification("t", FIELDS, ["id"], indexes or [], named)


PARTIAL = table(merge_engine="partial-update")
FIRST_ROW = table(merge_engine="first-row")
SOFT = TableSpecification("t", FIELDS, ["id"], options={"soft-delete.field": "gone"})
ENGINES = {
    "deduplicate": table(),
    "deduplicate by sequence": TableSpecification("t", FIELDS, ["id"], ["a"], {"sequence.field": "n"}),
    "soft-delete": SOFT,
    "partial-update": table(merge_engine="partial-update", indexes=["a"]),
    "aggregation": table(merge_engine="aggregation"),
    "first-row": FIRST_ROW,
}
RETRACTS = [delete(), preimage(), delete(n=1, a="x"), preimage(n=1)]

SETTING: dict[str, Callable[[StructuredTable], object]] = {
    "replace": lambda table: table.replace({"id": 1, "n": 1, "a": "new"}),
    "replace_many": lambda table: table.replace_many([{"id": 1, "n": 7}, {"id": 1, "n": 1, "a": "new"}]),
    "update": lambda table: table.update({"id": 1, "n": 1, "a": "new"}),
    "compare_and_swap": lambda table: table.compare_and_swap((1,), "a", "old", "new"),
    "update_all": lambda table: table.update_all(Range.all(), {"a": "new"}),
    "delete": lambda table: table.delete((1,)),
    "delete_many": lambda table: table.delete_many([(1,)]),
    "delete_all": lambda table: table.delete_all(Range.all()),
}
"""Verbs that change the field a from "old" to "new", or delete the row, whatever the merge engine."""


class MergeRules(MergeCase):
    """Merge verbs change the row of their key as the table's merge engine defines."""

    def test_deduplicate(self, typed: Storage) -> None:
        """On a table without options an add changes the named fields, and a retract deletes the row, named or not."""
        self.merge(
            typed,
            table(),
            ([add(n=1, a="x"), add(n=2), postimage(b="y")], {"n": 2, "a": "x", "b": "y"}),
            ([add(n=1), postimage(n=None)], {}),
            ([add(n=1, a="x"), delete()], None),
            ([add(n=1, a="x"), preimage(n=7)], None),
            ([add(n=1, a="x"), delete(n=1), add(b="y")], {"b": "y"}),
            ([preimage(n=1), postimage(n=2)], {"n": 2}),
            ([delete()], None),
            ([add()], {}),
        )

    def test_deduplicate_of_an_indexed_field(self, typed: Storage) -> None:
        """Indexes follow every merge."""
        for spec in (table(indexes=["a", "n"]), table(merge_engine="partial-update", indexes=["a", "n"])):
            view = self.merge(typed, spec, ([add(n=1, a="x"), add(n=2, a="y"), postimage(n=3)], {"n": 3, "a": "y"}))
            assert keys(view.scan_index("a", "x")) == []
            assert keys(view.scan_index("a", "y")) == keys(view.scan_index("n", 3)) == keys(view.scan())
            typed.admin.drop("t")

    def test_partial_update(self, typed: Storage) -> None:
        """Partial-update: a field takes the given value unless that is null."""
        self.merge(
            typed,
            PARTIAL,
            ([add(n=1, a="x"), add(n=None, b="y"), postimage(a="z")], {"n": 1, "a": "z", "b": "y"}),
            ([add(n=None), add(a=None, b="")], {"b": ""}),
            ([add(), postimage(x=0.0, gone=False)], {"x": 0.0, "gone": False}),
            ([postimage(n=None, a=None)], {}),
        )

    def test_partial_update_refuses_retracts(self, typed: Storage) -> None:
        """A retract on a partial-update table without groups is refused; the error names the two options."""
        self.refuse(
            typed,
            PARTIAL,
            [add(n=1, a="x")],
            RETRACTS,
            UnsupportedOperationError,
            "ignore-delete",
            "remove-record-on-delete",
        )

    def test_first_row(self, typed: Storage) -> None:
        """First-row: an add of an absent row puts it, one of an existing row does nothing."""
        self.merge(
            typed,
            FIRST_ROW,
            ([add(n=1), add(n=2, a="x"), postimage(a="y")], {"n": 1}),
            ([postimage(a="y"), add(n=1)], {"a": "y"}),
            ([add(), add(n=1)], {}),
        )

    def test_first_row_refuses_retracts(self, typed: Storage) -> None:
        """A retract on a first-row table is refused."""
        self.refuse(typed, FIRST_ROW, [add(n=1)], RETRACTS, UnsupportedOperationError, "ignore-delete")

    @pytest.mark.parametrize("engine", ["deduplicate", "partial-update", "aggregation", "first-row"])
    def test_ignore_delete(self, typed: Storage, engine: str) -> None:
        """`ignore-delete` drops retracts on every engine, of existing rows and of absent ones."""
        changed: Record = {"n": 1} if engine == "first-row" else {"n": 2}
        self.merge(
            typed,
            table(merge_engine=engine, ignore_delete="true"),
            ([add(n=1), delete(), preimage(n=1), postimage(n=2), delete()], changed),
            ([delete(n=1)], None),
            ([preimage(n=1), delete(), add(n=2)], {"n": 2}),
        )

    def test_remove_record_on_delete(self, typed: Storage) -> None:
        """With `remove-record-on-delete`, -D deletes a row of a partial-update table, and -U is dropped."""
        self.merge(
            typed,
            table(merge_engine="partial-update", remove_record_on_delete="true"),
            ([add(n=1, a="x"), preimage(n=1), postimage(n=2)], {"n": 2, "a": "x"}),
            ([add(n=1, a="x"), delete()], None),
            ([add(n=1, a="x"), delete(n=1), add(b="y")], {"b": "y"}),
            ([preimage(n=1)], None),
            ([delete()], None),
        )

    def test_soft_delete(self, typed: Storage) -> None:
        """With `soft-delete.field` a retract is an add that sets it; an add that does not name it sets it to false."""
        self.merge(
            typed,
            SOFT,
            ([add(n=1, a="x")], {"n": 1, "a": "x", "gone": False}),
            ([add(n=1, a="x"), delete()], {"n": 1, "a": "x", "gone": True}),
            ([add(n=1, a="x"), preimage(n=2, gone=False)], {"n": 2, "a": "x", "gone": True}),
            ([add(n=1), delete(), postimage(a="y")], {"n": 1, "a": "y", "gone": False}),
            ([add(n=1, gone=True)], {"n": 1, "gone": True}),
            ([add(n=1, gone=True), add(gone=None)], {"n": 1}),
            ([delete(a="x")], {"a": "x", "gone": True}),
        )

    @pytest.mark.parametrize("engine", ENGINES)
    def test_other_verbs_say_what_the_row_becomes(self, typed: Storage, engine: str) -> None:
        """Every verb except the merge verbs sets the row as given, on every table."""
        typed.admin.create(ENGINES[engine])
        view = typed.table("t")
        for verb, call in SETTING.items():
            view.replace({"id": 1, "n": 9, "a": "old"})
            call(view)
            if "delete" in verb:
                view.insert({"id": 1, "a": "new"})
            row = view.read((1,))
            assert row is not None
            assert (row["a"], row["gone"]) == ("new", None), verb
        view.increment((1,), "n", 5)
        view.increment_many([((1,), "n", 5), ((2,), "n", 3)])
        assert [(row["n"], row["gone"]) for row in view.scan()] == [(10, None), (3, None)]
        with pytest.raises(RecordExistsError):
            view.insert({"id": 1, "n": 99})
        assert view.delete_all(Range.all()) == 2

    @pytest.mark.parametrize("engine", ENGINES)
    def test_merge_after_other_verbs(self, typed: Storage, engine: str) -> None:
        """A merge sees the row as all verbs before it left it, also in one transaction."""
        typed.admin.create(ENGINES[engine])
        expected = {"first-row": (1, "x"), "deduplicate by sequence": (2, None)}.get(engine, (2, "x"))
        with typed.transaction() as transaction:
            inside = transaction.table("t")
            inside.insert({"id": 1, "n": 1, "a": "x"})
            inside.upsert({"id": 1, "n": 2})
            inside.upsert({"id": 2, "n": 1, "b": "lost"})
            inside.delete((2,))
            inside.upsert({"id": 2, "n": 1, "a": "x"})
            inside.upsert({"id": 2, "n": 2})
            inside.increment((3,), "n")
            inside.update({"id": 3, "a": "x"})
            inside.upsert({"id": 3, "n": 2})
            assert [(row["n"], row["a"], row["b"]) for row in inside.scan()] == [(*expected, None)] * 3
        assert [(row["n"], row["a"], row["b"]) for row in typed.table("t").scan()] == [(*expected, None)] * 3

    @pytest.mark.parametrize("engine", ENGINES)
    def test_rolled_back_merge(self, typed: Storage, engine: str) -> None:
        """A merge belongs to its transaction, which reads it, and whose rollback discards it."""
        typed.admin.create(ENGINES[engine])
        typed.table("t").upsert({"id": 1, "n": 1})
        with typed.transaction() as transaction:
            transaction.table("t").upsert_many([{"id": 1, "n": 2}, {"id": 2, "n": 2}])
            assert transaction.table("t").count() == 2
            transaction.rollback()
        assert [(row["id"], row["n"]) for row in typed.table("t").scan()] == [(1, 1)]

    @pytest.mark.parametrize("engine", ENGINES)
    def test_merge_of_wrong_rows(self, typed: Storage, engine: str) -> None:
        """A merge of an unknown field, a wrong type or no key is `InvalidFieldError`, and nothing is written."""
        typed.admin.create(ENGINES[engine])
        view = typed.table("t")
        wrong: list[Any] = [{"id": 2, "n": "1"}, {"id": 2, "z": 1}, {"n": 1}, {"id": 2, "n": 2**31}, 7, {"id": None}]
        for row in wrong:
            with pytest.raises(InvalidFieldError):
                view.upsert(row)
            with pytest.raises(InvalidFieldError):
                view.upsert_many([{"id": 3}, row])
            with pytest.raises(InvalidFieldError):
                view.apply_changes([("+I", {"id": 3}), ("+U", row)])
        with pytest.raises(FieldSizeLimitError):
            view.upsert_many([{"id": 3, "n": 1}, {"id": 4, "n": 1, "b": "x" * 9_000_000}])
        assert view.count() == 0

    def test_row_after_the_merge_is_limited(self, typed: Storage) -> None:
        """A merged row over 8 MiB is `FieldSizeLimitError`, and the row stays."""
        typed.admin.create(PARTIAL)
        view = typed.table("t")
        view.upsert({"id": 1, "a": "x" * 5_000_000})
        grown = add(id=1, b="y" * 5_000_000)
        with pytest.raises(FieldSizeLimitError):
            view.upsert(grown[1])
        with pytest.raises(FieldSizeLimitError):
            self.in_transaction(typed, "t", grown)
        with pytest.raises(FieldSizeLimitError):
            self.in_job(typed, "t", [grown], False)
        row = view.read((1,), ["b"])
        assert row == {"id": 1, "b": None}

    def test_merges_of_wide_keys(self, typed: Storage) -> None:
        """Tables of a composite key merge by the whole key."""
        fields = [Field.string("k"), Field.long("n"), Field.date("at"), Field.bytes("j")]
        options = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
        typed.admin.create(TableSpecification("t", fields, ["j", "k"], ["at"], options))
        rows: list[Record] = [{"k": k, "j": j, "n": n} for n in range(3) for k in "ab" for j in (b"", b"\xff")]
        with typed.transaction() as transaction:
            transaction.table("t").upsert_many(rows)
            transaction.table("t").upsert_many(rows)
        assert [(*row.key, row["n"]) for row in typed.table("t").scan()] == [
            (j, k, 6) for j in (b"", b"\xff") for k in "ab"
        ]

    def test_many_merges(self, typed: Storage) -> None:
        """One call takes thousands of merges, many of them of one row."""
        typed.admin.create(table(merge_engine="partial-update"))
        rows: list[Record] = [{"id": n % 100, "n": n, "ab"[n % 2]: str(n)} for n in range(3000)]
        typed.table("t").upsert_many(rows)
        typed.table("t").upsert_many({**row, "b": None} for row in rows)
        found = [(row["id"], row["n"], row["a"], row["b"]) for row in typed.table("t").scan()]
        last = range(2900, 3000)
        assert found == [(n % 100, n, None, str(n)) if n % 2 else (n % 100, n, str(n), None) for n in last]

    def test_refused_change_leaves_the_transaction_usable(self, typed: Storage) -> None:
        """A refused retract is refused when called, has no effect, and the transaction continues."""
        typed.admin.create(PARTIAL)
        refused: list[list[Step]] = [[delete(id=1)], [add(id=2, n=2), preimage(id=1, n=1)]]
        with typed.transaction() as transaction:
            inside = transaction.table("t")
            inside.upsert({"id": 1, "n": 1})
            for steps in refused:
                with pytest.raises(UnsupportedOperationError):
                    inside.apply_changes(steps)
            inside.upsert({"id": 1, "a": "x"})
        assert [(row["id"], row["n"], row["a"]) for row in typed.table("t").scan()] == [(1, 1, "x")]

    def test_upsert_in_both_views(self, open_table: OpenTable) -> None:
        """`upsert` on a table with a merge engine is as the engine decides, in both views."""
        self.require("table_types")
        view = open_table(table(merge_engine="first-row"))
        view.upsert_many([{"id": 1, "n": 1}, {"id": 1, "n": 2}])
        view.upsert({"id": 1, "n": 3})
        assert [row["n"] for row in view.scan()] == [1]
