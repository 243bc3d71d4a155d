"""Revisions that are written of what differs: any two lists of specifications, `new`, `up`, and nothing differs."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structable.migrations import Differences, Folder, Migrator, RevisionError, differences
from structable.migrations.autogenerate import script_of
from structable.migrations.history import History
from structable.spi import (
    Cast,
    Derived,
    Field,
    FieldFunction,
    FieldRule,
    FieldType,
    JsonField,
    Lower,
    Renamed,
    Storage,
    TableSpecification,
    connect,
)
from structable.spi.authors import widens
from tests.migrations.support.folders import Scripts

MADE: list[tuple[FieldFunction, Field]] = [
    (Lower(), Field.string("made")),
    (JsonField(("a", 0), "long"), Field.long("made")),
    (JsonField(("b",), "boolean"), Field.boolean("made")),
]
KINDS = [one for one in FieldType if one is not FieldType.DECIMAL]


def found(storage: Storage, target: list[TableSpecification], folder: Folder) -> Differences:
    return differences(storage, target, folder, History(storage).all())


def generated(storage: Storage, target: list[TableSpecification], folder: Folder) -> Differences:
    one = found(storage, target, folder)
    if one:
        folder.write("auto", script_of("auto", one))
        Migrator(storage, folder).up()
    return one


@st.composite
def specifications(draw: st.DrawFn) -> list[TableSpecification]:
    tables = []
    for name in draw(st.lists(st.sampled_from(["a", "b"]), unique=True)):
        kinds = {f"f{number}": draw(st.sampled_from([None, *KINDS])) for number in range(4)}
        fields = [Field(one, kind) for one, kind in kinds.items() if kind is not None]
        indexes = [one.name for one in fields if one.type.keyable and draw(st.booleans())]
        rules: list[FieldRule] = []
        if bool(fields) and draw(st.booleans()):
            new = replace(fields[0], name="second")
            rules.append(Renamed(fields[0].name, new.name, ready=True))
            fields.append(new)
        text = [one for one in fields if one.type is FieldType.STRING]
        if bool(text) and draw(st.booleans()):
            function, field = MADE[draw(st.integers(0, 2))]
            fields.append(field)
            rules.append(Derived(field.name, draw(st.sampled_from(text)).name, function, ready=True))
            if field.type is FieldType.STRING and draw(st.booleans()):
                fields.append(Field.string("made_of_made"))
                rules.insert(0, Derived("made_of_made", field.name, Lower(), ready=True))
        ordered = draw(st.permutations([Field.string("k"), *fields]))
        tables.append(TableSpecification(name, ordered, ["k"], indexes, {}, rules))
    return tables


@settings(deadline=None)
@given(first=specifications(), second=specifications())
def test_after_up_nothing_differs_and_down_undoes_it(
    first: list[TableSpecification], second: list[TableSpecification], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = Folder(Scripts(tmp_path_factory.mktemp("auto")).path)
    with connect(f"memory://{uuid.uuid4().hex}") as storage:
        generated(storage, first, folder)
        assert not found(storage, first, folder)
        made, before = len(folder.revisions()), tables(storage)
        try:
            one = generated(storage, second, folder)
        except RevisionError:
            return  # a type that cannot become the other one
        assert not found(storage, second, folder)
        if one:
            migrator = Migrator(storage, folder)
            migrator.down(made)
            require_as_before(tables(storage), before)
            migrator.up()
            assert not found(storage, second, folder)
            for revision in range(1, made + 2):
                migrator.contract(revision)
            assert not found(storage, [contracted(spec) for spec in second], folder)


def tables(storage: Storage) -> dict[str, TableSpecification]:
    names = (name for name in storage.admin.list() if not name.startswith("structable_"))
    return {name: storage.admin.get_specification(name) for name in names}


def require_as_before(now: dict[str, TableSpecification], before: dict[str, TableSpecification]) -> None:
    """Compare tables; numbers of `now` may be wider."""
    assert now.keys() == before.keys()
    for name, spec in now.items():
        fields = [old if widens(old, new) else new for old, new in zip(before[name].fields, spec.fields, strict=True)]
        assert spec.evolve(fields=fields) == before[name]


def contracted(spec: TableSpecification) -> TableSpecification:
    """Return a specification without the old names of renamed fields."""
    names = {rule.old: rule.new for rule in spec.rules if isinstance(rule, Renamed)}
    derived = [rule for rule in spec.rules if isinstance(rule, Derived)]
    return spec.evolve(
        fields=[one for one in spec.fields if one.name not in names],
        indexes=[names.get(one, one) for one in spec.indexes],
        rules=[replace(rule, source=names.get(rule.source, rule.source)) for rule in derived],
    )


def test_a_rename_is_offered(store: Storage, scripts: Scripts) -> None:
    folder = Folder(scripts.path)
    before = TableSpecification("t", [Field.string("k"), Field.long("old")], ["k"])
    generated(store, [before], folder)
    after = TableSpecification("t", [Field.string("k"), Field.long("new")], ["k"])
    text = script_of("auto", found(store, [after], folder))
    assert "    # op.rename_field('t', 'old', 'new')" in text
    assert "    op.add_field('t', op.long('new'))\n" in text
    assert "def contract(op):\n    op.drop_field('t', 'old')\n" in text


def test_what_no_revision_does_is_refused(store: Storage, scripts: Scripts) -> None:
    folder = Folder(scripts.path)
    fields = [Field.string("k"), Field.long("v")]
    generated(store, [TableSpecification("t", fields, ["k"])], folder)
    with pytest.raises(RevisionError, match="cannot become string"):
        found(store, [TableSpecification("t", [Field.string("k"), Field.string("v")], ["k"])], folder)
    with pytest.raises(RevisionError, match="make a new table"):
        found(store, [TableSpecification("t", fields, ["k", "v"])], folder)
    scripts.add("more", up="pass")
    with pytest.raises(RevisionError, match="revision 2 is not up"):
        found(store, [], folder)


def test_tables_of_others_are_left_alone(store: Storage, scripts: Scripts) -> None:
    store.admin.create(TableSpecification("others", [Field.string("k")], ["k"]))
    assert not found(store, [], Folder(scripts.path))


def test_rules_of_the_target_are_added(store: Storage, scripts: Scripts) -> None:
    folder = Folder(scripts.path)
    before = TableSpecification("t", [Field.string("k"), Field.int("v")], ["k"])
    store.admin.create(before)
    after = before.evolve(
        fields=[*before.fields, Field.string("text")], rules=[Derived("text", "v", Cast("string"), ready=True)]
    )
    store.table("t").upsert({"k": "a", "v": 7})
    generated(store, [after], folder)
    assert store.table("t").read(("a",)).text == "7"  # type: ignore[union-attr]
    assert not found(store, [after], folder)


def test_what_is_derived_in_another_way_is_refused(store: Storage, scripts: Scripts) -> None:
    folder = Folder(scripts.path)
    fields = [Field.string("k"), Field.string("doc"), Field.long("n")]
    before = TableSpecification("t", fields, ["k"], rules=[Derived("n", "doc", JsonField(("n",), "long"), ready=True)])
    generated(store, [before], folder)
    other = before.evolve(rules=[Derived("n", "doc", JsonField(("m",), "long"), ready=True)])
    with pytest.raises(RevisionError, match=r"'n' is .* and cannot become"):
        found(store, [other], folder)
    assert not found(store, [before.evolve(rules=[])], folder)


def test_a_pending_contract_of_a_name_counts(store: Storage, scripts: Scripts) -> None:
    """Fields computed from the old name are computed from the new one afterwards."""
    store.admin.create(TableSpecification("t", [Field.string("k"), Field.string("old")], ["k"]))
    low = 'op.add_field("t", op.string("low"), derive=op.lower(), source="old")'
    scripts.add("low", up=low)
    scripts.add("new", up='op.rename_field("t", "old", "new")')
    migrator, folder = Migrator(store, scripts.path), Folder(scripts.path)
    migrator.up()
    fields = [Field.string("k"), Field.string("new"), Field.string("low")]
    after = TableSpecification("t", fields, ["k"], rules=[Derived("low", "new", Lower(), ready=True)])
    assert not found(store, [after], folder)
    migrator.contract(2)
    assert store.admin.get_specification("t").rules == after.rules
    assert not found(store, [after], folder)
