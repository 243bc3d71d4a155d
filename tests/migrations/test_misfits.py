"""Revisions that do not fit their tables: they pause before they change these, or before anything is READY."""

from __future__ import annotations

import pytest

from structable.migrations import MigrationError, Migrator, State, backfill
from structable.migrations.fills import Fill
from structable.spi import Field, InvalidSpecificationError, Storage, TableSpecification
from tests.migrations.conftest import every_store
from tests.migrations.support.folders import RUNS, Scripts, put_runs


@pytest.mark.parametrize(
    ("options", "operation", "problem"),
    [
        ({}, 'op.rename_field("t", "k", "key")', "the key field 'k' cannot be renamed"),
        ({}, 'op.rename_field("t", "v", "V")', "by case alone"),
        ({}, 'op.add_field("t", op.long("n"), derive=op.lower(), source="s")', "long does not hold every string"),
        ({}, 'op.add_field("t", op.long("n"), derive=op.cast("long"), source="n")', "is computed from itself"),
        (
            {"sequence.field": "v"},
            'op.rename_field("t", "v", "w")',
            "cannot be combined with a merge engine or sequence.field",
        ),
    ],
)
def test_a_rule_that_a_table_cannot_have_leaves_the_table(
    store: Storage, scripts: Scripts, options: dict[str, str], operation: str, problem: str
) -> None:
    fields = [Field.string("k"), Field.long("v"), Field.string("s")]
    spec = TableSpecification("t", fields, ["k"], options=options)
    store.admin.create(spec)
    scripts.add("misfit", up=operation)
    migrator = Migrator(store, scripts.path)
    with pytest.raises(InvalidSpecificationError, match=problem):
        migrator.up()
    assert store.admin.get_specification("t") == spec
    assert migrator.status()[0].resumes is State.EXPANDING


@every_store
def test_a_table_that_was_made_again_without_the_rule_is_noticed(
    store: Storage, scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows would lack the value from then on."""
    put_runs(store, 20)
    scripts.add("n", up='op.add_field("runs", op.long("n"), derive=op.json_field(("n",), "long"), source="payload")')
    migrator = Migrator(store, scripts.path)
    fill = backfill.Backfill.fill

    def made_again(runner: backfill.Backfill, revision: int, operation: int, effect: Fill) -> None:
        store.admin.drop("runs")
        store.admin.create(RUNS.evolve(fields=[*RUNS.fields, Field.long("n")]))
        fill(runner, revision, operation, effect)

    with monkeypatch.context() as patch:
        patch.setattr(backfill.Backfill, "fill", made_again)
        with pytest.raises(MigrationError, match=r"'n' has lost the rule of revision 1: .*'structable migrate down 0'"):
            migrator.up()
    assert migrator.status()[0].state is State.PAUSED
    migrator.down(0)
    migrator.up()
    store.table("runs").upsert({"app": "a", "run": 1, "payload": '{"n": 7}'})
    row = store.table("runs").read(("a", 1))
    assert row is not None
    assert row.n == 7
