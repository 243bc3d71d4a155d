"""Versions of a program that write at random, and a model of what they wrote.

`python -m tests.migrations.support.programs URL TRIES SEED` is one of them as a process of its own.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

from structable.spi import Row, Storage, Value, connect

ROOT = Path(__file__).parents[3]

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
                self._ended.wait(0.001)  # or the fill of many rows would hardly get the interpreter
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


class Process:
    """A version of a program in a process of its own, from its first write on; its model is known once it has ended."""

    def __init__(self, url: str, model: Model, tries: str, seed: int) -> None:
        self._command = [sys.executable, "-m", "tests.migrations.support.programs", url, tries, str(seed)]
        self._model = model

    def __enter__(self) -> Process:
        self._process = subprocess.Popen(
            self._command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([*self._model.items()]) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "writes\n"
        return self

    def __exit__(self, *raised: object) -> None:
        written, _ = self._process.communicate()  # the end of its input ends it
        assert self._process.returncode == 0
        self._model.clear()
        self._model.update(_model_of(written))


def _model_of(text: str) -> Model:
    return {tuple(key): row for key, row in json.loads(text)}


def main(url: str, tries: str, seed: str) -> None:
    """Write until the input ends, whose first line is the model; print the model then."""
    model = _model_of(sys.stdin.readline())
    with connect(url) as storage, Program(storage, model, tries, int(seed)) as program:
        while not program.written and program.error is None:
            pass
        print("writes", flush=True)
        sys.stdin.read()
    print(json.dumps([*model.items()]))


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


def models_of(rows: Iterable[Mapping[str, Value]], count: int) -> list[Model]:
    """Return models of rows, each of a share of them that one program writes."""
    models: list[Model] = [{} for _ in range(count)]
    for number, row in enumerate(rows):
        values = {name: value for name, value in row.items() if name not in ("app", "run")}
        models[number % count][row["app"], row["run"]] = values
    return models


def wanted(models: Iterable[Model]) -> dict[tuple[Value, ...], tuple[Value, ...]]:
    """Return what the table must have."""
    return {key: of_model(row) for model in models for key, row in model.items()}


def require_rows(storage: Storage, models: Iterable[Model], *names: str) -> None:
    """Compare all rows with models, the field `attempts` under each of its names."""
    rows = wanted(models)
    for name in names:
        with storage.table("runs").scan() as found:
            assert {row.key: of_row(row, name) for row in found} == rows
    for number in list({values[3] for values in rows.values()})[:10]:
        with storage.table("runs").scan_index("n", number) as found:
            assert {row.key for row in found} == {key for key, values in rows.items() if values[3] == number}


if __name__ == "__main__":
    main(*sys.argv[1:])
