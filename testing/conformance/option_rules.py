"""Rules of table options: which are allowed, how they are kept, and which changes `create_or_update` makes."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import pytest

from structable.spi import (
    Field,
    InvalidSpecificationError,
    SchemaIncompatibleError,
    Storage,
    TableSpecification,
    UnsupportedOperationError,
    connect,
    specification_from_document,
    specification_to_document,
)

from .merge_case import MergeCase

FIELDS = [
    Field.long("id"),
    Field.boolean("gone"),
    Field.int("n"),
    Field.long("at"),
    Field.string("text"),
    Field.double("cost"),
    Field.decimal("price", 10, 2),
    Field.bytes("raw"),
]
AGGREGATION = {"merge-engine": "aggregation"}
PARTIAL = {"merge-engine": "partial-update"}
GROUPED = {**PARTIAL, "fields.at.sequence-group": "n,text"}
KEYLESS = {"write-mode": "change-log"}
FIRST_ROW = {"merge-engine": "first-row"}
COMPACTION = {"changelog-producer": "full-compaction"}


def table(options: Mapping[str, str] | None = None, *extra: Field) -> TableSpecification:
    """Return a keyed table with these options."""
    return TableSpecification("t", [*FIELDS, *extra], ["id"], options=options)


def _keyless(options: Mapping[str, str]) -> TableSpecification:
    return TableSpecification("t", FIELDS, options=options)


ALLOWED: list[TableSpecification] = [
    table({"write-mode": "change-log", "merge-engine": "deduplicate", "ignore-delete": "true"}),
    _keyless({"write-mode": "append-only"}),
    _keyless(KEYLESS),
    table({"sequence.field": "at"}),
    table({"sequence.field": "at,text", "soft-delete.field": "gone"}),
    table({"sequence.field": " at , text ", "soft-delete.field": " gone "}),
    table({"sequence.field": "raw", "ignore-delete": "false", "user.owner": "me", "user.": ""}),
    table({**AGGREGATION, "fields.n.aggregate-function": "sum", "fields.text.aggregate-function": "listagg"}),
    table(
        {
            **AGGREGATION,
            "fields.default-aggregate-function": "max",
            "fields.text.aggregate-function": "listagg",
            "fields.text.list-agg-delimiter": "; ",
            "fields.text.distinct": "true",
            "fields.cost.aggregate-function": "product",
            "fields.cost.ignore-retract": "true",
            "remove-record-on-delete": "true",
        }
    ),
    table({**AGGREGATION, "ignore-delete": "true", "remove-record-on-delete": "false"}),
    table({**PARTIAL, "remove-record-on-delete": "true"}),
    table(
        {
            **PARTIAL,
            "fields.at.sequence-group": "n,cost",
            "fields.text,raw.sequence-group": "gone,price",
            "fields.n.aggregate-function": "count",
            "fields.price.aggregate-function": "sum",
            "fields.price.ignore-retract": "true",
            "fields.gone.aggregate-function": "bool_or",
            "ignore-delete": "true",
        }
    ),
    table({**FIRST_ROW, "ignore-delete": "true"}),
    table({"changelog-producer": "none"}),
]
"""Specifications that every store with table types keeps."""

WITH_FEEDS = [
    {"changelog-producer": "input"},
    {"changelog-producer": "lookup", "changelog.time-retained": "90 min"},
    {**COMPACTION, "changelog-producer.compaction-interval": "500ms", "changelog.time-retained": "36h"},
    {**COMPACTION, "changelog-producer.compaction-interval": "1 d"},
]

REFUSED: dict[str, list[dict[str, str]]] = {
    "write-mode": [{"write-mode": "append-only"}, {"write-mode": "log"}],
    "merge-engine": [{"merge-engine": "sum"}, {"merge-engine": ""}],
    "sequence.field": [
        *({"sequence.field": fields} for fields in ("id", "cost", "price", "unknown", "at,at", "at,", "")),
        *({**engine, "sequence.field": "at"} for engine in (PARTIAL, AGGREGATION, FIRST_ROW)),
    ],
    "soft-delete.field": [
        *({"soft-delete.field": field} for field in ("n", "unknown", "", "gone,gone")),
        *({**engine, "soft-delete.field": "gone"} for engine in (PARTIAL, AGGREGATION, FIRST_ROW)),
    ],
    "fields.n.aggregate-function": [
        {"fields.n.aggregate-function": "sum"},
        {**FIRST_ROW, "fields.n.aggregate-function": "sum"},
        {**PARTIAL, "fields.n.aggregate-function": "sum"},
        {**PARTIAL, "fields.at.sequence-group": "text", "fields.n.aggregate-function": "sum"},
        *({**GROUPED, "fields.n.aggregate-function": one} for one in ("last_value", "first_non_null_value", "avg")),
        *({**AGGREGATION, "fields.n.aggregate-function": one} for one in ("avg", "listagg", "bool_or", "", "collect")),
    ],
    "fields.text.aggregate-function": [
        *({**AGGREGATION, "fields.text.aggregate-function": one} for one in ("sum", "product", "count", "bool_and")),
        {**GROUPED, "fields.text.aggregate-function": "listagg"},
    ],
    "fields.price.aggregate-function": [
        {**AGGREGATION, "fields.price.aggregate-function": one} for one in ("product", "count")
    ],
    "fields.id.aggregate-function": [{**AGGREGATION, "fields.id.aggregate-function": "sum"}],
    "fields.unknown.aggregate-function": [{**AGGREGATION, "fields.unknown.aggregate-function": "sum"}],
    "fields.default-aggregate-function": [
        {"fields.default-aggregate-function": "max"},
        {**PARTIAL, "fields.default-aggregate-function": "max"},
        {**GROUPED, "fields.default-aggregate-function": "max"},
        {**AGGREGATION, "fields.default-aggregate-function": "avg"},
    ],
    "fields.text.list-agg-delimiter": [
        {**AGGREGATION, "fields.text.aggregate-function": "listagg", "fields.text.list-agg-delimiter": ""},
        {**AGGREGATION, "fields.text.list-agg-delimiter": ";"},
    ],
    "fields.text.distinct": [
        {**AGGREGATION, "fields.text.aggregate-function": "listagg", "fields.text.distinct": "yes"},
        {**AGGREGATION, "fields.text.distinct": "true"},
    ],
    "fields.n.ignore-retract": [
        {"fields.n.ignore-retract": "true"},
        {**PARTIAL, "fields.n.ignore-retract": "true"},
        {**GROUPED, "fields.n.ignore-retract": "true"},
        {**AGGREGATION, "fields.n.ignore-retract": "1"},
    ],
    "fields.at.sequence-group": [
        {"fields.at.sequence-group": "n"},
        {**AGGREGATION, "fields.at.sequence-group": "n"},
        *({**PARTIAL, "fields.at.sequence-group": members} for members in ("id", "at", "unknown", "n,n", "")),
    ],
    "sequence-group": [
        {**PARTIAL, "fields.cost.sequence-group": "n"},
        {**PARTIAL, "fields.id.sequence-group": "n"},
        {**PARTIAL, "fields.unknown.sequence-group": "n"},
        {**PARTIAL, "fields.at.sequence-group": "n", "fields.text.sequence-group": "n"},
        {**PARTIAL, "fields.at.sequence-group": "n", "fields.text.sequence-group": "at"},
        {**PARTIAL, "fields.at.sequence-group": "n", "fields.at,text.sequence-group": "raw"},
    ],
    "ignore-delete": [
        {"ignore-delete": "TRUE"},
        {"ignore-delete": ""},
        {"ignore-delete": "true", "soft-delete.field": "gone"},
        {**AGGREGATION, "ignore-delete": "true", "remove-record-on-delete": "true"},
    ],
    "remove-record-on-delete": [
        {"remove-record-on-delete": "true"},
        {**FIRST_ROW, "remove-record-on-delete": "true"},
        {**GROUPED, "remove-record-on-delete": "true"},
        {**PARTIAL, "remove-record-on-delete": "1"},
    ],
    "changelog-producer": [{"changelog-producer": "all"}, {**FIRST_ROW, "changelog-producer": "input"}],
    "changelog-producer.compaction-interval": [
        {"changelog-producer.compaction-interval": "1 h"},
        {"changelog-producer": "lookup", "changelog-producer.compaction-interval": "1 h"},
        *(
            {**COMPACTION, "changelog-producer.compaction-interval": one}
            for one in ("0 s", "-1 s", "5", "5 w", "s", "")
        ),
    ],
    "changelog.time-retained": [
        {"changelog.time-retained": "1 d"},
        {"changelog-producer": "none", "changelog.time-retained": "1 d"},
        {"changelog-producer": "lookup", "changelog.time-retained": "1 year"},
    ],
}
"""Options of a keyed table that are refused, by the option that the message must name."""

KEYED_ONLY = [
    {"merge-engine": "deduplicate"},
    FIRST_ROW,
    {"sequence.field": "at"},
    {"soft-delete.field": "gone"},
    {"ignore-delete": "true"},
    COMPACTION,
    {**AGGREGATION, "fields.n.aggregate-function": "sum"},
]


class OptionRules(MergeCase):
    """Options are checked when a specification is built, kept by every catalog, and changed as far as data allows."""

    @pytest.mark.parametrize("option", REFUSED)
    def test_refused_option(self, option: str) -> None:
        """A value that is not allowed, or not together with other options: the error names option and value."""
        for options in REFUSED[option]:
            with pytest.raises(InvalidSpecificationError) as refusal:
                table(options)
            assert option in str(refusal.value), f"{options}: {refusal.value}"
            given = next(value for name, value in options.items() if option in name)
            assert given in str(refusal.value), f"{options}: {refusal.value}"

    def test_unknown_option_lists_the_known(self) -> None:
        """An unknown option is an error that lists the known ones."""
        for name in ("colour", "userowner", "Merge-Engine", "fields.n.colour", "sequence-field", ""):
            with pytest.raises(InvalidSpecificationError) as refusal:
                table({**AGGREGATION, name: "red"})
            for text in (name, "write-mode", "merge-engine", "sequence.field", "changelog-producer", "user."):
                assert text in str(refusal.value)

    def test_value_that_is_not_allowed_lists_the_allowed(self) -> None:
        """A value that is not allowed is an error that lists the allowed ones."""
        for options, allowed in [
            ({"merge-engine": "sum"}, ["deduplicate", "partial-update", "aggregation", "first-row"]),
            ({"write-mode": "logs"}, ["change-log", "append-only", "log"]),
            ({"ignore-delete": "yes"}, ["true", "false"]),
            ({"changelog-producer": "all"}, ["none", "input", "lookup", "full-compaction"]),
            ({**AGGREGATION, "fields.n.aggregate-function": "avg"}, ["sum", "listagg", "last_non_null_value"]),
        ]:
            with pytest.raises(InvalidSpecificationError) as refusal:
                table(options)
            assert [one for one in allowed if one not in str(refusal.value)] == []

    def test_default_function_must_fit(self) -> None:
        """A default function that fits no field of the table is refused."""
        for function in ("listagg", "bool_or", "sum"):
            spec_fields = [Field.long("id"), Field.date("day")]
            with pytest.raises(InvalidSpecificationError, match=function):
                TableSpecification(
                    "t", spec_fields, ["id"], options={**AGGREGATION, "fields.default-aggregate-function": function}
                )

    def test_empty_key_needs_a_write_mode(self) -> None:
        """An empty primary key without `write-mode` stays an error."""
        with pytest.raises(InvalidSpecificationError, match="write-mode"):
            _keyless({})
        assert _keyless(KEYLESS).primary_key == ()
        assert TableSpecification("t", FIELDS, options={"write-mode": "append-only"}).primary_key == ()

    def test_options_that_need_a_key(self) -> None:
        """Merge engines and their options, `ignore-delete` and full compaction need a key."""
        for mode in ("change-log", "append-only"):
            for options in KEYED_ONLY:
                with pytest.raises(InvalidSpecificationError):
                    _keyless({"write-mode": mode, **options})

    def test_specifications_with_options_are_values(self) -> None:
        """Specifications are equal by content, options included, picklable, and the same as documents."""
        for spec in [*ALLOWED, *map(table, WITH_FEEDS)]:
            assert pickle.loads(pickle.dumps(spec)) == spec
            assert dict(pickle.loads(pickle.dumps(spec)).options) == dict(spec.options)
            assert specification_from_document(specification_to_document(spec)) == spec
            assert spec.evolve(options={**spec.options, "user.x": "y"}) != spec
            assert spec.evolve(name="other").options == spec.options

    def test_catalog_keeps_options(self, typed: Storage, storage_url: str) -> None:
        """Specifications come back from the catalog as they were, also after reconnecting."""
        specs = [spec.evolve(name=f"t{number}") for number, spec in enumerate(ALLOWED)]
        for spec in specs:
            typed.admin.create(spec)
        for spec in specs:
            found = typed.admin.get_specification(spec.name)
            assert found == spec
            assert dict(found.options) == dict(spec.options)
            assert typed.table(spec.name).specification == spec
        if self.capabilities.restartable:
            typed.close()
            with connect(storage_url) as storage:
                assert [storage.admin.get_specification(spec.name) for spec in specs] == specs

    def test_feeds_are_refused(self, storage: Storage) -> None:
        """A store without change feeds refuses a `changelog-producer` other than none, and makes nothing."""
        if self.capabilities.change_feeds:
            pytest.skip("the store has change feeds")
        for options in WITH_FEEDS:
            with pytest.raises(UnsupportedOperationError, match="changelog-producer"):
                storage.admin.create(table(options))
            with pytest.raises(UnsupportedOperationError, match="changelog-producer"):
                storage.admin.create_or_update(table(options))
        assert not storage.admin.exists("t")
        storage.admin.create(table())
        with pytest.raises(UnsupportedOperationError, match="changelog-producer"):
            storage.admin.create_or_update(table(WITH_FEEDS[0]))
        assert storage.admin.get_specification("t") == table()

    def test_store_without_table_types_refuses_them(self, storage: Storage) -> None:
        """A store without table types refuses their specifications in `create`, and makes nothing."""
        if self.capabilities.table_types:
            pytest.skip("the store has table types")
        for spec in ALLOWED[:-1]:
            for create in (storage.admin.create, storage.admin.create_or_update):
                with pytest.raises(UnsupportedOperationError):
                    create(spec)
        assert storage.admin.list() == []
        storage.admin.create(table({"user.owner": "me", "merge-engine": "deduplicate"}))
        storage.table("t").upsert({"id": 1})
        for spec in (table(FIRST_ROW), table({"ignore-delete": "true"})):
            with pytest.raises((UnsupportedOperationError, SchemaIncompatibleError)):
                storage.admin.create_or_update(spec)
        assert storage.table("t").count() == 1

    def test_options_are_compared_by_meaning(self, typed: Storage) -> None:
        """A default written out, the order of members and blanks mean nothing: `create_or_update` does nothing."""
        for spec, same in [
            (table(), {"write-mode": "change-log", "merge-engine": "deduplicate", "changelog-producer": "none"}),
            (table(AGGREGATION), {**AGGREGATION, "fields.default-aggregate-function": "last_non_null_value"}),
            (
                table({**AGGREGATION, "fields.text.aggregate-function": "listagg"}),
                {
                    **AGGREGATION,
                    "fields.text.aggregate-function": "listagg",
                    "fields.text.list-agg-delimiter": ",",
                    "fields.text.distinct": "false",
                    "fields.n.ignore-retract": "false",
                    "ignore-delete": "false",
                },
            ),
            (
                table({**PARTIAL, "fields.at,n.sequence-group": "text,gone"}),
                {**PARTIAL, "fields.at, n.sequence-group": "gone, text"},
            ),
        ]:
            typed.admin.create(spec)
            typed.table("t").upsert({"id": 1, "n": 1})
            typed.admin.create_or_update(table(same))
            typed.admin.create_or_update(spec)
            assert typed.table("t").count() == 1
            typed.admin.drop("t")

    def test_options_that_cannot_change(self, typed: Storage) -> None:
        """Every option that decides what is stored must be equal: else `SchemaIncompatibleError`, nothing changed."""
        summed = {**AGGREGATION, "fields.n.aggregate-function": "sum"}
        for before, after in [
            ({}, FIRST_ROW),
            ({}, {"ignore-delete": "true"}),
            ({}, {"sequence.field": "at"}),
            ({"sequence.field": "at"}, {}),
            ({"sequence.field": "at,n"}, {"sequence.field": "n,at"}),
            ({"soft-delete.field": "gone"}, {}),
            (AGGREGATION, summed),
            (summed, {**AGGREGATION, "fields.n.aggregate-function": "max"}),
            (summed, {**summed, "fields.n.ignore-retract": "true"}),
            (GROUPED, PARTIAL),
            (GROUPED, {**PARTIAL, "fields.at.sequence-group": "n"}),
            (PARTIAL, {**PARTIAL, "remove-record-on-delete": "true"}),
        ]:
            typed.admin.create(table(before))
            with pytest.raises(SchemaIncompatibleError):
                typed.admin.create_or_update(table(after))
            assert typed.admin.get_specification("t") == table(before)
            typed.admin.drop("t")
        typed.admin.create(_keyless(KEYLESS))
        for spec in (_keyless({"write-mode": "append-only"}), table()):
            with pytest.raises(SchemaIncompatibleError):
                typed.admin.create_or_update(spec)
        assert typed.admin.get_specification("t") == _keyless(KEYLESS)

    def test_users_options_may_change(self, typed: Storage) -> None:
        """Names that begin with `user.` may change; those that the new specification does not name stay."""
        for base in ({}, AGGREGATION):
            typed.admin.create(table({**base, "user.a": "1", "user.b": "2"}))
            typed.admin.create_or_update(table({**base, "user.b": "3", "user.c": "4"}))
            found = typed.admin.get_specification("t")
            assert dict(found.options) == {**base, "user.a": "1", "user.b": "3", "user.c": "4"}
            typed.admin.create_or_update(table(base))
            assert typed.admin.get_specification("t") == found
            typed.admin.drop("t")

    def test_options_of_new_fields(self, typed: Storage) -> None:
        """`create_or_update` accepts the options of fields that it adds, and refuses a new sequence group."""
        typed.admin.create(table({**AGGREGATION, "fields.n.aggregate-function": "sum"}))
        typed.table("t").upsert({"id": 1, "n": 1})
        options = {**AGGREGATION, "fields.n.aggregate-function": "sum", "fields.m.aggregate-function": "sum"}
        typed.admin.create_or_update(table(options, Field.int("m"), Field.string("s")))
        assert typed.admin.get_specification("t") == table(options, Field.int("m"), Field.string("s"))
        typed.table("t").upsert({"id": 1, "n": 1, "m": 1, "s": "a"})
        typed.table("t").upsert({"id": 1, "n": 1, "m": 1, "s": None})
        row = typed.table("t").read((1,))
        assert row is not None
        assert (row["n"], row["m"], row["s"]) == (3, 2, "a")
        typed.admin.create(table(GROUPED).evolve(name="u"))
        for extra in ({"fields.s.sequence-group": "m"}, {"fields.at.sequence-group": "n,text,m"}):
            spec = table({**GROUPED, **extra}, Field.int("m"), Field.int("s")).evolve(name="u")
            with pytest.raises(SchemaIncompatibleError):
                typed.admin.create_or_update(spec)
