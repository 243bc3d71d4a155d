"""Contracts that end early: what was not taken away is there for older programs."""

from __future__ import annotations

import datetime as dt

import pytest

from structable.migrations import (
    Folder,
    LiveClientsError,
    MigrationError,
    Migrator,
    Schema,
    SchemaAheadError,
    State,
    batches,
    differences,
    migrator,
    schema,
)
from structable.migrations.history import History
from structable.spi import Derived, Field, Lower, Range, SchemaIncompatibleError, Storage, Transaction, col
from tests.migrations.support.clocks import fast
from tests.migrations.support.folders import RUNS, Scripts, put_runs


@pytest.fixture
def ready(store: Storage, scripts: Scripts) -> Migrator:
    """Return a migrator whose two revisions are READY, the first of them contracted."""
    put_runs(store, 20)
    scripts.add("more", up='op.add_field("runs", op.int("m"))', contract='op.drop_field("runs", "payload")')
    scripts.add("fewer", up='op.drop_field("runs", "attempts")')
    one = Migrator(store, scripts.path, monotonic=fast)
    one.up()
    one.contract(1)
    return one


def refused(store: Storage, revision: int) -> bool:
    """Return whether a program of a revision cannot start."""
    try:
        Schema(store, revision=revision, application="a", monotonic=fast).close()
    except SchemaAheadError:
        return True
    return False


def test_an_interrupted_contract_lets_older_programs_start(
    store: Storage, ready: Migrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while older programs are watched for."""
    within: list[bool] = []

    def interrupted(*args: object) -> None:
        within.append(refused(store, 1))
        raise KeyboardInterrupt

    monkeypatch.setattr(migrator, "require_no_older", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ready.contract(2)
    assert within == [True]
    assert ready.status()[1].state is State.READY
    assert not refused(store, 1)
    assert refused(store, 0)


@pytest.mark.parametrize("then", ["contract", "down"])
def test_a_killed_contract_is_undone_by_the_next_command(store: Storage, ready: Migrator, then: str) -> None:
    """A runner that was killed as it watched had refused programs that still find all they need."""
    older = Schema(store, revision=1, application="old", monotonic=fast)
    store.run(lambda tx: History(store).set_minimum(tx, 2))
    assert refused(store, 1)
    if then == "contract":
        with pytest.raises(LiveClientsError):
            ready.contract(2)
    else:
        ready.down(1)
    older.close()
    assert not refused(store, 1)
    assert refused(store, 0)


def test_a_program_that_was_replaced_while_it_was_watched_stays_announced(
    store: Storage, ready: Migrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its new version has the same name of the process; another program that has ended is forgotten."""
    for instance in ("replaced", "gone"):
        Schema(store, revision=1, application="a", instance=instance)._ended.set()
    looks = 0
    older = schema._older

    def replacing(tx: Transaction, history: History, revision: int) -> object:
        nonlocal looks
        looks += 1
        found = older(tx, history, revision)
        if looks == 1:
            Schema(store, revision=2, application="a", instance="replaced", monotonic=fast)._ended.set()
        return found

    monkeypatch.setattr(schema, "_older", replacing)
    ready.contract(2)
    with store.table("structable_clients").scan() as rows:
        assert [row.instance for row in rows if row.application] == ["replaced"]


@pytest.mark.parametrize("begun", [False, True])
def test_what_a_later_revision_adds_again_stays(store: Storage, scripts: Scripts, begun: bool) -> None:
    """The contract of the earlier one, which drops the name, comes later, or goes on once a table's days are over."""
    rows = put_runs(store, 20)
    store.admin.create(RUNS.evolve(name="others"))
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    one = Migrator(store, scripts.path, clock=lambda: now)
    drop = """
    op.drop_field("runs", "attempts")
    op.drop_index("runs", "state")
    op.rename_field("runs", "payload", "document")
    op.drop_table("others", keep_days=3)
    """
    scripts.add("drop", up=drop)
    one.up()
    if begun:
        assert one.contract(1) is not None
    again = """
    op.add_field("runs", op.int("attempts"))
    op.add_index("runs", "state")
    op.add_field("runs", op.string("payload"))
    """
    scripts.add("again", up=again)
    one.up()
    table = store.table("runs")
    table.update_all(Range.all(), {"attempts": 7})
    assert begun is not (table.count(where=col("payload").is_not_null()) == len(rows))
    one.contract(1)
    now += dt.timedelta(days=4)
    assert one.contract(1) is None
    assert [status.state for status in one.status()] == [State.DONE, State.DONE]
    assert table.count(where=(col("attempts") == 7) & col("document").is_not_null()) == len(rows)
    assert sum(1 for _ in table.scan_index("state", "DONE")) == len(rows) // 2
    table.update({"app": "app0", "run": 0, "payload": "other"})
    row = table.read(("app0", 0))
    assert row is not None
    assert (row.payload, row.document) == ("other", rows[0]["payload"])


@pytest.mark.parametrize("drop", ['op.drop_field("runs", "payload")', 'op.rename_field("runs", "payload", "document")'])
def test_what_a_revision_is_filled_from_is_not_dropped_before(store: Storage, scripts: Scripts, drop: str) -> None:
    rows = put_runs(store, 20)
    one = Migrator(store, scripts.path)
    scripts.add("drop", up=drop)
    one.up()
    scripts.add("n", up='op.add_field("runs", op.long("n"), derive=op.json_field(("n",), "long"), source="payload")')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "do_batch", None)
        with pytest.raises(TypeError):
            one.up()
    assert one.status()[1].state is State.PAUSED
    with pytest.raises(MigrationError, match=r"revision 2 is PAUSED, and 'add field .*' needs what revision 1 drops"):
        one.contract(1)
    one.resume()
    one.contract(1)
    assert store.table("runs").count(where=col("n").is_not_null()) == len(rows) - 2


