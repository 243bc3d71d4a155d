"""`down`: what a revision added goes, and nothing else."""

from __future__ import annotations

import pytest

from structable.migrations import Migrator, State, runner
from structable.spi import Derived, Field, Lower, SchemaIncompatibleError, Storage, TableSpecification
from tests.migrations.support.folders import RUNS, Scripts, put_runs

two_stores = pytest.mark.parametrize("store", ["memory", "postgresql"], indirect=True)


def test_tables_fields_and_rules_that_were_there_before_stay(store: Storage, scripts: Scripts) -> None:
    """What they lacked before goes: fields and indexes of a table, an index and a rule of a field."""
    put_runs(store, 20)
    fields = [*RUNS.fields, Field.string("low"), Field.string("title")]
    store.admin.create_or_update(RUNS.evolve(fields=fields))
    store.admin.set_rules("runs", [Derived("low", "payload", Lower(), ready=True)])
    before = store.admin.get_specification("runs")
    scripts.add(
        "more",
        up="""
        key = [op.string("app"), op.int("run")]
        op.create_table(op.table("runs", [*key, op.long("n"), op.int("attempts")], ["app", "run"], ["attempts"]))
        op.add_field("runs", op.string("low"), derive=op.lower(), source="payload")
        op.rename_field("runs", "state", "title")
        """,
    )
    migrator = Migrator(store, scripts.path)
    migrator.up()
    after = store.admin.get_specification("runs")
    assert ("n" in after, after.indexes, len(after.rules)) == (True, ("state", "attempts", "title"), 2)
    migrator.down(0)
    assert store.admin.get_specification("runs") == before


@two_stores
@pytest.mark.parametrize("field", ["n", "attempts"])
def test_an_index_whose_build_was_interrupted_goes(
    store: Storage, scripts: Scripts, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    """Its field can be dropped then, by `down` itself or afterwards."""
    put_runs(store, 20)
    before = store.admin.get_specification("runs")
    n = 'op.add_field("runs", op.long("n"), derive=op.json_field(("n",), "long"), source="payload")'
    scripts.add("n", up=f'{n}\nop.add_index("runs", "{field}")')

    def interrupted(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    migrator = Migrator(store, scripts.path)
    with monkeypatch.context() as patch:
        patch.setattr(runner.Runner, "_report_of", lambda *given: interrupted)
        with pytest.raises(KeyboardInterrupt):
            migrator.up()
    migrator.down(0)
    assert store.admin.get_specification("runs") == before
    store.admin.drop_field("runs", "attempts")


@pytest.mark.parametrize("early", [True, False])
def test_what_an_earlier_contract_took_away_stays_away(store: Storage, scripts: Scripts, early: bool) -> None:
    """After a later revision that adds it again was undone, whether it began after the contract or before."""
    put_runs(store, 5)
    scripts.add("drop", up='op.drop_field("runs", "attempts")\nop.drop_index("runs", "state")')
    scripts.add("again", up='op.add_field("runs", op.int("attempts"))\nop.add_index("runs", "state")')
    migrator = Migrator(store, scripts.path)
    migrator.up(1 if early else None)
    migrator.contract(1)
    migrator.up()
    store.admin.create_or_update(RUNS)
    migrator.down(1)
    with pytest.raises(SchemaIncompatibleError, match=r"revision 1 took .*'attempts'.*; revision 1 took .*'state'"):
        store.admin.create_or_update(RUNS)


SUM = 'options={"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}'


@pytest.mark.parametrize(
    ("key", "options", "operation"),
    [
        ([], {"write-mode": "change-log"}, 'op.add_field("t", op.long("n"))'),
        (
            ["k"],
            {"merge-engine": "aggregation"},
            f'op.create_table(op.table("t", [op.long("k"), op.long("n")], ["k"], {SUM}))',
        ),
    ],
    ids=["change-log", "named by an option"],
)
def test_a_field_that_its_table_cannot_lose_stays(
    store: Storage, scripts: Scripts, key: list[str], options: dict[str, str], operation: str
) -> None:
    """As a wider number does; programs of before accept both."""
    store.admin.create(TableSpecification("t", [Field.long("k")], key, options=options))
    scripts.add("n", up=operation)
    migrator = Migrator(store, scripts.path)
    for _ in range(2):
        migrator.up()
        migrator.down(0)
        assert "n" in store.admin.get_specification("t")
        assert migrator.status()[0].state is State.PENDING
