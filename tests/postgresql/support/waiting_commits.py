"""Commits that wait for the locks of other writers."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import psycopg

from structable.spi import CommitResult, StagedWrite, Storage, WriteJob
from tests.postgresql.support.shared import Schema


def commit_behind(
    schema: Schema, statements: Iterable[str], storage: Storage, job: WriteJob, staged: StagedWrite
) -> CommitResult:
    """Commit a job that meets the rows of a writer, which commits its statements once the job waits for it."""
    with psycopg.connect(schema.conninfo) as writer, ThreadPoolExecutor(1) as pool:
        writer.execute(f"set search_path = {schema.name}".encode())
        for statement in statements:
            writer.execute(statement.encode())
        commit = pool.submit(storage.commit_write, job, [staged])
        waiting = f"select from pg_stat_activity where {writer.info.backend_pid} = any(pg_blocking_pids(pid))"
        with psycopg.connect(schema.conninfo, autocommit=True) as looking:
            while not looking.execute(waiting.encode()).fetchall():
                assert not commit.done()
        writer.commit()
        return commit.result()


def process_that_waits(watch: psycopg.Connection) -> int:
    """Return the server process that waits for a lock of the application `waiting`; 0 if there is none."""
    row = watch.execute(
        "select max(pid) from pg_stat_activity where application_name = 'waiting' and wait_event_type = 'Lock'"
    ).fetchone()
    assert row is not None
    return int(row[0] or 0)