def test_what_a_rewrite_may_read_is_not_dropped_before(store: Storage, scripts: Scripts) -> None:
    put_runs(store, 20)
    one = Migrator(store, scripts.path)
    scripts.add("drop", up='op.drop_field("runs", "payload")')
    module = scripts.function("def fail(row):\n    raise ValueError(row.payload)\n")
    scripts.add("fill", up=f'op.rewrite("runs", "{module}:fail")', down="pass")
    with pytest.raises(MigrationError, match="ValueError"):
        one.up()
    with pytest.raises(MigrationError, match=r"'rewrite runs by .*' needs what revision 1 drops"):
        one.contract(1)
    one.down(1)
    one.contract(1)
    assert "payload" not in store.admin.get_specification("runs")


def test_what_is_computed_of_a_field_with_two_names_follows_the_second(store: Storage, scripts: Scripts) -> None:
    """The first is the name of another field by then, and a later revision computes one of that."""
    rows = put_runs(store, 20)
    one = Migrator(store, scripts.path)
    scripts.add("low", up='op.add_field("runs", op.string("low"), derive=op.lower(), source="payload")')
    scripts.add("new", up='op.rename_field("runs", "payload", "document")')
    again = """
    op.add_field("runs", op.string("payload"))
    op.add_field("runs", op.string("other"), derive=op.lower(), source="payload")
    """
    scripts.add("again", up=again)
    one.up()
    names = ("document", "low", "other")
    after = RUNS.evolve(
        fields=[*RUNS.fields, *map(Field.string, names)],
        rules=[Derived("low", "document", Lower(), ready=True), Derived("other", "payload", Lower(), ready=True)],
    )
    for _ in range(2):
        assert not differences(store, [after], Folder(scripts.path), History(store).all())
        one.contract(2)
    assert {*store.admin.get_specification("runs").rules} == {*after.rules}
    store.table("runs").update({"app": "app0", "run": 0, "payload": "New"})
    row = store.table("runs").read(("app0", 0))
    assert row is not None
    assert (row.low, row.other) == (str(rows[0]["payload"]).lower(), "new")


def test_a_retired_table_is_dropped_for_a_revision_that_makes_it_again(store: Storage, scripts: Scripts) -> None:
    """The revision waits for that, PAUSED."""
    store.admin.create(RUNS.evolve(name="others"))
    store.table("others").upsert({"app": "a", "run": 1})
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    one = Migrator(store, scripts.path, clock=lambda: now)
    scripts.add("drop", up='op.drop_table("others", keep_days=3)')
    one.up()
    assert one.contract(1) is not None
    again = """
    op.create_table(op.table("others", [op.string("app"), op.int("run")], ["app", "run"]))
    op.add_field("others", op.int("n"), default=1)
    """
    scripts.add("again", up=again)
    with pytest.raises(SchemaIncompatibleError, match="retired by revision 1"):
        one.up()
    now += dt.timedelta(days=4)
    assert one.contract(1) is None
    one.resume()
    assert [status.state for status in one.status()] == [State.DONE, State.DONE]
    assert store.table("others").count() == 0
