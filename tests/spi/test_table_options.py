"""The options of a specification: what they mean, what is refused, and how catalogs and older versions see them."""

from __future__ import annotations

import pickle

import pytest

from structable.spi import (
    Aggregate,
    AggregateFunction,
    Field,
    InvalidSpecificationError,
    MergeEngine,
    SchemaIncompatibleError,
    SequenceGroup,
    TableSpecification,
    specification_from_document,
    specification_to_document,
)
from structable.spi.authors import plan_schema_change
from structable.spi.text import specification_from_catalog

FIELDS = (
    Field.int("id"),
    Field.long("n"),
    Field.string("s"),
    Field.double("d"),
    Field.decimal("m", 10, 2),
    Field.boolean("b"),
)


def spec(*key: str, **options: str) -> TableSpecification:
    """Return a specification with the key `id`, or none for an empty name; `__` is a point and `_` a dash."""
    named = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    return TableSpecification("t", FIELDS, [name for name in key or ("id",) if name], options=named)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"merge-engines": "first-row"}, "unknown; known are write-mode, merge-engine"),
        ({"User.x": "1"}, "'User.x' is unknown"),
        ({"fields.n,s.aggregate-function": "sum"}, "unknown"),
        ({"fields. n.aggregate-function": "sum"}, "unknown"),
        ({"fields.n.aggregate": "sum"}, "unknown"),
        ({"fields.q.aggregate-function": "sum"}, "'q' is not a field; the fields are id, n, s"),
        ({"fields.id.aggregate-function": "sum", "merge-engine": "aggregation"}, "'id' is part of the primary key"),
        ({"write-mode": "append"}, "allowed are change-log, append-only, log"),
        ({"write-mode": "append-only"}, "a table with a primary key is a change-log table"),
        ({"merge-engine": ""}, "allowed are deduplicate, partial-update, aggregation, first-row"),
        ({"merge-engine": "first-row", "sequence.field": "n"}, "it needs merge-engine deduplicate"),
        ({"sequence.field": "d"}, "of type double, which cannot be ordered"),
        ({"sequence.field": "n,n"}, "names 'n' twice"),
        ({"sequence.field": ""}, "'' is not a field"),
        ({"soft-delete.field": "n"}, "one boolean field is needed"),
        ({"soft-delete.field": "b", "sequence.field": "b"}, "a field of sequence.field as well"),
        ({"soft-delete.field": "b", "ignore-delete": "true"}, "it excludes soft-delete.field"),
        ({"ignore-delete": "True"}, "allowed are true, false"),
        ({"remove-record-on-delete": "true"}, "it needs merge-engine aggregation, or partial-update"),
        ({"fields.n.aggregate-function": "sum"}, "it needs merge-engine aggregation, or a member"),
        ({"fields.default-aggregate-function": "sum"}, "it needs merge-engine aggregation"),
        ({"fields.n.sequence-group": "s"}, "it needs merge-engine partial-update"),
        ({"changelog-producer": "all"}, "allowed are none, input, lookup, full-compaction"),
        ({"changelog-producer": "input", "merge-engine": "first-row"}, "takes none, lookup, full-compaction"),
        ({"changelog-producer.compaction-interval": "1 h"}, "it needs changelog-producer full-compaction"),
        ({"changelog.time-retained": "1 h"}, "it needs a changelog-producer other than none"),
        ({"changelog.time-retained": "0 h", "changelog-producer": "lookup"}, "a duration is a number above 0"),
        ({"changelog.time-retained": "1  h", "changelog-producer": "lookup"}, "a duration is a number above 0"),
        ({"changelog.time-retained": "\u0661 h", "changelog-producer": "lookup"}, "a duration is a number above 0"),
    ],
    ids=str,
)
def test_refused_options(options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidSpecificationError) as refusal:
        TableSpecification("t", FIELDS, ["id"], options=options)
    assert words in str(refusal.value)
    assert any(option in str(refusal.value) for option in options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fields.default-aggregate-function": "sum"}, "field 's' is of type string, which takes min, max"),
        ({"fields.m.aggregate-function": "product"}, "of type decimal(10,2), which takes sum"),
        ({"fields.n.aggregate-function": "median"}, "allowed are sum, product, count"),
        ({"fields.n.distinct": "true"}, "it needs the function listagg, and this is last_non_null_value"),
        ({"fields.s.aggregate-function": "listagg", "fields.s.list-agg-delimiter": ""}, "at least one character"),
        ({"ignore-delete": "true", "remove-record-on-delete": "true"}, "it excludes remove-record-on-delete"),
    ],
    ids=str,
)
def test_refused_options_of_aggregation(options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidSpecificationError) as refusal:
        TableSpecification("t", FIELDS, ["id"], options={"merge-engine": "aggregation", **options})
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fields.n.sequence-group": "s", "fields.b.sequence-group": "s"}, "in a sequence group already"),
        ({"fields.n.sequence-group": "n"}, "in a sequence group already"),
        ({"fields.n.sequence-group": "s,id"}, "'id' is part of the primary key"),
        ({"fields.n.sequence-group": ""}, "'' is not a field"),
        ({"fields.n.sequence-group": "s", "fields.s.aggregate-function": "listagg"}, "takes sum, product, count"),
        ({"fields.n.sequence-group": "s", "fields.d.aggregate-function": "sum"}, "a member of a sequence group"),
        ({"fields.n.sequence-group": "s", "fields.s.ignore-retract": "true"}, "field 's' is not aggregated"),
        ({"fields.n.sequence-group": "s", "remove-record-on-delete": "true"}, "without sequence groups"),
    ],
    ids=str,
)
def test_refused_options_of_partial_update(options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidSpecificationError) as refusal:
        TableSpecification("t", FIELDS, ["id"], options={"merge-engine": "partial-update", **options})
    assert words in str(refusal.value)


