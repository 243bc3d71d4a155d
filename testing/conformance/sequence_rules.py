"""Rules of sequences: `sequence.field`, together with `soft-delete.field`, and sequence groups of partial-update."""

from __future__ import annotations

import datetime as dt

from structable.spi import Field, InvalidFieldError, Storage, TableSpecification, UnsupportedOperationError, Value

from .merge_case import MergeCase, Step, add, delete, postimage, preimage
from .samples import KEY_ORDER

FIELDS = [
    Field.long("id"),
    Field.int("s"),
    Field.string("t"),
    Field.int("n"),
    Field.string("a"),
    Field.string("b"),
    Field.long("total"),
    Field.long("seen"),
    Field.boolean("gone"),
]


def _table(options: dict[str, str]) -> TableSpecification:
    return TableSpecification("t", FIELDS, ["id"], options=options)


BY_ONE = _table({"sequence.field": "s"})
BY_TWO = _table({"sequence.field": "s,t"})
SOFT = _table({"sequence.field": "s", "soft-delete.field": "gone"})
SOFT_BY_TWO = _table({"sequence.field": "s,t", "soft-delete.field": "gone"})
GROUPS = _table({"merge-engine": "partial-update", "fields.s.sequence-group": "n,a", "fields.t.sequence-group": "gone"})
"""A table with two sequence groups; the fields b, total and seen are outside them."""
AGGREGATED = {
    "merge-engine": "partial-update",
    "fields.s,t.sequence-group": "a,total,seen,n",
    "fields.total.aggregate-function": "sum",
    "fields.seen.aggregate-function": "count",
    "fields.n.aggregate-function": "max",
}


