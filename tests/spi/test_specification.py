"""A specification is a value: no change of one attribute, no copy and no document loses another."""

import dataclasses
import pickle

import pytest

from structable.spi import (
    Derived,
    Field,
    InvalidSpecificationError,
    Lower,
    TableSpecification,
    specification_from_document,
    specification_to_document,
)

RUNS = TableSpecification(
    "runs",
    [Field.string("app"), Field.timestamp("started"), Field.string("status"), Field.decimal("cost", 10, 2)],
    ["app", "started"],
    ["status"],
    {"user.owner": "team"},
)
PARAMETERS = {
    "name": "other",
    "fields": (*RUNS.fields, Field.int("more")),
    "primary_key": ("started", "app"),
    "indexes": (),
    "options": {},
    "rules": (Derived("status", "app", Lower()),),
}
"""Another value of each parameter."""


def test_every_attribute_has_another_value_here() -> None:
    assert list(PARAMETERS) == [one.name for one in dataclasses.fields(RUNS) if one.init]


@pytest.mark.parametrize("parameter", PARAMETERS)
def test_evolve_changes_one_attribute_and_keeps_the_others(parameter: str) -> None:
    evolved = RUNS.evolve(**{parameter: PARAMETERS[parameter]})
    for name, value in PARAMETERS.items():
        assert getattr(evolved, name) == (value if name == parameter else getattr(RUNS, name))
    assert evolved != RUNS
    assert evolved.evolve(**{parameter: getattr(RUNS, parameter)}) == RUNS


def test_evolve_checks_the_change() -> None:
    with pytest.raises(InvalidSpecificationError, match="indexes names 'cost' of type decimal"):
        RUNS.evolve(indexes=["cost"])
    with pytest.raises(TypeError, match="index"):
        RUNS.evolve(index=["status"])


def test_evolve_keeps_lookups_up_to_date() -> None:
    evolved = RUNS.evolve(fields=[*RUNS.fields, Field.int("more")])
    assert "more" in evolved
    assert "more" not in RUNS
    assert evolved.field("more") == Field.int("more")
    assert evolved.field_names == ("app", "started", "status", "cost", "more")
    assert [field.name for field in evolved.value_fields] == ["status", "cost", "more"]


def test_attributes_cannot_be_set() -> None:
    for name in (*PARAMETERS, "anything"):
        with pytest.raises((AttributeError, TypeError)):
            setattr(RUNS, name, ())
    with pytest.raises(TypeError):
        RUNS.options["user.owner"] = "other"  # type: ignore[index]


@pytest.mark.parametrize("parameter", [None, *PARAMETERS])
def test_pickles_and_documents_lose_nothing(parameter: str | None) -> None:
    spec = RUNS if parameter is None else RUNS.evolve(**{parameter: PARAMETERS[parameter]})
    for copy in (pickle.loads(pickle.dumps(spec)), specification_from_document(specification_to_document(spec))):
        assert copy == spec
        assert hash(copy) == hash(spec)
        assert repr(copy) == repr(spec)


def test_repr_is_the_constructor_call() -> None:
    assert repr(TableSpecification("t", [Field.int("id")], ["id"])) == (
        f"TableSpecification('t', fields=[{Field.int('id')!r}], primary_key=['id'], indexes=[], options={{}})"
    )


def test_equality_counts_every_attribute() -> None:
    assert len({RUNS, RUNS.evolve(), RUNS.evolve(indexes=[])}) == 2
    assert RUNS.evolve(options={}) != RUNS
