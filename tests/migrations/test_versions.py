"""Two versions of a program write at random while a revision goes through its states; a model knows what they wrote."""

from __future__ import annotations

import os

import pytest

from structable.migrations import Migrator, State, Throttle, backfill, batches
from structable.migrations.parts import Part
from structable.spi import (
    Derived,
    Field,
    FieldRule,
    Lower,
    Renamed,
    Storage,
    TableSpecification,
    Transaction,
    TransactionConflictError,
    Value,
)
from structable.spi.authors import RowMove
from tests.migrations.conftest import every_store
from tests.migrations.support.folders import Scripts, put_runs
from tests.migrations.support.programs import UP, Program, models_of, require_rows

ROWS = 300
SEED = int(os.environ.get("STRUCTABLE_TEST_SEED", "7"))


@every_store
def test_both_versions_find_what_they_wrote(store: Storage, scripts: Scripts) -> None:
    models = models_of(put_runs(store, ROWS), 3)
    scripts.add("new", up=UP)
    migrator = Migrator(store, scripts.path)
    with Program(store, models[0], "attempts", SEED), Program(store, models[1], "attempts", SEED + 1) as old:
        while old.written < 5 and old.error is None:
            pass
        migrator.up(throttle=Throttle(rows_per_second=1_500))
    with Program(store, models[0], "attempts", SEED + 2) as old, Program(store, models[2], "tries", SEED + 3) as new:
        while min(old.written, new.written) < 10 and old.error is None and new.error is None:
            pass
    assert migrator.status()[0].state is State.READY
    require_rows(store, models, "attempts", "tries")
    migrator.contract(1)
    require_rows(store, models, "tries")


RUN = TableSpecification("moved", [Field.int("k"), Field.long("n"), Field.string("s")], ["k"])


@every_store
@pytest.mark.parametrize(
    "rules",
    [
        (),
        (Renamed("s", "t"),),
        (Renamed("other", "t"),),
        (Derived("t", "s", Lower()),),
        (Derived("t", "other", Lower()),),
    ],
    ids=str,
)
@pytest.mark.parametrize("keys", [(1,), (1, 2)], ids=str)
def test_a_moved_row_keeps_fields_that_an_old_program_does_not_know(
    store: Storage, rules: tuple[FieldRule, ...], keys: tuple[int, ...]
) -> None:
    """A row that gets another key, as a job does with each state, is still the row that a newer program wrote."""
    store.admin.create(RUN)
    new = TableSpecification("moved", [*RUN.fields, Field.string("other"), Field.string("t")], ["k"])
    store.admin.create_or_update(new)
    store.admin.set_rules("moved", rules)
    store.table("moved").upsert_many([{"k": key, "n": 0, "s": "S", "other": "O"} for key in keys])
    before = {key: store.table("moved").read((key,)) for key in keys}

    def move(tx: Transaction) -> None:
        table = tx.table("moved")
        table.multi_read([(key,) for key in keys])
        rows: list[dict[str, Value]] = [{"k": 10 + key, "n": 5, "s": "S"} for key in keys]
        table._move(RowMove([(key,) for key in keys], rows, ("n",)))

    store.run(move)
    with store.table("moved").scan() as rows:
        assert [dict(row) for row in rows] == [{**dict(before[key] or {}), "k": 10 + key, "n": 5} for key in keys]


def test_a_row_that_a_user_writes_in_a_batch_conflicts(store: Storage, scripts: Scripts) -> None:
    put_runs(store, 30)
    scripts.add("n", up=UP.splitlines()[1])
    do_batch = batches.do_batch
    conflicts = 0

    def beside(*args: object, **options: object) -> object:
        nonlocal conflicts
        try:
            with store.transaction() as tx:
                if not conflicts:
                    tx.table("runs").upsert({"app": "app1", "run": 7, "payload": '{"n": 70}'})
                    done = do_batch(*args, **options)  # type: ignore[arg-type]
                else:
                    return do_batch(*args, **options)  # type: ignore[arg-type]
        except TransactionConflictError:
            conflicts += 1
            raise
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backfill, "cut", lambda *given: [Part(None, None)])
        patch.setattr(batches, "do_batch", beside)
        Migrator(store, scripts.path).up()
    assert conflicts == 1
    row = store.table("runs").read(("app1", 7))
    assert row is not None
    assert row.n == 7
