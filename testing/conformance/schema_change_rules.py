"""Rules of `create_or_update`."""

from __future__ import annotations

import pytest

from structable.spi import (
    Field,
    FieldSizeLimitError,
    FieldType,
    SchemaIncompatibleError,
    Storage,
    TableSpecification,
    Value,
    col,
)

from .case import ConformanceCase
from .samples import ITEMS, NOTED, item, keys, plain

INTEGERS = [FieldType.BYTE, FieldType.SHORT, FieldType.INT, FieldType.LONG]
WIDER = TableSpecification("noted", [*NOTED.fields, Field.int("added")], ["id"], ["note"])
"""NOTED with a new field and a new index."""


def with_value(kind: FieldType, indexes: tuple[str, ...] = ()) -> TableSpecification:
    """Return a table with one field of the type."""
    return TableSpecification("t", [Field.int("k"), Field("v", kind)], ["k"], indexes)


class SchemaChangeRules(ConformanceCase):
    """The changes that `create_or_update` makes or rejects, and when others see them."""

    def test_it_creates_an_absent_table(self, storage: Storage) -> None:
        """`create_or_update` creates a missing table."""
        storage.admin.create_or_update(ITEMS)
        assert storage.admin.get_specification("items") == ITEMS

    def test_equal_specification_changes_nothing(self, storage: Storage) -> None:
        """It does nothing for an equal specification, and ignores the order of fields and of indexes."""
        storage.admin.create(ITEMS)
        storage.table("items").upsert(item(1, tag="a"))
        storage.admin.create_or_update(ITEMS)
        turned = TableSpecification("items", ITEMS.fields[::-1], ITEMS.primary_key, ITEMS.indexes[::-1])
        storage.admin.create_or_update(turned)
        assert set(storage.admin.get_specification("items").fields) == set(ITEMS.fields)
        assert plain(storage.table("items").scan()) == [item(1, tag="a")]

    def test_new_fields_read_null(self, storage: Storage) -> None:
        """It adds new non-key fields of any type, wherever they stand; existing rows read null in them."""
        storage.admin.create(NOTED)
        table = storage.table("noted")
        table.upsert_many([{"id": "a", "n": 1}, {"id": "b", "note": "x"}])
        added = [Field.decimal("d", 5, 2), Field.timestamp("at"), Field.boolean("flag"), Field.bytes("raw")]
        storage.admin.create_or_update(TableSpecification("noted", [*added, *NOTED.fields], ["id"]))
        nulls: dict[str, Value] = {field.name: None for field in added}
        assert plain(table.scan()) == [
            {"id": "a", "n": 1, "note": None, **nulls},
            {"id": "b", "n": None, "note": "x", **nulls},
        ]
        assert table.count(where=col("flag").is_null()) == 2
        table.upsert({"id": "a", "flag": True})
        assert table.read(("a",)) == {"id": "a", "n": 1, "note": None, **nulls, "flag": True}
        assert keys(table.scan(where=col("flag").is_null())) == [("b",)]

    def test_new_index_covers_existing_rows(self, storage: Storage) -> None:
        """It adds new indexes, on old and on new fields; they cover existing rows."""
        storage.admin.create(NOTED)
        table = storage.table("noted")
        table.upsert_many([{"id": str(number), "note": "ab"[number % 2], "n": None} for number in range(8)])
        fields = [*NOTED.fields, Field.int("rank")]
        storage.admin.create_or_update(TableSpecification("noted", fields, ["id"], ["note", "rank"]))
        assert keys(table.scan_index("note", "a")) == [("0",), ("2",), ("4",), ("6",)]
        assert keys(table.scan_index("rank", None)) == [(str(number),) for number in range(8)]
        assert keys(table.scan(order_by="note", limit=5)) == [("0",), ("2",), ("4",), ("6",), ("1",)]
        table.upsert({"id": "0", "note": "b", "rank": 1})
        assert keys(table.scan_index("note", "a")) == [("2",), ("4",), ("6",)]
        assert keys(table.scan_index("rank", 1)) == [("0",)]

    @pytest.mark.parametrize("indexes", [("a", "b"), ("b", "a")])
    def test_refused_indexes_leave_nothing_behind(self, storage: Storage, indexes: tuple[str, ...]) -> None:
        """If a row does not fit one of several new indexes, none is added, and later rows need not fit them."""
        spec = TableSpecification("t", [Field.int("k"), Field.string("a"), Field.string("b")], ["k"])
        storage.admin.create(spec)
        table = storage.table("t")
        table.upsert({"k": 1, "a": "x", "b": "y" * 3_000})
        with pytest.raises(FieldSizeLimitError):
            storage.admin.create_or_update(spec.evolve(indexes=indexes))
        assert storage.admin.get_specification("t") == spec
        table.upsert({"k": 2, "a": "x" * 3_000, "b": None})
        assert keys(table.scan(where=col("a") == "x")) == [(1,)]

    @pytest.mark.parametrize(("narrow", "wide"), [(n, w) for n in range(4) for w in range(n + 1, 4)])
    @pytest.mark.parametrize("indexes", [(), ("v",)], ids=["plain", "indexed"])
    def test_integers_widen(self, storage: Storage, narrow: int, wide: int, indexes: tuple[str, ...]) -> None:
        """It widens non-key fields BYTE to SHORT to INT to LONG, indexed or not; the values and their order stay."""
        before, after = INTEGERS[narrow], INTEGERS[wide]
        storage.admin.create(with_value(before, indexes))
        table = storage.table("t")
        least, most = -(2 ** (before.integer_bits - 1)), 2 ** (before.integer_bits - 1) - 1
        table.upsert_many([{"k": 1, "v": least}, {"k": 2, "v": most}, {"k": 3, "v": None}, {"k": 4, "v": -1}])
        storage.admin.create_or_update(with_value(after, indexes))
        assert storage.admin.get_specification("t") == with_value(after, indexes)
        table.upsert({"k": 5, "v": most + 1})
        assert [row["v"] for row in table.scan()] == [least, most, None, -1, most + 1]
        assert keys(table.scan(where=col("v") < most + 1)) == [(1,), (2,), (4,)]
        table.increment((2,), "v")
        assert keys(table.scan(where=col("v") == most + 1)) == [(2,), (5,)]
        if indexes:
            assert keys(table.scan_index("v", most + 1)) == [(2,), (5,)]
            assert keys(table.scan_index("v", -1)) == [(4,)]
            assert keys(table.scan(order_by="v")) == [(3,), (1,), (4,), (2,), (5,)]

    def test_float_widens_to_double(self, storage: Storage) -> None:
        """It widens FLOAT to DOUBLE: old values stay as they were rounded, new ones are not rounded."""
        storage.admin.create(with_value(FieldType.FLOAT))
        table = storage.table("t")
        table.upsert({"k": 1, "v": 0.1})
        storage.admin.create_or_update(with_value(FieldType.DOUBLE))
        table.upsert({"k": 2, "v": 0.1})
        assert [row["v"] for row in table.scan()] == [0.10000000149011612, 0.1]
        assert keys(table.scan(where=col("v") == 0.1)) == [(2,)]

    @pytest.mark.parametrize(
        "spec",
        [
            TableSpecification("noted", [Field.string("id"), Field.string("note"), Field.double("n")], ["id"]),
            TableSpecification("noted", [Field.string("id"), Field.bytes("note"), Field.long("n")], ["id"]),
            TableSpecification("noted", [*NOTED.fields, Field.int("k2")], ["id", "k2"]),
            TableSpecification("noted", NOTED.fields, ["n"]),
            TableSpecification("noted", NOTED.fields, ["id"], options={"merge-engine": "first-row"}),
            TableSpecification("noted", [*NOTED.fields[:2], Field.long("N")], ["id"]),
        ],
        ids=[
            "long to double",
            "retyped",
            "key extended",
            "other key",
            "options",
            "renamed by case",
        ],
    )
    def test_all_else_is_refused(self, storage: Storage, spec: TableSpecification) -> None:
        """It rejects every other change with `SchemaIncompatibleError`, and changes nothing."""
        storage.admin.create(NOTED)
        storage.table("noted").upsert({"id": "a", "n": 1})
        with pytest.raises(SchemaIncompatibleError) as refusal:
            storage.admin.create_or_update(spec)
        assert refusal.value.table == "noted"
        assert refusal.value.differences
        assert storage.admin.get_specification("noted") == NOTED
        assert plain(storage.table("noted").scan()) == [{"id": "a", "note": None, "n": 1}]

    @pytest.mark.parametrize(
        ("before", "after"),
        [(FieldType.INT, FieldType.LONG), (FieldType.BYTE, FieldType.SHORT), (FieldType.LONG, FieldType.INT)],
    )
    def test_key_fields_keep_their_type(self, storage: Storage, before: FieldType, after: FieldType) -> None:
        """Only non-key fields are widened, or may be wider than a specification has them."""
        storage.admin.create(TableSpecification("t", [Field("k", before)], ["k"]))
        with pytest.raises(SchemaIncompatibleError):
            storage.admin.create_or_update(TableSpecification("t", [Field("k", after)], ["k"]))

    def test_decimals_do_not_widen(self, storage: Storage) -> None:
        """Precision and scale do not change."""
        storage.admin.create(TableSpecification("t", [Field.int("k"), Field.decimal("d", 5, 2)], ["k"]))
        for precision, scale in ((6, 2), (5, 1), (4, 2)):
            with pytest.raises(SchemaIncompatibleError):
                storage.admin.create_or_update(
                    TableSpecification("t", [Field.int("k"), Field.decimal("d", precision, scale)], ["k"])
                )

    def test_every_difference_is_listed(self, storage: Storage) -> None:
        """The error lists every difference, not only the first; permitted changes of the call are not made either."""
        storage.admin.create(ITEMS)
        fields = [
            Field.int("id"),
            Field.double("n"),
            Field.bytes("tag"),
            Field.string("note"),
            Field.long("rank"),
            Field.int("Cost"),
            Field.int("new"),
        ]
        with pytest.raises(SchemaIncompatibleError) as refusal:
            storage.admin.create_or_update(TableSpecification("items", fields, ["id"], ["note"]))
        assert len(refusal.value.differences) == 4
        for name in ("id", "n", "tag", "Cost"):
            assert any(repr(name) in difference for difference in refusal.value.differences), name
        assert storage.admin.get_specification("items") == ITEMS

    def test_next_transaction_uses_the_new_schema(self, storage: Storage) -> None:
        """A transaction that begins after an admin call uses the new schema; a view does with its next call."""
        storage.admin.create(NOTED)
        view = storage.table("noted")
        view.upsert({"id": "a"})
        storage.admin.create_or_update(WIDER)
        with storage.transaction() as transaction:
            table = transaction.table("noted")
            assert table.specification == WIDER
            table.upsert({"id": "b", "added": 1, "note": "x"})
        assert plain(view.scan_index("note", "x")) == [{"id": "b", "note": "x", "n": None, "added": 1}]
        storage.admin.drop_index("noted", "note")
        assert view.specification.indexes == ()
        storage.admin.drop("noted")
        storage.admin.create(TableSpecification("noted", [Field.int("other")], ["other"]))
        view.upsert({"other": 1})
        assert plain(view.scan()) == [{"other": 1}]
