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


@pytest.mark.parametrize(
    ("after", "difference"),
    [
        (RUNS.evolve(fields=RUNS.fields[:3]), "field 'cost' is missing; fields cannot be removed"),
        (RUNS.evolve(fields=[*RUNS.fields[:3], Field.int("cost")]), "field 'cost' is float and cannot become int"),
        (
            RUNS.evolve(fields=[*RUNS.fields[:2], Field.byte("size"), *RUNS.fields[3:]]),
            "field 'size' is short and cannot become byte",
        ),
        (RUNS.evolve(fields=[*RUNS.fields, Field.int("more")], primary_key=["app", "more"]), "the primary key is"),
        (RUNS.evolve(indexes=[]), "index 'number' is missing"),
        (RUNS.evolve(options={"merge-engine": "first-row"}), "the options are {} and cannot become"),
        (
            RUNS.evolve(fields=[*RUNS.fields[:3], Field.float("Cost")]),
            "new field 'Cost' differs from 'cost' by case alone",
        ),
    ],
)
def test_other_changes_are_refused(after: TableSpecification, difference: str) -> None:
    with pytest.raises(SchemaIncompatibleError) as error:
        plan_schema_change(RUNS, after)
    assert any(one.startswith(difference) for one in error.value.differences)


def test_key_fields_keep_their_type() -> None:
    before = RUNS.evolve(primary_key=["number"], indexes=[])
    after = before.evolve(fields=[RUNS.fields[0], Field.long("number"), *RUNS.fields[2:]])
    with pytest.raises(SchemaIncompatibleError, match="key field keeps its type"):
        plan_schema_change(before, after)


def test_every_difference_is_named() -> None:
    with pytest.raises(SchemaIncompatibleError) as error:
        plan_schema_change(
            RUNS, TableSpecification("runs", [Field.long("app")], ["app"], options={"merge-engine": "first-row"})
        )
    assert len(error.value.differences) == 6
