"""Revisions on every store: fields, indexes, names and tables change while old and new code use them."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Callable

import pytest

from structable.migrations import IrreversibleError, MigrationError, Migrator, State
from structable.migrations.schema_calls import SchemaCalls
from structable.spi import (
    Field,
    InvalidFieldError,
    SchemaIncompatibleError,
    Storage,
    TableNotFoundError,
    Transaction,
    col,
    connect,
)
from structable.spi._measuring import MeasuringStorage
from tests.metering.sdk import measured
from tests.migrations.conftest import every_store
from tests.migrations.support.folders import RUNS, Scripts, put_runs

ROWS = 300


def states(migrator: Migrator) -> list[State]:
    return [one.state for one in migrator.status()]


@every_store
def test_a_field_of_json_is_added_filled_indexed_and_the_old_one_contracted(store: Storage, scripts: Scripts) -> None:
    migrator = Migrator(store, scripts.path)
    scripts.add("runs", up=f"op.create_table(op.table('runs', [{_fields()}], ['app', 'run'], ['state']))")
    migrator.up()
    rows = put_runs(store, ROWS)
    scripts.add(
        "n",
        up="""
        op.add_field("runs", op.long("n"), derive=op.json_field(("n",), "long"), source="payload")
        op.add_index("runs", "n")
        """,
        contract='op.drop_field("runs", "attempts")',
    )
    assert [one.number for one in migrator.plan()] == [2]
    migrator.up()
    assert states(migrator) == [State.DONE, State.READY]
    second = migrator.status()[1]
    assert (second.seen, second.changed, second.failed) == (ROWS, ROWS - ROWS // 10, ROWS // 10)
    table = store.table("runs")
    with table.scan() as found:
        assert {row.key: row.n for row in found} == {(row["app"], row["run"]): _n(row["payload"]) for row in rows}
    with table.scan_index("n", 7) as found:
        assert [row.key for row in found] == [("app1", 7)]
    table.update({"app": "app1", "run": 7, "payload": '{"n": 1007}'})  # by code that knows no n
    assert table.read(("app1", 7)).n == 1007  # type: ignore[union-attr]
    assert table.count(where=col("n") == 1007) == 1
    assert "attempts" in table.specification
    assert migrator.contract(2) is None
    assert states(migrator) == [State.DONE, State.DONE]
    assert "attempts" not in store.table("runs").specification
    with pytest.raises(SchemaIncompatibleError):
        store.admin.create_or_update(RUNS)  # by code of before
    assert store.table("runs").count() == ROWS


def _n(payload: object) -> int | None:
    try:
        return int(json.loads(str(payload))["n"])
    except ValueError:
        return None


def _fields() -> str:
    kinds = {"string": "string", "int": "int"}
    return ", ".join(f"op.{kinds[field.type.value]}({field.name!r})" for field in RUNS.fields)


@every_store
def test_a_renamed_field_has_both_names_until_it_is_contracted(store: Storage, scripts: Scripts) -> None:
    put_runs(store, 60)
    migrator = Migrator(store, scripts.path)
    scripts.add("status", up='op.rename_field("runs", "state", "status")')
    migrator.up()
    table = store.table("runs")
    assert table.specification.indexes == ("state", "status")
    table.update({"app": "app0", "run": 0, "state": "OLD"})
    table.update({"app": "app1", "run": 1, "status": "NEW CODE"})
    assert table.read(("app0", 0)).status == "OLD"  # type: ignore[union-attr]
    with table.scan_index("state", "NEW CODE") as found:
        assert [row.status for row in found] == ["NEW CODE"]
    migrator.contract(1)
    table = store.table("runs")
    assert table.specification.indexes == ("status",)
    with table.scan_index("status", "OLD") as found:
        assert [row.key for row in found] == [("app0", 0)]
    with pytest.raises(InvalidFieldError):
        table.update({"app": "app0", "run": 0, "state": "OLD"})


def test_a_renamed_field_is_found_by_its_index_at_each_step(
    store: Storage, scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By that of its old name, until it is ready."""
    put_runs(store, 20)
    looks: list[int] = []

    def looking(step: Callable[..., None]) -> Callable[..., None]:
        def looked(*args: object) -> None:
            step(*args)
            with store.table("runs").scan_index("status", "DONE") as found:
                looks.append(sum(1 for _ in found))

        return looked

    for name in ("add_index", "set_ready"):
        monkeypatch.setattr(SchemaCalls, name, looking(getattr(SchemaCalls, name)))
    scripts.add("status", up='op.rename_field("runs", "state", "status")')
    Migrator(store, scripts.path).up()
    assert looks == [10, 10]