class SequenceRules(MergeCase):
    """A change of a lower sequence changes nothing that is newer."""

    def test_sequence_takes_the_whole_row(self, typed: Storage) -> None:
        """With `sequence.field` every merge takes the whole row: unnamed fields become null."""
        self.merge(
            typed,
            BY_ONE,
            ([add(s=1, a="x", n=1), add(s=2, b="y")], {"s": 2, "b": "y"}),
            ([add(s=1, a="x"), postimage(s=1)], {"s": 1}),
            ([postimage(a="x")], {"a": "x"}),
        )

    def test_lower_sequence_is_ignored(self, typed: Storage) -> None:
        """A merge is ignored if its sequence is lower than the stored one; null is lowest, an equal one counts."""
        self.merge(
            typed,
            BY_ONE,
            ([add(s=2, a="x"), add(s=1, a="y"), postimage(s=-1)], {"s": 2, "a": "x"}),
            ([add(s=2, a="x"), add(s=2, b="y")], {"s": 2, "b": "y"}),
            ([add(s=1, a="x"), add(a="y"), add(s=None, a="z")], {"s": 1, "a": "x"}),
            ([add(a="x"), add(b="y")], {"b": "y"}),
            ([add(a="x"), add(s=-(2**31), b="y")], {"s": -(2**31), "b": "y"}),
        )

    def test_sequence_of_several_fields(self, typed: Storage) -> None:
        """Several sequence fields compare in order, null lowest in each."""
        self.merge(
            typed,
            BY_TWO,
            ([add(s=1, t="b", n=1), add(s=1, t="a", n=2)], {"s": 1, "t": "b", "n": 1}),
            ([add(s=1, t="b", n=1), add(s=2, t="a", n=2)], {"s": 2, "t": "a", "n": 2}),
            ([add(s=1, t="b", n=1), add(s=2, n=2)], {"s": 2, "n": 2}),
            ([add(s=1, t="", n=1), add(s=1, n=2)], {"s": 1, "t": "", "n": 1}),
            ([add(s=1, n=1), add(s=1, t="", n=2)], {"s": 1, "t": "", "n": 2}),
            ([add(s=-5, n=1), add(t="z", n=2)], {"s": -5, "n": 1}),
            ([add(t="a", n=1), add(t="z", n=2), add(n=3)], {"t": "z", "n": 2}),
            ([add(s=1, t="\uffff", n=1), add(s=1, t="\U00010000", n=2)], {"s": 1, "t": "\U00010000", "n": 2}),
        )

    def test_sequence_of_every_type(self, typed: Storage) -> None:
        """Sequences compare as the contract orders keys, in every key-able type."""
        for kind, values in KEY_ORDER.items():
            spec = TableSpecification(
                "t", [Field.long("id"), Field("s", kind), Field.int("n")], ["id"], options={"sequence.field": "s"}
            )
            typed.admin.create(spec)
            view = typed.table("t")
            ascending = [{"id": 1, "s": value, "n": place} for place, value in enumerate([None, *values])]
            for row in ascending:
                view.upsert(row)
            view.upsert_many(ascending[:-1])
            view.upsert_many({**row, "id": 2} for row in reversed(ascending))
            assert [row["n"] for row in view.scan()] == [len(values)] * 2, kind
            typed.admin.drop("t")

    def test_retract_by_sequence(self, typed: Storage) -> None:
        """A retract of a lower sequence is ignored; one of an equal or higher sequence deletes the row."""
        self.merge(
            typed,
            BY_ONE,
            ([add(s=2, a="x"), delete(s=1)], {"s": 2, "a": "x"}),
            ([add(s=2, a="x"), preimage(s=1, a="x")], {"s": 2, "a": "x"}),
            ([add(s=2, a="x"), delete(s=2)], None),
            ([add(s=2, a="x"), preimage(s=3)], None),
            ([add(a="x"), delete(s=-9)], None),
            ([delete(s=1)], None),
        )

    def test_retract_without_a_sequence_always_deletes(self, typed: Storage) -> None:
        """A retract whose sequence fields are all null or unnamed always deletes."""
        self.merge(
            typed,
            BY_ONE,
            ([add(s=2, a="x"), delete()], None),
            ([add(s=2, a="x"), preimage(s=None, a="x")], None),
        )
        typed.admin.drop("t")
        self.merge(
            typed,
            BY_TWO,
            ([add(s=2, t="x"), delete(n=1)], None),
            ([add(s=2, t="x"), delete(t="z")], {"s": 2, "t": "x"}),
        )

    def test_deleted_row_leaves_nothing_behind(self, typed: Storage) -> None:
        """A late add restores a deleted row."""
        self.merge(
            typed,
            BY_ONE,
            ([add(s=5, a="x"), delete(s=6), add(s=1, a="late")], {"s": 1, "a": "late"}),
            ([delete(s=6), add(s=1, a="late")], {"s": 1, "a": "late"}),
            ([add(s=5), delete(s=6), add(s=3, a="x"), delete(s=4), add(s=1)], {"s": 1}),
            ([add(s=5), delete(s=7), add(s=1), delete(s=0)], {"s": 1}),
        )

    def test_retracts_and_late_adds_of_one_call(self, typed: Storage) -> None:
        """A retract keeps older changes out only while the row exists, also within one call or job."""
        view = self.merge(typed, BY_ONE, ([add(s=9, a="x"), delete(s=5), add(s=4, a="y")], {"s": 9, "a": "x"}))
        steps: list[Step] = [delete(s=5), add(s=4, a="y"), add(s=3, a="z")]
        for stored, expected in [(9, 9), (5, 4), (1, 4), (None, 4)]:
            view.replace({"id": 1, "s": stored})
            view.apply_changes([(kind, {"id": 1, **row}) for kind, row in steps])
            row = view.read((1,))
            assert row is not None
            assert row["s"] == expected

    def test_soft_delete_by_sequence(self, typed: Storage) -> None:
        """With a sequence and `soft-delete.field` a delete prevails over a late add, in whatever order they come."""
        self.merge(
            typed,
            SOFT,
            ([add(s=1, a="x"), delete(s=2)], {"s": 2, "gone": True}),
            ([add(s=1, a="x"), delete(s=2, a="x"), add(s=1, a="late")], {"s": 2, "a": "x", "gone": True}),
            ([delete(s=2), add(s=1, a="late")], {"s": 2, "gone": True}),
            ([delete(s=2), add(s=3, a="x")], {"s": 3, "a": "x", "gone": False}),
            ([delete(s=2), postimage(s=2, a="x")], {"s": 2, "a": "x", "gone": False}),
            ([add(s=3, a="x"), preimage(s=2)], {"s": 3, "a": "x", "gone": False}),
        )

    def test_soft_delete_must_name_its_sequence(self, typed: Storage) -> None:
        """Where a row is marked as deleted by sequence, a retract whose sequence is all null is `InvalidFieldError`."""
        refused: list[Step] = [delete(), preimage(s=None, a="x")]
        self.refuse(typed, SOFT, [add(s=1, a="x")], refused, InvalidFieldError, "s")
        typed.admin.drop("t")
        self.refuse(typed, SOFT_BY_TWO, [add(s=1, t="x")], [delete(n=1), delete(s=None)], InvalidFieldError, "s")
        typed.admin.drop("t")
        self.merge(typed, SOFT_BY_TWO, ([add(t="a", n=1), delete(t="b")], {"t": "b", "gone": True}))

    def test_sequence_group(self, typed: Storage) -> None:
        """If the given sequence is not lower, its group takes the given values, nulls for unnamed fields included."""
        self.merge(
            typed,
            GROUPS,
            ([add(s=1, n=1, a="x"), add(s=2, a="y")], {"s": 2, "a": "y"}),
            ([add(s=1, n=1, a="x"), add(s=1, n=None, a="y")], {"s": 1, "a": "y"}),
            ([add(s=1, n=1, a="x", t="a", gone=True), add(s=2)], {"s": 2, "t": "a", "gone": True}),
            ([add(n=1, a="x")], {}),
        )

    def test_lower_sequence_of_a_group(self, typed: Storage) -> None:
        """If the given sequence is lower, the members and the sequence stay; other groups and fields are unaffected."""
        self.merge(
            typed,
            GROUPS,
            ([add(s=2, a="x"), add(s=1, n=1, a="y", b="z")], {"s": 2, "a": "x", "b": "z"}),
            (
                [add(s=2, a="x", t="a", gone=False), add(s=1, a="y", t="b", gone=True)],
                {"s": 2, "a": "x", "t": "b", "gone": True},
            ),
        )

    def test_group_without_a_sequence_is_untouched(self, typed: Storage) -> None:
        """A change whose sequence is null or unnamed leaves its group as it is."""
        self.merge(
            typed,
            GROUPS,
            ([add(s=1, n=1, a="x"), add(n=2, a="y", b="z")], {"s": 1, "n": 1, "a": "x", "b": "z"}),
            ([add(s=1, n=1), add(s=None, n=2)], {"s": 1, "n": 1}),
        )

    def test_fields_outside_groups(self, typed: Storage) -> None:
        """A field outside groups takes the value given unless that is null, in the order of the changes."""
        self.merge(
            typed,
            GROUPS,
            ([add(s=2, b="x", total=1), add(s=1, b="y", total=None)], {"s": 2, "b": "y", "total": 1}),
        )

    def test_group_of_several_sequence_fields(self, typed: Storage) -> None:
        """Several sequence fields of a group compare in order, null lowest; one that is not null makes a sequence."""
        spec = _table({"merge-engine": "partial-update", "fields.s,t.sequence-group": "n"})
        self.merge(
            typed,
            spec,
            ([add(s=1, t="b", n=1), add(s=1, t="a", n=2)], {"s": 1, "t": "b", "n": 1}),
            ([add(s=1, t="b", n=1), add(s=2, n=2)], {"s": 2, "n": 2}),
            ([add(s=1, n=1), add(t="z", n=2)], {"s": 1, "n": 1}),
            ([add(t="a", n=1), add(t="b", n=2)], {"t": "b", "n": 2}),
        )

    def test_aggregates_in_groups(self, typed: Storage) -> None:
        """Members with a function are aggregated, whether their sequence is late or not."""
        self.merge(
            typed,
            _table(AGGREGATED),
            (
                [add(s=2, a="x", total=5, seen=7, n=1), add(s=1, a="y", total=3, seen=7, n=4)],
                {"s": 2, "a": "x", "total": 8, "seen": 2, "n": 4},
            ),
            ([add(s=1, total=5), add(s=2, a="y")], {"s": 2, "a": "y", "total": 5}),
            ([add(s=1, total=5), add(total=7, seen=1)], {"s": 1, "total": 5}),
            ([add(s=1, total=5), add(s=2, total=None, n=None)], {"s": 2, "total": 5}),
        )

    def test_retract_with_groups(self, typed: Storage) -> None:
        """A retract with groups acts as an add whose plain members are null; members with a function are retracted."""
        self.merge(
            typed,
            _table(AGGREGATED),
            (
                [add(s=1, a="x", b="z", total=5, seen=1), delete(s=2, a="x", b="y", total=3, seen=1)],
                {"s": 2, "b": "z", "total": 2, "seen": 0},
            ),
            ([add(s=2, a="x", total=5), preimage(s=1, a="x", total=3)], {"s": 2, "a": "x", "total": 2}),
            (
                [add(s=2, a="x", total=5, b="z"), delete(a="x", total=3, b="y")],
                {"s": 2, "a": "x", "total": 5, "b": "z"},
            ),
        )

    def test_retract_of_an_absent_row_with_groups(self, typed: Storage) -> None:
        """A retract with groups puts an absent row, so late adds stay late; without a sequence it writes nothing."""
        self.merge(
            typed,
            _table(AGGREGATED),
            ([delete(s=2, a="x", total=3, seen=1), add(s=1, a="y")], {"s": 2, "total": -3, "seen": -1}),
            ([preimage(s=2, b="x")], {"s": 2}),
            ([delete(a="x", b="y", total=3)], None),
            ([delete(s=None, t=None)], None),
        )

    def test_ignore_delete_with_groups(self, typed: Storage) -> None:
        """`ignore-delete` drops retracts of tables with groups too."""
        self.merge(
            typed,
            _table({**AGGREGATED, "ignore-delete": "true"}),
            ([add(s=1, a="x", total=5), delete(s=2, total=1)], {"s": 1, "a": "x", "total": 5}),
            ([delete(s=2)], None),
        )

    def test_refused_retract_in_groups(self, typed: Storage) -> None:
        """Retracting a value of another function than sum and count is refused; the error names field and function."""
        refused: list[Step] = [delete(s=2, n=1), preimage(s=0, n=1, total=1)]
        before: list[Step] = [add(s=1, n=1, total=1)]
        self.refuse(typed, _table(AGGREGATED), before, refused, UnsupportedOperationError, "n", "max")
        typed.admin.drop("t")
        self.merge(
            typed,
            _table({**AGGREGATED, "fields.n.ignore-retract": "true", "fields.total.ignore-retract": "true"}),
            ([add(s=1, n=1, total=1), delete(s=2, n=1, total=1)], {"s": 2, "n": 1, "total": 1}),
            ([add(s=1, n=1, total=1), preimage(s=0, n=None)], {"s": 1, "n": 1, "total": 1}),
        )

    def test_sequence_of_instants(self, typed: Storage) -> None:
        """Sequences of times compare by instant."""
        spec = TableSpecification(
            "t", [Field.long("id"), Field.timestamp("s"), Field.int("n")], ["id"], options={"sequence.field": "s"}
        )
        late, early = (
            dt.datetime(2024, 1, 1, hour, tzinfo=dt.timezone(dt.timedelta(hours=zone)))
            for hour, zone in ((1, 0), (2, 2))
        )
        steps: list[tuple[Value, int]] = [(late, 1), (early, 2)]
        self.merge(typed, spec, ([add(s=s, n=n) for s, n in steps], {"s": late, "n": 1}))
