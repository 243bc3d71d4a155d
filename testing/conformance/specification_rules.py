"""Rules of table specifications: which are legal, and that every legal one can be created and used."""

from __future__ import annotations

import pytest

from structable.spi import Field, FieldType, InvalidSpecificationError, Storage, TableSpecification, Value

from .case import ConformanceCase, OpenTable
from .samples import EXTREMES, TYPES, plain, type_name

RESERVED = [
    "select",
    "table",
    "user",
    "order",
    "group",
    "null",
    "primary",
    "index",
    "end",
    "ctid",
    "xmin",
    "oid",
    "tableoid",
]
"""SQL words and names of PostgreSQL's system columns: all of them are legal names."""

KEYABLE = list(EXTREMES.keys() - {FieldType.FLOAT, FieldType.DOUBLE, FieldType.DECIMAL})
KEYABLE.sort(key=lambda kind: kind.value)


def _field(name: str, kind: FieldType) -> Field:
    return Field(name, kind, *((10, 2) if kind is FieldType.DECIMAL else ()))


def _build(**changes: object) -> TableSpecification:
    parts: dict[str, object] = {
        "name": "t",
        "fields": [Field.int("k"), Field.int("v"), Field.double("d")],
        "primary_key": ["k"],
        **changes,
    }
    return TableSpecification(**parts)  # type: ignore[arg-type] # wrong types on purpose


