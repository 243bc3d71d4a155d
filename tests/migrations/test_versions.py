"""Two versions of a program write at random while a revision goes through its states; a model knows what they wrote."""

from __future__ import annotations

import json
import os
import random
import threading

import pytest

from structable.migrations import Migrator, State, Throttle, backfill, batches
from structable.migrations.parts import Part
from structable.spi import Row, Storage, TransactionConflictError, Value
from tests.migrations.conftest import every_store
from tests.migrations.support.folders import Scripts, put_runs

ROWS = 300
SEED = int(os.environ.get("STRUCTABLE_TEST_SEED", "7"))

UP = """
op.add_field("runs", op.long("n"), derive=op.json_field(("n",), "long"), source="payload")
op.add_index("runs", "n")
op.add_field("runs", op.string("low"), derive=op.lower(), source="state")
op.rename_field("runs", "attempts", "tries")
op.add_index("runs", "tries")
"""

Model = dict[tuple[Value, ...], dict[str, Value]]


class Program:
    """A version of a program: one thread, which writes the rows of its own."""

    def __init__(self, storage: Storage, model: Model, tries: str, seed: int) -> None:
        self._storage = storage
        self._model = model
        self._keys = list(model)
        self._tries = tries
        self._random = random.Random(seed)
        self._ended = threading.Event()
        self.written = 0
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Program:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ended.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self._write()
                self.written += 1
        except BaseException as error:
            self.error = error

    def _write(self) -> None:
        dice = self._random
        key = dice.choice(self._keys)
        table = self._storage.table("runs")
        named = dict(zip(("app", "run"), key, strict=True))
        row: dict[str, Value] = dice.choice(
            [
                {"payload": json.dumps({"n": dice.randrange(1000)})},
                {"payload": "no JSON"},
                {"state": dice.choice(["Up", "Down", "done"])},
                {self._tries: dice.randrange(10)},
                {"state": "Both", self._tries: 5, "payload": '{"n": null}'},
            ]
        )
        kind = dice.randrange(6)
        old = {"attempts" if name == "tries" else name: value for name, value in row.items()}
        if kind == 0:
            table.delete(key)
            self._model.pop(key, None)
        elif kind == 1:
            table.replace({**named, **row})
            self._model[key] = old
        elif kind == 2:
            self._storage.run(lambda tx: tx.table("runs").increment(key, self._tries))
            before = self._model.setdefault(key, {})
            count = before.get("attempts") or 0
            assert isinstance(count, int)
            before["attempts"] = count + 1
        else:
            table.upsert({**named, **row})
            self._model.setdefault(key, {}).update(old)


def of_model(row: dict[str, Value]) -> tuple[Value, ...]:
    try:
        n = json.loads(str(row.get("payload")))["n"]
    except (ValueError, TypeError, LookupError):
        n = None
    state = row.get("state")
    low = state.lower() if isinstance(state, str) else None
    return row.get("payload"), state, row.get("attempts"), n, low


def of_row(row: Row, tries: str) -> tuple[Value, ...]:
    return row.payload, row.state, row[tries], row.n, row.low


@every_store
def test_both_versions_find_what_they_wrote(store: Storage, scripts: Scripts) -> None:
    rows = put_runs(store, ROWS)
    models: list[Model] = [{}, {}, {}]
    for row in rows:
        values = {name: value for name, value in row.items() if name not in ("app", "run")}
        models[int(str(row["run"])) % 3][row["app"], row["run"]] = values
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
    wanted = {key: of_model(row) for model in models for key, row in model.items()}
    with store.table("runs").scan() as found:
        assert {row.key: of_row(row, "attempts") for row in found} == wanted
    with store.table("runs").scan() as found:
        assert {row.key: of_row(row, "tries") for row in found} == wanted
    numbers = {values[3] for values in wanted.values()}
    for number in list(numbers)[:10]:
        with store.table("runs").scan_index("n", number) as found:
            assert {row.key for row in found} == {key for key, values in wanted.items() if values[3] == number}
    migrator.contract(1)
    with store.table("runs").scan() as found:
        assert {row.key: of_row(row, "tries") for row in found} == wanted


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
