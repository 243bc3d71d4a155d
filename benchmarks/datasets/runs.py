"""Runs of programs on PostgreSQL, compared with hand-written statements: messages, and a query of a million runs."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import pyarrow as pa

from benchmarks.measuring import Contender, Measurement, Scale, compare, measured
from benchmarks.postgresql.database import Connection, Database
from structable.datasets import Changed, RunRef, SystemData
from structable.datasets.identifiers import run_id_bound
from structable.datasets.tables.runs import RUN_KEY, RUNS, ClusterStatus, RunStatus
from structable.spi import WriteMode
from structable.spi.arrow import arrow_schema

_AREA = "datasets"
_TABLE = RUNS.named("sys_runs").specification
_COLUMNS = _TABLE.field_names
_NAMESPACES = 10
_ENDED = 100  # of so many runs all but one have ended: 1,000 in each namespace are active
_BATCH = 50_000
_FIRST = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_SECOND = dt.timedelta(seconds=1)

_KEY = " AND ".join(f"{name} = %s" for name in RUN_KEY)
_SELECT = f"SELECT status, source FROM runs WHERE {_KEY}".encode()
_UPDATE = f"UPDATE runs SET status = %s, running = %s, source = %s WHERE {_KEY}".encode()
_SELECT_ACTIVE = f"SELECT {', '.join(_COLUMNS)} FROM runs WHERE active AND namespace = %s ORDER BY {', '.join(RUN_KEY)}"


class _Run(NamedTuple):
    """A run as the hand-written program represents it."""

    namespace: str
    application: str
    program_type: str
    program: str
    run: str
    version: str | None
    status: RunStatus
    cluster: ClusterStatus | None
    active: bool | None
    cluster_open: bool | None
    ended_on: dt.date | None
    profile: str | None
    parent_run: str | None
    source: int
    started: dt.datetime | None
    running: dt.datetime | None
    suspended: dt.datetime | None
    resumed: dt.datetime | None
    stopping: dt.datetime | None
    terminate_by: dt.datetime | None
    stopped: dt.datetime | None
    nodes: int | None
    principal: str | None
    peer: str | None
    artifact: object
    arguments: dict[str, object]
    system: dict[str, object]
    failure: object


def measure(database: Database, scale: Scale) -> Iterator[Measurement]:
    """Measure a change of a run in its transaction, and the query of the active runs."""
    with database.storage() as storage:
        SystemData.create(storage)
    starting = max(scale.samples // 40, 20) * (scale.rounds + 1) // _NAMESPACES * _NAMESPACES
    _load(database, starting, 1)
    with _opened(database) as (raw, system):
        yield _changes(raw, system, [_key(number, starting) for number in range(starting)], scale)
    count = scale.many_rows // 2
    _load(database, count, _ENDED)
    with _opened(database) as (raw, system):
        yield from _active(raw, system, count // _NAMESPACES // _ENDED, scale)


@contextmanager
def _opened(database: Database) -> Iterator[tuple[Connection, SystemData]]:
    with database.on_separate_cores(), database.connection() as raw, SystemData.open(database.ours.url) as system:
        yield raw, system


def _key(number: int, count: int) -> RunRef:
    namespace, rest = divmod(number, count // _NAMESPACES)
    application, program = divmod(rest * 20 // (count // _NAMESPACES), 4)
    text = run_id_bound(_FIRST + number * _SECOND)
    run = f"{text[:14]}7{text[15:19]}8{text[20:24]}{number:012x}"
    return RunRef(f"namespace-{namespace}", f"application-{application}", "workflow", f"program-{program}", run)


def _load(database: Database, count: int, every: int) -> None:
    """Fill both tables with the same runs: one in `every` is STARTING, all others are COMPLETED.

    The floor's table has the same indexes, but the index of `active` is partial.
    """
    with database.connection() as raw, database.storage() as storage:
        job = storage.begin_write(_TABLE.name, mode=WriteMode.OVERWRITE, job_id=f"load-{random.getrandbits(64)}")
        storage.commit_write(job, [storage.stage(job, 0, 0, _batches(count, every))])
        key = ", ".join(RUN_KEY)
        raw.execute("DROP TABLE IF EXISTS runs")
        raw.execute(f'CREATE TABLE runs AS TABLE "{database.ours.name}"."{_TABLE.name}"'.encode())
        raw.execute(f"ALTER TABLE runs ADD PRIMARY KEY ({key})".encode())
        raw.execute(f"CREATE INDEX ON runs ({key}) WHERE active".encode())
        for name in _TABLE.indexes:
            if name != "active":
                raw.execute(f"CREATE INDEX ON runs ({name}, {key})".encode())
        for schema in (database.raw, database.ours):
            database.vacuum(raw, schema)


def _batches(count: int, every: int) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(_TABLE)
    for first in range(0, count, _BATCH):
        numbers = range(first, min(first + _BATCH, count))
        active = [number % every == 0 for number in numbers]
        times = [_FIRST + number * _SECOND for number in numbers]
        keys = zip(*[_key(number, count) for number in numbers], strict=True)
        known: dict[str, Sequence[object]] = {
            **dict(zip(RUN_KEY, keys, strict=True)),
            "version": ["1.0.0"] * len(numbers),
            "status": ["STARTING" if one else "COMPLETED" for one in active],
            "cluster": ["PROVISIONED" if one else "DEPROVISIONED" for one in active],
            "active": [one or None for one in active],
            "cluster_open": [one or None for one in active],
            "ended_on": [None if one else time.date() for one, time in zip(active, times, strict=True)],
            "profile": [f"profile-{number % 5}" for number in numbers],
            "source": numbers,
            "started": times,
            "stopped": [None if one else time + 60 * _SECOND for one, time in zip(active, times, strict=True)],
            "nodes": [3] * len(numbers),
            "principal": ["alice"] * len(numbers),
            "artifact": ['{"name":"pipeline","version":"6.10.0"}'] * len(numbers),
            "arguments": [f'{{"input":"/in/{number}","output":"/out/{number}"}}' for number in numbers],
            "system": ['{"queue":"default"}'] * len(numbers),
        }
        columns = [pa.array(known.get(field.name, [None] * len(numbers)), field.type) for field in schema]
        yield pa.record_batch(columns, schema=schema)


def _changes(raw: Connection, system: SystemData, runs: list[RunRef], scale: Scale) -> Measurement:
    """STARTING to RUNNING, each run once in both tables, alternately: the time of a sync changes within a round."""
    random.Random(7).shuffle(runs)
    source = 1 << 40
    execute = raw.execute

    def by_hand(run: RunRef) -> None:
        execute("BEGIN ISOLATION LEVEL REPEATABLE READ", prepare=True)
        row = execute(_SELECT, run, prepare=True).fetchone()
        if row is None or row[1] > source or row[0] != "STARTING":
            raise AssertionError(f"{run} is {row}")
        now = dt.datetime.now(dt.UTC)
        assert execute(_UPDATE, ("RUNNING", now, source, *run), prepare=True).rowcount == 1
        execute("COMMIT", prepare=True)

    def ours(run: RunRef) -> None:
        with system.transaction() as s:
            changed = s.runs.running(run.ref, run.run, source=source)
        assert isinstance(changed, Changed)

    def timed(work: Callable[[RunRef], None], run: RunRef) -> float:
        begun = perf_counter()
        work(run)
        return (perf_counter() - begun) * 1e6

    times = [(timed(by_hand, run), timed(ours, run)) for run in runs]
    size = len(runs) // (scale.rounds + 1)
    rounds = [zip(*times[first : first + size], strict=True) for first in range(size, len(times) - size + 1, size)]
    floors, found = zip(*[map(median, one) for one in rounds], strict=True)
    name = "runs.running in its transaction, PostgreSQL"
    against = "psycopg, prepared: begin, select, update, commit, a round trip each"
    return measured(_AREA, name, against, list(floors), list(found), 0.9)


def _active(raw: Connection, system: SystemData, expected: int, scale: Scale) -> list[Measurement]:
    def decoded(row: tuple[Any, ...]) -> _Run:
        run = _Run(*row)
        return run._replace(
            status=RunStatus(run.status),
            cluster=None if run.cluster is None else ClusterStatus(run.cluster),
            artifact=None if row[24] is None else json.loads(row[24]),
            arguments=json.loads(row[25]),
            system=json.loads(row[26]),
            failure=None if row[27] is None else json.loads(row[27]),
        )

    def by_hand(binary: bool) -> float:
        cursor = raw.cursor(binary=binary)
        begun = perf_counter()
        found = [decoded(row) for row in cursor.execute(_SELECT_ACTIVE.encode(), ["namespace-0"], prepare=True)]
        spent = perf_counter() - begun
        assert len(found) == expected
        return spent / expected

    def floor() -> float:
        return min(by_hand(binary=False), by_hand(binary=True))

    def ours() -> float:
        begun = perf_counter()
        with system.transaction(read_only=True) as s, s.runs.active("namespace-0") as runs:
            found = list(runs)
        spent = perf_counter() - begun
        assert len(found) == expected
        return spent / expected

    contender = Contender(f"runs.active of a namespace, {expected:,} runs, each", ours, 1.5)
    against = "SQL with a partial index, decoded; text or binary, the faster"
    return compare(_AREA, against, floor, [contender], 4 * scale.rounds)