@pytest.mark.parametrize("option", ["merge-engine", "ignore-delete", "fields.n.aggregate-function", "sequence.field"])
def test_option_that_needs_a_key(option: str) -> None:
    with pytest.raises(InvalidSpecificationError, match="it needs a primary key"):
        TableSpecification("t", FIELDS, options={"write-mode": "change-log", option: "n"})


def test_table_without_key_names_its_write_mode() -> None:
    with pytest.raises(InvalidSpecificationError, match="none with the option write-mode"):
        TableSpecification("t", FIELDS)
    assert TableSpecification("t", FIELDS, options={"write-mode": "append-only"}).keyless


def test_meaning_of_options() -> None:
    options = spec(
        merge_engine="aggregation",
        fields__default_aggregate_function="max",
        fields__s__aggregate_function="listagg",
        fields__s__list_agg_delimiter="; ",
        fields__s__distinct="true",
        user__team="a",
    ).table_options
    assert options.merge_engine is MergeEngine.AGGREGATION
    assert options.functions["n"] == Aggregate(AggregateFunction.MAX)
    assert options.functions["s"] == Aggregate(AggregateFunction.LISTAGG, "; ", True)
    assert "id" not in options.functions


def test_sequence_groups() -> None:
    options = TableSpecification(
        "t", FIELDS, ["id"], options={"merge-engine": "partial-update", "fields.n, b.sequence-group": "s , d"}
    ).table_options
    assert options.groups == (SequenceGroup(("n", "b"), ("d", "s")),)


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("2 s", 2), ("1.5 min", 90), ("3h", 10_800), ("7 d", 604_800)]
)
def test_durations(text: str, seconds: float) -> None:
    options = spec(changelog_producer="lookup", changelog__time_retained=text).table_options
    assert options.time_retained == seconds


def test_documents_of_typed_tables_require_software_that_knows_them() -> None:
    typed = spec(merge_engine="first-row")
    document = specification_to_document(typed)
    assert document["requires"] == ["table-types"]
    assert specification_from_document(document) == typed
    assert "requires" not in specification_to_document(spec(user__x="y"))
    with pytest.raises(InvalidSpecificationError, match="use a newer one"):
        specification_from_document({**document, "requires": ["table-types", "joins"]})


def test_options_of_an_older_version_mean_nothing() -> None:
    """They come back as they were, through every copy, and a table keeps them through its changes."""
    document = {**specification_to_document(spec()), "options": {"ttl": "3", "merge-engine": "aggregation"}}
    old = specification_from_catalog(document)
    for copy in (old, pickle.loads(pickle.dumps(old)), old.evolve(indexes=["n"])):
        assert dict(copy.options) == {"ttl": "3", "merge-engine": "aggregation"}
        assert not copy.has_type
    assert specification_from_catalog(specification_to_document(old)) == old
    change = plan_schema_change(old, spec(user__x="y"))
    assert dict(change.after.options) == {"ttl": "3", "merge-engine": "aggregation", "user.x": "y"}
    with pytest.raises(SchemaIncompatibleError):
        plan_schema_change(old, spec(merge_engine="aggregation"))


def test_options_are_compared_by_meaning() -> None:
    written_out = spec(merge_engine="deduplicate", ignore_delete="false", write_mode="change-log")
    assert not written_out.has_type
    plan_schema_change(spec(), written_out)
    with pytest.raises(SchemaIncompatibleError):
        plan_schema_change(spec(), spec(ignore_delete="true"))


def test_an_older_program_ends_no_feed() -> None:
    """What concerns a feed stays as the table has it, unless the new specification says otherwise."""
    fed = spec(changelog_producer="lookup", changelog__time_retained="3 d", user__x="y")
    assert plan_schema_change(fed, spec()).after == fed
    assert plan_schema_change(fed, spec()).empty
    ended = plan_schema_change(fed, spec(changelog_producer="none"))
    assert dict(ended.after.options) == {"changelog-producer": "none", "user.x": "y"}
    assert ended.changed_options


def test_new_fields_bring_their_functions() -> None:
    before = spec(merge_engine="aggregation", fields__n__aggregate_function="sum")
    wider = TableSpecification(
        "t",
        [*FIELDS, Field.long("k")],
        ["id"],
        options={**before.options, "fields.k.aggregate-function": "count"},
    )
    assert plan_schema_change(before, wider).after == wider
    with pytest.raises(SchemaIncompatibleError):
        plan_schema_change(before, wider.evolve(options={**wider.options, "fields.d.aggregate-function": "max"}))


def test_older_programs_keep_the_functions_of_new_fields() -> None:
    """Neither the function of a field that one specification lacks differs, nor may its default become another."""
    older = spec(merge_engine="aggregation", fields__n__aggregate_function="sum")
    newer = TableSpecification(
        "t",
        [*FIELDS, Field.long("k"), Field.long("by_default")],
        ["id"],
        options={**older.options, "fields.k.aggregate-function": "count"},
    )
    assert plan_schema_change(newer, older).after == newer
    mixed = older.evolve(
        fields=[*FIELDS, Field.int("most")], options={**older.options, "fields.most.aggregate-function": "max"}
    )
    change = plan_schema_change(newer, mixed)
    assert change.after.table_options.functions == {
        **newer.table_options.functions,
        "most": mixed.table_options.functions["most"],
    }
    every = {
        f"fields.{name}.aggregate-function": str(one.function) for name, one in older.table_options.functions.items()
    }
    defaulted = older.evolve(options={**older.options, **every, "fields.default-aggregate-function": "max"})
    assert defaulted.table_options.functions == older.table_options.functions
    with pytest.raises(SchemaIncompatibleError):
        plan_schema_change(newer, defaulted)
