"""What a change of a schema adds and keeps, and the texts of differences that are refused. The suite has the rules."""

import pytest

from structable.spi import Field, SchemaIncompatibleError, TableSpecification
from structable.spi.authors import plan_schema_change

RUNS = TableSpecification(
    "runs", [Field.string("app"), Field.int("number"), Field.short("size"), Field.float("cost")], ["app"], ["number"]
)


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