def test_rows_are_rewritten_once_and_functions_run_once(store: Storage, scripts: Scripts) -> None:
    put_runs(store, 250)
    module = scripts.function("""
    def more(row):
        return {"attempts": 100} if row["attempts"] < 100 else None

    def mark(tx):
        table = tx.table("runs")
        table.increment(("marks", 1), "attempts")
    """)
    scripts.add("more", up=f'op.rewrite("runs", "{module}:more", where="state == \'DONE\'")\nop.run("{module}:mark")')
    migrator = Migrator(store, scripts.path)
    [plan] = migrator.plan()
    assert "old code must understand" in plan.operations[0].warning
    assert migrator.rehearse() == [
        "0001 rewrite runs by " + f"{module}:more where state == 'DONE': 125 rows, 125 of them changed, and rolled back"
    ]
    assert store.table("runs").count(where=col("attempts") == 100) == 0
    migrator.up()
    migrator.up()
    assert store.table("runs").count(where=col("attempts") == 100) == 125
    assert store.table("runs").read(("marks", 1)).attempts == 1  # type: ignore[union-attr]
    with pytest.raises(IrreversibleError, match="down"):
        migrator.down(0)


def test_a_default_is_put_where_rows_have_none(store: Storage, scripts: Scripts) -> None:
    put_runs(store, 50)
    scripts.add("region", up='op.add_field("runs", op.string("region"), default="eu")')
    Migrator(store, scripts.path).up()
    assert store.table("runs").count(where=col("region") == "eu") == 50
    store.table("runs").upsert({"app": "x", "run": 1})
    assert store.table("runs").read(("x", 1)).region is None  # type: ignore[union-attr]


@every_store
def test_a_dropped_table_is_retired_first(store: Storage, scripts: Scripts) -> None:
    put_runs(store, 5)
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    migrator = Migrator(store, scripts.path, clock=lambda: now)
    scripts.add("gone", up='op.drop_table("runs", keep_days=3)')
    migrator.up()
    assert store.table("runs").count() == 5
    assert migrator.contract(1) == "tables that revision 1 drops are kept until 2026-01-04 00:00 UTC"
    assert states(migrator) == [State.CONTRACTING]
    with pytest.raises(TableNotFoundError):
        store.table("runs")
    now += dt.timedelta(days=2)
    assert migrator.contract(1) is not None
    now += dt.timedelta(days=1)
    assert migrator.contract(1) is None
    assert states(migrator) == [State.DONE]
    with pytest.raises(TableNotFoundError):
        store.admin.get_specification("runs")


def test_numbers_become_wider_and_indexes_come_and_go(store: Storage, scripts: Scripts) -> None:
    put_runs(store, 20)
    scripts.add(
        "wide",
        up="""
        op.widen_field("runs", op.long("attempts"))
        op.add_index("runs", "attempts")
        op.drop_index("runs", "state")
        """,
    )
    migrator = Migrator(store, scripts.path)
    migrator.up()
    spec = store.admin.get_specification("runs")
    assert (spec.field("attempts"), spec.indexes) == (Field.long("attempts"), ("state", "attempts"))
    migrator.contract(1)
    assert store.admin.get_specification("runs").indexes == ("attempts",)


STEPS = ["expand", "fill", "verify", "finish"]