class SpecificationRules(ConformanceCase):
    """Names, keys, indexes, and when they are checked."""

    @pytest.mark.parametrize(
        ("changes", "named"),
        [
            ({"name": "1t"}, "1t"),
            ({"name": ""}, "''"),
            ({"name": "a-b"}, "a-b"),
            ({"name": "a" * 49}, "a" * 49),
            ({"name": "tablé"}, "tablé"),
            ({"name": "t\n"}, "t"),
            ({"fields": [Field.int("_k")], "primary_key": ["_k"]}, "_k"),
            ({"fields": [Field.int("k"), Field.int("k")]}, "k"),
            ({"fields": [Field.int("k"), Field.int("value"), Field.int("VALUE")]}, "VALUE"),
            ({"fields": [], "primary_key": []}, "field"),
            ({"primary_key": []}, "primary key"),
            ({"primary_key": ["k", "k"]}, "k"),
            ({"primary_key": ["missing"]}, "missing"),
            ({"primary_key": ["d"]}, "d"),
            ({"indexes": ["k"]}, "k"),
            ({"indexes": ["d"]}, "d"),
            ({"indexes": ["missing"]}, "missing"),
            ({"indexes": ["v", "v"]}, "v"),
            ({"indexes": [("v", "k")]}, "v"),
            ({"fields": [Field.int("k"), Field.decimal("v", 0, 0)]}, "v"),
            ({"fields": [Field.int("k"), Field.decimal("v", 39, 0)]}, "v"),
            ({"fields": [Field.int("k"), Field.decimal("v", 5, 6)]}, "v"),
            ({"fields": [Field.int("k"), Field.decimal("v", 5, -1)]}, "v"),
            ({"options": {"a": 1}}, "a"),
        ],
        ids=lambda value: "-" if isinstance(value, dict) else None,
    )
    def test_illegal_specification_is_refused_when_built(self, changes: dict[str, object], named: str) -> None:
        """Breaking any rule of specifications raises `InvalidSpecificationError` at construction, naming the rule."""
        with pytest.raises(InvalidSpecificationError) as refusal:
            _build(**changes)
        assert named in str(refusal.value)

    def test_at_most_sixteen_key_fields(self) -> None:
        """A primary key has 1 to 16 fields."""
        fields = [Field.int(f"k{number}") for number in range(17)]
        names = [field.name for field in fields]
        assert TableSpecification("t", fields, names[:16]).primary_key == tuple(names[:16])
        with pytest.raises(InvalidSpecificationError, match="16"):
            TableSpecification("t", fields, names)

    def test_fields_check_nothing_when_built(self) -> None:
        """`Field` checks nothing when it is built; its specification does."""
        field = Field.decimal("not a name", 99, -1)
        with pytest.raises(InvalidSpecificationError):
            TableSpecification("t", [field, Field.int("k")], ["k"])

    def test_specifications_and_fields_are_equal_by_content(self) -> None:
        """Specifications and fields are equal by content, and show their parts."""
        spec = _build(indexes=["v"], options={"user.a": "b"})
        assert spec == _build(indexes=["v"], options={"user.a": "b"})
        assert hash(spec) == hash(_build(indexes=["v"], options={"user.a": "b"}))
        assert spec != _build(indexes=["v"])
        assert spec != _build(options={"user.a": "b"})
        assert Field.decimal("d", 5, 2) == Field.decimal("d", 5, 2) != Field.decimal("d", 5, 3)
        assert (spec.name, spec.primary_key, tuple(spec.indexes), dict(spec.options)) == (
            "t",
            ("k",),
            ("v",),
            {"user.a": "b"},
        )
        field = TYPES.field("decimal")
        assert (field.name, field.type, field.precision, field.scale) == ("decimal", FieldType.DECIMAL, 38, 10)

    @pytest.mark.parametrize("name", ["a", "Z", "a" * 48, "A_b9", *RESERVED])
    def test_every_legal_name_works(self, storage: Storage, name: str) -> None:
        """Names are 1 to 48 letters, digits and underscores after a letter; reserved words of SQL are legal."""
        spec = TableSpecification(name, [Field.int("k"), Field.string(name), Field.int("v")], ["k"], [name])
        storage.admin.create(spec)
        assert storage.admin.get_specification(name) == spec
        table = storage.table(name)
        table.upsert({"k": 1, name: "x"})
        assert plain(table.scan_index(name, "x")) == [{"k": 1, name: "x", "v": None}]

    def test_reserved_names_as_key_fields(self, storage: Storage) -> None:
        """Reserved words are legal names of key fields, even of sixteen."""
        names = [*RESERVED, "Where", "limit", "desc"]
        assert len(names) == 16
        storage.admin.create(TableSpecification("from", [Field.string(name) for name in names], names))
        row: dict[str, Value] = {name: f"value of {name}" for name in names}
        storage.table("from").upsert(row)
        assert plain(storage.table("from").scan()) == [row]
        assert storage.table("from").read(tuple(row.values())) == row

    def test_names_keep_their_case(self, storage: Storage) -> None:
        """Names keep their case, in the catalog and in rows."""
        spec = TableSpecification("MixedCase", [Field.int("Key"), Field.string("camelCase")], ["Key"], ["camelCase"])
        storage.admin.create(spec)
        assert storage.admin.list() == ["MixedCase"]
        storage.table("MixedCase").upsert({"Key": 1, "camelCase": "Value"})
        assert plain(storage.table("MixedCase").scan()) == [{"Key": 1, "camelCase": "Value"}]

    @pytest.mark.parametrize("kind", KEYABLE, ids=type_name)
    def test_every_keyable_type_is_a_key_and_an_index(self, storage: Storage, kind: FieldType) -> None:
        """Every key-able type may be the primary key, and may be indexed."""
        spec = TableSpecification("t", [_field("k", kind), _field("v", kind)], ["k"], ["v"])
        storage.admin.create(spec)
        table = storage.table("t")
        samples = EXTREMES[kind]
        table.upsert_many([{"k": value, "v": value} for value in samples])
        assert [row["k"] for row in table.scan()] == samples
        for value in samples:
            assert table.read((value,)) == {"k": value, "v": value}
            assert plain(table.scan_index("v", value)) == [{"k": value, "v": value}]

    def test_specification_comes_back_whole(self, storage: Storage) -> None:
        """`get_specification` returns name, fields with precision and scale, key, indexes and options."""
        spec = TableSpecification(
            "whole",
            [_field(f"f_{kind.value}", kind) for kind in FieldType],
            ["f_string", "f_timestamp", "f_boolean"],
            ["f_bytes", "f_date", "f_long"],
        )
        storage.admin.create(spec)
        assert storage.admin.get_specification("whole") == spec
        assert storage.table("whole").specification == spec

    def test_table_of_key_fields_only(self, open_table: OpenTable) -> None:
        """At least one field is needed, and all of them may belong to the key."""
        table = open_table(TableSpecification("keys", [Field.int("k")], ["k"]))
        table.upsert({"k": 2})
        table.replace({"k": 1})
        table.insert({"k": 3})
        table.update({"k": 3})
        assert [row.key for row in table.scan()] == [(1,), (2,), (3,)]
        table.delete((2,))
        assert table.count() == 2
