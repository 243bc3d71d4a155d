"""Jobs on PostgreSQL by four worker processes, compared with a hand-made table that is read with SKIP LOCKED."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from time import perf_counter

import psycopg

from benchmarks.measuring import Contender, Measurement, Scale, compare
from benchmarks.postgresql.database import Database
from structable.datasets import SystemData

_WORKERS = 4
_CLAIMED = 10
_ARGS = {"order": 1, "to": "ada@example.org"}

_TABLE = """
CREATE TABLE jobs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, queue text COLLATE "C" NOT NULL, state integer NOT NULL,
    priority integer NOT NULL, due timestamptz NOT NULL, kind text NOT NULL, args text, attempt integer NOT NULL,
    max_attempts integer NOT NULL, worker text, until timestamptz, error text, result text,
    created timestamptz NOT NULL, finished timestamptz
)
"""
_INDEXES = (
    "CREATE INDEX ON jobs (queue, priority, due, id) WHERE state = 0",
    "CREATE INDEX ON jobs (finished) WHERE finished IS NOT NULL",
)
_ENQUEUE = b"""
INSERT INTO jobs (queue, state, priority, due, kind, args, attempt, max_attempts, created)
VALUES (%s, 0, 2, now(), '', %s, 0, 20, now())
"""
_CLAIM = b"""
UPDATE jobs SET state = 1, attempt = attempt + 1, worker = %s, until = now() + interval '300 s' WHERE id IN (
    SELECT id FROM jobs WHERE queue = %s AND state = 0 AND due <= now() ORDER BY priority, due, id
    LIMIT %s FOR UPDATE SKIP LOCKED
) RETURNING id, attempt, args
"""
_COMPLETE = b"UPDATE jobs SET state = 2, finished = now(), result = %s WHERE id = %s AND state = 1 AND attempt = %s"

_connected: dict[str, Callable[[str, int], int]] = {}
"""The work of each side, in a worker process."""


def measure(database: Database, scale: Scale) -> Iterator[Measurement]:
    """Measure each job's part of the time in which four workers enqueue all, then claim and complete them."""
    with database.connection() as raw, database.storage() as storage:
        raw.execute(_TABLE.encode())
        for index in _INDEXES:
            raw.execute(index.encode())
        SystemData.create(storage)
    options = f"-c search_path={database.raw.name}"
    numbers = count()
    jobs = max(scale.samples // 10 // _WORKERS, 10)
    with ProcessPoolExecutor(
        _WORKERS,
        multiprocessing.get_context("spawn"),
        initializer=_connect,
        initargs=(database.raw.conninfo, options, database.ours.url),
    ) as pool:

        def once(side: str) -> float:
            queue = f"queue-{next(numbers)}"
            begun = perf_counter()
            done = sum(pool.map(_work, [side] * _WORKERS, [queue] * _WORKERS, [jobs] * _WORKERS))
            spent = perf_counter() - begun
            assert done == _WORKERS * jobs
            return spent / done

        contender = Contender(
            "enqueue, claim 10, complete, each job, 4 workers, PostgreSQL", lambda: once("ours"), 1 / 0.5
        )
        against = "a hand-written SKIP LOCKED job table, prepared"
        yield from compare("messaging", against, lambda: once("floor"), [contender], scale.rounds)


def _connect(conninfo: str, options: str, url: str) -> None:
    execute = psycopg.connect(conninfo, autocommit=True, options=options).execute
    system = SystemData.open(url)

    def floor(queue: str, jobs: int) -> int:
        for _ in range(jobs):
            execute(_ENQUEUE, (queue, json.dumps(_ARGS)), prepare=True)
        done = 0
        while claimed := execute(_CLAIM, ("worker", queue, _CLAIMED), prepare=True).fetchall():
            for job, attempt, args in claimed:
                assert json.loads(args) == _ARGS
                done += execute(_COMPLETE, (None, job, attempt), prepare=True).rowcount
        return done

    def ours(name: str, jobs: int) -> int:
        queue = system.queue(name)
        for _ in range(jobs):
            queue.enqueue(_ARGS)
        done = 0
        while claimed := queue.claim("worker", _CLAIMED):
            for job in claimed:
                queue.complete(job)
            done += len(claimed)
        return done

    _connected.update(floor=floor, ours=ours)


def _work(side: str, queue: str, jobs: int) -> int:
    return _connected[side](queue, jobs)
