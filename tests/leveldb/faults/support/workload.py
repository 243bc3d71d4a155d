"""A workload whose state after each step is known: transactions over two tables, write jobs, a schema change.

The tables have change feeds: whatever happens, each table is what its feed makes of nothing.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from structable.spi import (
    DataCorruptionError,
    FeedPosition,
    Field,
    RowKind,
    Storage,
    StructableError,
    TableSpecification,
    Value,
    connect,
)

State = Mapping[str, Mapping[int, Mapping[str, Value]]]
"""The rows of each table by their key, without nulls."""

STEPS = 16
_KEYS = 40
_FIELDS = [Field.long("k"), Field.string("s"), Field.bytes("b")]
_JOBS = (4, 9, 14)
BATCHES = (9, 14)
"""The steps that are batches of a stream; the first of them is a patch."""
_SCHEMA = 6
_REOPENINGS = (3, 8, 12)
_COMPACTIONS = {5: "none", 11: "snappy"}
"""After these steps all files are rewritten; another compression than before makes the owner reopen the database."""


class Crash(Exception):
    """A check has failed."""


@dataclass(frozen=True, slots=True)
class Step:
    """One atomic change, numbered from 1: its rows by table and key, None for a deletion."""

    number: int
    rows: dict[str, dict[int, dict[str, Value] | None]]
    kind: Literal["transaction", "job", "schema"] = "transaction"


def _steps(seed: int) -> list[Step]:
    choose = random.Random(seed)
    steps = []
    for number in range(1, STEPS + 1):
        rows: dict[str, dict[int, dict[str, Value] | None]] = {"a": {}, "b": {}}
        if number != _SCHEMA:
            for table in ("a",) if number in _JOBS else ("a", "b"):
                for key in choose.sample(range(_KEYS), 20 if number in _JOBS else choose.randint(1, 5)):
                    if number not in _JOBS and choose.random() < 0.2:
                        rows[table][key] = None
                        continue
                    size = choose.choice((0, 10, 100, 5_000, 20_000, 60_000 if number % 3 == 0 else 10))
                    row: dict[str, Value] = {"k": key, "s": f"v{number % 3}", "b": choose.randbytes(size)}
                    if table == "a" and number > _SCHEMA:
                        row["w"] = number
                    rows[table][key] = row
        steps.append(Step(number, rows, "job" if number in _JOBS else "schema" if number == _SCHEMA else "transaction"))
    return steps


def states(seed: int) -> list[State]:
    """Return the states after 0, 1, ... steps of `perform`."""
    return states_after(_steps(seed))


def states_after(steps: Iterable[Step]) -> list[State]:
    """Return the states after 0, 1, ... steps."""
    current: dict[str, dict[int, dict[str, Value]]] = {"a": {}, "b": {}}
    found: list[State] = [{table: dict(rows) for table, rows in current.items()}]
    for step in steps:
        for table, rows in step.rows.items():
            for key, row in rows.items():
                if row is None:
                    current[table].pop(key, None)
                else:
                    # An upsert replaces the columns that it names.
                    current[table][key] = {**current[table].get(key, {}), **row}
        found.append({table: dict(rows) for table, rows in current.items()})
    return found


def open_store(folder: Path, *, durability: str) -> Storage:
    """Connect with a small write buffer."""
    return connect(f"leveldb://{folder}", durability=durability, write_buffer=1)


def perform(
    folder: Path,
    seed: int,
    durability: str,
    acknowledge: Callable[[int], None],
    attempts: int,
    *,
    steps: int = STEPS,
    compacts: bool = True,
) -> None:
    """Do all steps, and report the number of each; a step that fails `attempts` times raises its StructableError."""
    storage: Storage | None = None

    def ready() -> Storage:
        nonlocal storage
        if storage is None:
            storage = open_store(folder, durability=durability)
        return storage

    def reopen() -> None:
        nonlocal storage
        before, storage = storage, None
        if before is not None:
            before.close()
        ready()

    def insist(action: Callable[[], None]) -> None:
        for attempt in range(1, attempts + 1):
            try:
                action()
                return
            except DataCorruptionError:
                raise
            except StructableError:
                if attempt == attempts:
                    raise
                time.sleep(0.1)  # reopening is tried a few times a second

    try:
        insist(lambda: create_tables(ready()))
        acknowledge(0)
        for step in _steps(seed)[:steps]:
            insist(lambda step=step: do_step(ready(), step))  # type: ignore[misc]
            acknowledge(step.number)
            if step.number in _REOPENINGS:
                insist(reopen)
            if compacts and step.number in _COMPACTIONS:
                insist(lambda step=step: compact(folder, durability, _COMPACTIONS[step.number]))  # type: ignore[misc]
    finally:
        if storage is not None:
            storage.close()


def create_tables(storage: Storage) -> None:
    """Make the tables of the state after no step."""
    for name in ("a", "b"):
        storage.admin.create_or_update(
            TableSpecification(name, _FIELDS, ["k"], ["s"], {"changelog-producer": "lookup"})
        )


def compact(folder: Path, durability: str, compression: str) -> None:
    with connect(f"leveldb://{folder}", durability=durability, compression=compression) as storage:
        list(storage.compact())


def do_step(storage: Storage, step: Step) -> None:
    if step.kind == "schema":
        storage.admin.create_or_update(TableSpecification("a", [*_FIELDS, Field.long("w")], ["k"], ["s", "w"]))
    elif step.kind == "job":
        patches = step.number == BATCHES[0]
        if step.number in BATCHES:
            mode = "patch" if patches else "upsert"
            job = storage.begin_write("a", mode=mode, stream="s", batch=step.number)
        else:
            job = storage.begin_write("a", mode="upsert", job_id=f"job{step.number}")
        if job.committed:
            return
        loaded = [row for row in step.rows["a"].values() if row is not None]
        columns = list(loaded[0])
        schema = pa.schema([(name, _ARROW[name]) for name in columns])
        batch = pa.RecordBatch.from_pydict({name: [row[name] for row in loaded] for name in columns}, schema=schema)
        if not patches:
            storage.commit_write(job, [storage.stage(job, 0, 0, [batch.slice(0, 7), batch.slice(7)])])
            return
        # Both arms of each key do what an upsert does.
        arms = [batch.append_column("_arm", pa.array([arm] * len(loaded))) for arm in ("present", "absent")]
        storage.commit_write(job, [storage.stage(job, place, 0, [one]) for place, one in enumerate(arms)])
    else:
        with storage.transaction() as transaction:
            for name, rows in step.rows.items():
                table = transaction.table(name)
                for key, row in rows.items():
                    if row is None:
                        table.delete((key,))
                    else:
                        table.upsert(row)


_ARROW: dict[str, pa.DataType] = {"k": pa.int64(), "s": pa.string(), "b": pa.binary(), "w": pa.int64()}


def acknowledged(path: Path) -> int:
    """Return the number of the last reported step, -1 for none."""
    return max((int(line) for line in path.read_text().split()), default=-1) if path.exists() else -1


def check(
    folder: Path,
    known: list[State],
    least: int,
    most: int,
    *,
    damaged: bool = False,
    batches: Sequence[int] = BATCHES,
) -> str:
    """Compare a folder with the states after `least` to `most` steps, write to it, open it again; return the finding.

    The stream has committed those of the `batches` whose rows are there. -1 stands for a database without its tables. A
    `damaged` one may also raise `DataCorruptionError`; anything else is a Crash.
    """
    try:
        with open_store(folder, durability="process") as storage:
            tables = storage.admin.list()
            if tables != ["a", "b"]:
                if least >= 0:
                    raise Crash(f"it has the tables {tables}, after {least} steps")
                create_tables(storage)
            found = {name: _read(storage, name) for name in ("a", "b")}
            if not any(found == known[step] for step in range(max(least, 0), max(most, 0) + 1)):
                at = [step for step, state in enumerate(known) if state == found]
                raise Crash(f"it is as after the steps {at}, not {least} to {most}: {_differences(found, known[most])}")
            _check_stream(storage, [step for step, state in enumerate(known) if state == found], batches)
            storage.table("a").upsert({"k": -1, "s": "new", "b": b""})
        with open_store(folder, durability="machine") as storage:
            written = storage.table("a").read((-1,))
            if written is None or written["s"] != "new":
                raise Crash("a row that was written after the crash is lost")
            if _read(storage, "b") != found["b"] or _read(storage, "a").keys() != {*found["a"], -1}:
                raise Crash("the next opening reads something else")
    except DataCorruptionError as error:
        if damaged:
            return f"refused: {error}"
        raise Crash(f"a sound database was reported as damaged: {error}") from error
    except StructableError as error:
        raise Crash(f"{type(error).__name__}: {error}") from error
    return "right"


def _check_stream(storage: Storage, at: list[int], batches: Sequence[int]) -> None:
    for batch in batches:
        committed = storage.begin_write("a", mode="upsert", stream="s", batch=batch).committed
        if committed not in {step >= batch for step in at}:
            raise Crash(f"batch {batch} is {'committed' if committed else 'not committed'} after the steps {at}")


def _read(storage: Storage, name: str) -> dict[int, dict[str, Value]]:
    found: dict[int, dict[str, Value]] = {}
    with storage.transaction(read_only=True) as transaction:
        position = transaction.position(name)
        table = transaction.table(name)
        for row in table.scan():
            found[_key(row)] = _present(row)
            if table.read(row.key) != row or storage.table(name).read(row.key) != row:
                raise Crash(f"a scan of {name!r} gives {row}, a read another row")
        for field in storage.admin.get_specification(name).indexes:
            expected = sorted((str(row[field]), key) for key, row in found.items() if field in row)
            values = {row[field] for row in found.values() if field in row}
            if field == "s":
                values |= {"v0", "v1", "v2"}
            listed = sorted((str(value), _key(row)) for value in values for row in table.scan_index(field, value))
            if listed != expected:
                raise Crash(f"the index {name}.{field} lists {listed}, the rows are {expected}")
    changed = _fold(storage, name, position)
    if changed != found:
        raise Crash(f"the rows of {name!r} are {sorted(found)}, and its feed gives {sorted(changed)}, or other values")
    return found


def _fold(storage: Storage, name: str, until: FeedPosition) -> dict[int, dict[str, Value]]:
    """Return what the changes of a table make of no rows; each must change what is there."""
    rows: dict[int, dict[str, Value]] = {}
    with storage.changes(name).read(until=until) as changes:
        for change in changes:
            key, row = _key(change.row), _present(change.row)
            if change.kind in (RowKind.UPDATE_BEFORE, RowKind.DELETE):
                before = rows.pop(key, None)
                if before != row:
                    raise Crash(f"version {change.version} of {name!r} changes {row}, which was {before}")
            elif key in rows:
                raise Crash(f"version {change.version} of {name!r} adds the row {key}, which is there")
            else:
                rows[key] = row
    return rows


def _present(row: Mapping[str, Value]) -> dict[str, Value]:
    return {field: value for field, value in row.items() if value is not None}


def _key(row: Mapping[str, Value]) -> int:
    key = row["k"]
    assert isinstance(key, int)
    return key


def _differences(found: State, expected: State) -> str:
    differing = {
        name: [key for key in {*found[name], *rows} if found[name].get(key) != rows.get(key)]
        for name, rows in expected.items()
    }
    return f"the rows of these keys differ: {differing}"


def writer(path: Path) -> Callable[[int], None]:
    """Return a function that appends the number of a step to a file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def acknowledge(number: int) -> None:
        os.write(descriptor, b"%d\n" % number)

    return acknowledge
