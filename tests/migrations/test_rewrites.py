"""Rewrites: what their functions see and return, and how `up --dry-run` rehearses them."""

from __future__ import annotations

import datetime as dt
import itertools
import sys

import pytest

from structable.migrations import IrreversibleError, MigrationError, Migrator, State, Throttle, backfill
from structable.migrations.parts import Part
from structable.spi import Storage, col
from tests.migrations.conftest import every_store
from tests.migrations.support.folders import Scripts, put_runs


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ('{"attempts": "x"}', "an int is needed"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("exit(3)", "SystemExit: 3"),
        ('{"attempts": 2**40}', "'attempts'"),
        ('{"unknown": 1}', "field 'unknown': is not a field"),
        ('{"n": 1}', "1 is not 7, its value derived from 'payload'"),
        ('{"state": "A", "title": "B"}', "'B' is not 'A', and it is 'state' under its new name"),
    ],
)
def test_what_a_function_gets_wrong_is_shown_with_its_row(
    store: Storage, scripts: Scripts, value: str, reason: str
) -> None:
    """In `up`, which pauses with that, and before in the rehearsal."""
    put_runs(store, 30)
    module = scripts.function(f"""
    def wrong(row):
        return {value} if row.run == 7 else {{"attempts": 3}}
    """)
    scripts.add(
        "wrong",
        up=f"""
        op.add_field("runs", op.long("n"), derive=op.json_field(("n",), "long"), source="payload")
        op.rename_field("runs", "state", "title")
        op.rewrite("runs", "{module}:wrong")
        """,
    )
    migrator = Migrator(store, scripts.path)
    for call in (migrator.rehearse, migrator.up):
        with pytest.raises(MigrationError, match=rf"row \('app1', 7\): .*{reason}"):
            call()
    [paused] = migrator.status()
    assert (paused.state, paused.resumes) == (State.PAUSED, State.FILLING)
    assert "row ('app1', 7)" in str(paused.error)


@every_store
def test_an_error_that_no_store_can_keep_is_recorded_in_other_words(store: Storage, scripts: Scripts) -> None:
    put_runs(store, 3)
    module = scripts.function("""
    def wrong(row):
        raise ValueError("a file named \\udc80, \\0")
    """)
    scripts.add("wrong", up=f'op.rewrite("runs", "{module}:wrong")')
    migrator = Migrator(store, scripts.path)
    with pytest.raises(MigrationError):
        migrator.up()
    [paused] = migrator.status()
    assert paused.state is State.PAUSED
    assert r"ValueError: a file named \udc80, " in str(paused.error)


def test_fields_that_come_first_are_there_in_a_rehearsal(store: Storage, scripts: Scripts) -> None:
    """Empty, with their default, or computed; of the same revision or of one before."""
    rows = put_runs(store, 50)
    module = scripts.function("""
    def summed(row):
        assert (row.region, row.tries) == ("eu", row.attempts)
        return None if row.n is None else {"total": row.n + row.tries, "region": "us"}
    """)
    scripts.add(
        "fields",
        up="""
        op.add_field("runs", op.long("n"), derive=op.json_field(("n",), "long"), source="payload")
        op.rename_field("runs", "attempts", "tries")
        op.add_field("runs", op.string("region"), default="eu")
        """,
    )
    where = "total is null and n >= 10"
    total = f'op.add_field("runs", op.long("total"))\nop.rewrite("runs", "{module}:summed", where="{where}")'
    scripts.add("total", up=total, down="pass")
    migrator = Migrator(store, scripts.path)
    before = store.admin.get_specification("runs")
    changed = [row for row in rows if int(str(row["run"])) >= 10 and row["payload"] != "no JSON"]
    for _ in range(2):
        assert migrator.rehearse() == [
            "0001 add field runs.n long = json_field(('n',), 'long') of payload: "
            "50 rows computed, 5 of them have no value",
            f"0002 rewrite runs by {module}:summed where {where}: "
            f"{len(changed)} rows, {len(changed)} of them changed, and rolled back",
        ]
        assert store.admin.get_specification("runs") == before
        migrator.up()
        migrator.down(0)  # undone revisions are rehearsed again
    migrator.up()
    assert store.table("runs").count(where=col("total").is_not_null()) == len(changed)


def test_a_module_that_fails_pauses_the_revision(store: Storage, scripts: Scripts) -> None:
    put_runs(store, 3)
    module = scripts.function("def fine(row):\n    return None\nmissing()\n")
    scripts.add("wrong", up=f'op.rewrite("runs", "{module}:fine")')
    migrator = Migrator(store, scripts.path)
    with pytest.raises(MigrationError, match="cannot be imported: NameError: name 'missing'"):
        migrator.up()
    assert migrator.status()[0].state is State.PAUSED


def test_a_rate_does_not_count_the_time_of_a_pause(
    store: Storage, scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A night between two runs says nothing about the time that is left."""
    put_runs(store, 300, apps=1)
    monkeypatch.setattr(backfill, "cut", lambda *given: [Part(None, None)])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # the second module is as long, and made in the same second
    for last, day in ((150, 1), (250, 2)):
        module = scripts.function(f"""
        def counted(row):
            return {{"attempts": 9 // (row.run < {last})}}
        """)
        sys.modules.pop(module, None)
        if last == 150:
            scripts.add("counted", up=f'op.rewrite("runs", "{module}:counted")')
        seconds = itertools.count()
        begun = dt.datetime(2026, 1, day, tzinfo=dt.UTC)
        migrator = Migrator(
            store,
            scripts.path,
            clock=lambda: begun + dt.timedelta(seconds=next(seconds)),  # noqa: B023 - used within the round
        )
        with pytest.raises(MigrationError, match="ZeroDivisionError"):
            migrator.resume(throttle=Throttle(threads=1))
        [paused] = migrator.status()
        assert paused.seen >= last - 50
        assert paused.rate is not None
        assert paused.rate > 1


@pytest.mark.parametrize(
    "operation",
    ['op.rewrite("runs", "{}:fine", where="typo > 3")', 'op.rewrite("typo", "{}:fine")', 'op.run("{}:typo")'],
)
def test_what_could_not_begin_is_undone_without_a_down(store: Storage, scripts: Scripts, operation: str) -> None:
    """Otherwise its script could never be corrected; once it has worked, it needs one."""
    put_runs(store, 3)
    module = scripts.function("def fine(row_or_transaction):\n    return None\n")
    file = scripts.add("wrong", up=operation.format(module))
    migrator = Migrator(store, scripts.path)
    with pytest.raises(MigrationError):
        migrator.up()
    migrator.down(0)
    kind = operation.partition("(")[0]
    scripts.write(file, up=f'{kind}("runs", "{module}:fine")' if kind == "op.rewrite" else f'op.run("{module}:fine")')
    migrator.up()
    with pytest.raises(IrreversibleError, match="has no inverse"):
        migrator.down(0)
