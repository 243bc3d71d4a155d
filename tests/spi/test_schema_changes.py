"""The permitted schema changes of an existing table."""

import pytest

from structable.spi import Field, SchemaIncompatibleError, TableSpecification, plan_schema_change

RUNS = TableSpecification(
    "runs", [Field.string("app"), Field.int("number"), Field.short("size"), Field.float("cost")], ["app"], ["number"]
)


def test_an_equal_specification_changes_nothing() -> None:
    assert plan_schema_change(RUNS, RUNS).empty
    assert plan_schema_change(RUNS, RUNS.evolve(fields=RUNS.fields[::-1])).empty


def test_fields_and_indexes_are_added_and_numbers_widened() -> None:
    fields = [Field.string("app"), Field.long("number"), Field.int("size"), Field.double("cost"), Field.date("day")]
    after = RUNS.evolve(fields=fields, indexes=["number", "day"])
    change = plan_schema_change(RUNS, after)
    assert (change.before, change.after) == (RUNS, after)
    assert change.added_fields == (Field.date("day"),)
    assert change.widened_fields == (Field.long("number"), Field.int("size"), Field.double("cost"))
    assert change.added_indexes == ("day",)
    assert not change.empty


def test_what_a_specification_lacks_is_kept() -> None:
    """An older specification changes nothing, whatever is newer in the table."""
    for older, fields, indexes in [
        (RUNS.evolve(fields=RUNS.fields[:3]), (Field.float("cost"),), ()),
        (RUNS.evolve(fields=[RUNS.fields[0]], indexes=()), RUNS.fields[1:], ("number",)),
        (RUNS.evolve(indexes=()), (), ("number",)),
        (RUNS.evolve(fields=[*RUNS.fields[:2], Field.byte("size"), RUNS.fields[3]]), (Field.short("size"),), ()),
    ]:
        change = plan_schema_change(RUNS, older)
        assert change.empty
        assert change.after == RUNS
        assert (change.kept_fields, change.kept_indexes) == (fields, indexes)


def test_mixed_specifications_add_what_is_new_and_keep_the_rest() -> None:
    wanted = RUNS.evolve(
        fields=[Field.date("day"), Field.string("app"), Field.int("size"), Field.byte("number")], indexes=["size"]
    )
    change = plan_schema_change(RUNS, wanted)
    fields = [Field.string("app"), Field.int("number"), Field.int("size"), Field.float("cost"), Field.date("day")]
    assert change.after == RUNS.evolve(fields=fields, indexes=["number", "size"])
    assert (change.added_fields, change.widened_fields) == ((Field.date("day"),), (Field.int("size"),))
    assert (change.added_indexes, change.kept_indexes) == (("size",), ("number",))
    assert change.kept_fields == (Field.int("number"), Field.float("cost"))
    assert plan_schema_change(change.after, wanted).empty


@pytest.mark.parametrize(
    ("wanted", "difference"),
    [
        (RUNS.evolve(fields=[*RUNS.fields[:3], Field.int("cost")]), "field 'cost' is float and cannot become int"),
        (
            RUNS.evolve(fields=[*RUNS.fields[:2], Field.double("size"), *RUNS.fields[3:]]),
            "field 'size' is short and cannot become double",
        ),
        (RUNS.evolve(fields=[*RUNS.fields, Field.int("more")], primary_key=["app", "more"]), "the primary key is"),
        (RUNS.evolve(fields=RUNS.fields[1:], primary_key=["number"], indexes=[]), "the primary key is"),
        (RUNS.evolve(options={"merge-engine": "first-row"}), "the options are {} and cannot become"),
        (
            RUNS.evolve(fields=[*RUNS.fields[:3], Field.float("Cost")]),
            "new field 'Cost' differs from 'cost' by case alone",
        ),
    ],
)
def test_other_changes_are_refused(wanted: TableSpecification, difference: str) -> None:
    with pytest.raises(SchemaIncompatibleError) as error:
        plan_schema_change(RUNS, wanted)
    assert [one.startswith(difference) for one in error.value.differences] == [True]


@pytest.mark.parametrize("wanted", [Field.long("number"), Field.short("number")])
def test_key_fields_keep_their_type(wanted: Field) -> None:
    before = RUNS.evolve(primary_key=["number"], indexes=[])
    after = before.evolve(fields=[RUNS.fields[0], wanted, *RUNS.fields[2:]])
    with pytest.raises(SchemaIncompatibleError, match="key field keeps its type"):
        plan_schema_change(before, after)


def test_every_difference_is_named() -> None:
    """What would be kept or added is none."""
    fields = [Field.long("app"), Field.string("cost"), Field.byte("number"), Field.bytes("size"), Field.int("Number2")]
    with pytest.raises(SchemaIncompatibleError) as error:
        plan_schema_change(
            RUNS, TableSpecification("runs", fields, ["app", "number"], options={"merge-engine": "first-row"})
        )
    assert len(error.value.differences) == 5