@pytest.mark.parametrize("step", STEPS)
def test_each_state_is_reverted(store: Storage, scripts: Scripts, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put_runs(store, 120)
    before = store.admin.get_specification("runs")
    with store.table("runs").scan() as found:
        rows = [dict(row) for row in found]
    scripts.add(
        "many",
        up="""
        op.create_table(op.table("others", [op.string("k")], ["k"]))
        op.add_field("runs", op.long("n"), derive=op.json_field(("n",), "long"), source="payload")
        op.add_index("runs", "n")
        op.rename_field("runs", "state", "status")
        op.add_index("runs", "attempts")
        """,
    )
    migrator = Migrator(store, scripts.path)
    _failing(monkeypatch, step)
    with pytest.raises(MigrationError, match="planned"):
        migrator.up()
    [paused] = migrator.status()
    assert paused.state is State.PAUSED
    assert paused.error == f"planned in {step}"
    with pytest.raises(MigrationError, match="revision 1 is paused: planned"):
        migrator.up()
    monkeypatch.undo()
    migrator.down(0)
    assert states(migrator) == [State.PENDING]
    assert store.admin.get_specification("runs") == before
    assert not store.admin.exists("others")
    with store.table("runs").scan() as found:
        assert [dict(row) for row in found] == rows
    migrator.up()
    assert states(migrator) == [State.READY]
    migrator.down(0)
    assert store.admin.get_specification("runs") == before


def _failing(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    place = {
        "expand": "structable.migrations.steps.SchemaCalls.add_name",
        "fill": "structable.migrations.batches.do_batch",
        "verify": "structable.migrations.backfill.verify",
        "finish": "structable.migrations.steps.SchemaCalls.set_ready",
    }[step]

    def fail(*args: object, **options: object) -> None:
        raise MigrationError(f"planned in {step}")

    monkeypatch.setattr(place, fail)


@pytest.mark.parametrize("step", STEPS)
def test_a_paused_revision_goes_on(
    store: Storage, scripts: Scripts, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_runs(store, 120)
    scripts.add(
        "many",
        up="""
        op.add_field("runs", op.long("n"), derive=op.json_field(("n",), "long"), source="payload")
        op.rename_field("runs", "state", "status")
        """,
    )
    migrator = Migrator(store, scripts.path)
    _failing(monkeypatch, step)
    with pytest.raises(MigrationError, match="planned"):
        migrator.up()
    monkeypatch.undo()
    migrator.resume()
    assert states(migrator) == [State.READY]
    assert store.table("runs").count(where=col("n") == 7) == 1


def test_contracted_revisions_are_not_reverted(store: Storage, scripts: Scripts) -> None:
    put_runs(store, 5)
    scripts.add("drop", up='op.drop_field("runs", "attempts")')
    migrator = Migrator(store, scripts.path)
    with pytest.raises(MigrationError, match="PENDING"):
        migrator.contract(1)
    migrator.up()
    scripts.add("field", up='op.add_field("runs", op.int("m"))', contract='op.drop_field("runs", "payload")')
    migrator.up()
    with pytest.raises(MigrationError, match="contract it before"):
        migrator.contract(2)
    migrator.contract(1)
    with pytest.raises(IrreversibleError, match="contracted"):
        migrator.down(0)
    migrator.down(1)
    assert "m" not in store.admin.get_specification("runs")


def test_a_removed_field_comes_back_empty(store: Storage, scripts: Scripts) -> None:
    put_runs(store, 5)
    scripts.add("drop", up='op.drop_field("runs", "attempts")')
    scripts.add("again", up='op.add_field("runs", op.int("attempts"))')
    migrator = Migrator(store, scripts.path)
    migrator.up(1)
    migrator.contract(1)
    migrator.up()
    assert store.table("runs").count(where=col("attempts").is_null()) == 5


def test_rows_that_differ_from_the_rule_stop_the_revision(
    store: Storage, scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    from structable.migrations import VerificationError
    from structable.migrations.fills import stored_table

    put_runs(store, 50)
    scripts.add("n", up='op.add_field("runs", op.long("n"), derive=op.json_field(("n",), "long"), source="payload")')
    migrator = Migrator(store, scripts.path)
    _failing(monkeypatch, "verify")
    with pytest.raises(MigrationError, match="planned"):
        migrator.up()
    monkeypatch.undo()

    def spoil(tx: Transaction) -> None:
        stored_table(tx, "runs").update({"app": "app1", "run": 7, "n": 70})

    store.run(spoil)
    with pytest.raises(VerificationError, match=r"1 rows differ from the rule: key \('app1', 7\): stored 70") as raised:
        migrator.resume()
    assert len(raised.value.samples) == 1
    assert states(migrator) == [State.PAUSED]


def test_a_measured_store_is_filled(scripts: Scripts, monkeypatch: pytest.MonkeyPatch) -> None:
    with measured(monkeypatch), connect(f"memory://{uuid.uuid4().hex}") as storage:
        assert isinstance(storage, MeasuringStorage)
        put_runs(storage, 50)
        scripts.add(
            "n", up='op.add_field("runs", op.long("n"), derive=op.json_field(("n",), "long"), source="payload")'
        )
        migrator = Migrator(storage, scripts.path)
        migrator.up()
        [status] = migrator.status()
        assert (status.state, status.changed) == (State.DONE, 45)


def test_down_leaves_what_was_there_before(store: Storage, scripts: Scripts) -> None:
    put_runs(store, 20)
    before = store.admin.get_specification("runs")
    scripts.add(
        "runs",
        up=f"""
        op.create_table(op.table("runs", [{_fields()}], ["app", "run"], ["state"]))
        op.add_field("runs", op.int("attempts"))
        op.add_index("runs", "state")
        op.add_field("runs", op.long("n"))
        """,
    )
    migrator = Migrator(store, scripts.path)
    migrator.up()
    migrator.down(0)
    assert store.admin.get_specification("runs") == before
    assert store.table("runs").count() == 20


def test_a_contract_that_a_table_cannot_bear_is_refused_before(store: Storage, scripts: Scripts) -> None:
    """What has begun to contract does not go back, and its script must not change."""
    put_runs(store, 5)
    file = scripts.add("drop", up='op.add_field("runs", op.int("m"))', contract='op.drop_field("runs", "app")')
    migrator = Migrator(store, scripts.path)
    with pytest.raises(SchemaIncompatibleError, match="part of the primary key"):
        migrator.up()
    assert "m" not in store.admin.get_specification("runs")
    migrator.down(0)
    scripts.write(file, up='op.add_field("runs", op.int("m"))')
    migrator.up()
    assert states(migrator) == [State.DONE]


def test_a_dropped_source_leaves_what_was_computed_of_it(store: Storage, scripts: Scripts) -> None:
    put_runs(store, 20)
    scripts.add(
        "n",
        up='op.add_field("runs", op.long("n"), derive=op.json_field(("n",), "long"), source="payload")',
        contract='op.drop_field("runs", "payload")',
    )
    migrator = Migrator(store, scripts.path)
    migrator.up()
    migrator.contract(1)
    spec = store.admin.get_specification("runs")
    assert ("payload" in spec, "n" in spec, spec.rules) == (False, True, ())
    store.table("runs").update({"app": "app1", "run": 7, "n": 70})
    assert store.table("runs").read(("app2", 8)).n == 8  # type: ignore[union-attr]


def test_a_rewrite_keeps_keys(store: Storage, scripts: Scripts) -> None:
    rows = put_runs(store, 5)
    module = scripts.function("""
    def renumber(row):
        return {"run": row.run + 1}
    """)
    scripts.add("renumber", up=f'op.rewrite("runs", "{module}:renumber")')
    with pytest.raises(MigrationError, match="renumber changed 'run', a field of the key"):
        Migrator(store, scripts.path).up()
    assert {row.run for row in store.table("runs").scan()} == {row["run"] for row in rows}


def test_a_function_that_fails_pauses_the_revision_and_commits_nothing(store: Storage, scripts: Scripts) -> None:
    put_runs(store, 5)
    module = scripts.function("""
    def fail(tx):
        tx.table("runs").delete(("app0", 0))
        raise ValueError("not now")
    """)
    scripts.add("fail", up=f'op.run("{module}:fail")\nop.add_field("runs", op.int("n"))')
    migrator = Migrator(store, scripts.path)
    with pytest.raises(MigrationError, match="fail: ValueError: not now"):
        migrator.up()
    [status] = migrator.status()
    assert (status.state, status.resumes) == (State.PAUSED, State.EXPANDING)
    assert store.table("runs").count() == 5
