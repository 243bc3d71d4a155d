"""Batches of streams: their records, the whole life of their staging tables, and commits whose answer was lost."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from structable.spi import (
    Field,
    StagedWrite,
    Storage,
    StorageUnavailableError,
    TableNotFoundError,
    TableSpecification,
    TransactionClosedError,
    TransactionConflictError,
    WriteJob,
    connect,
)
from structable.spi.arrow import rows_to_batches

from .support.binaries import find_binaries
from .support.fixtures import StartServer
from .support.proxy import Cut, Proxy, statement
from .support.server import Server
from .support.shared import Schema

ITEMS = TableSpecification("items", [Field.long("id"), Field.long("n")], ["id"])
LOG = TableSpecification("items", ITEMS.fields, [], options={"write-mode": "append-only"})
WEEK = 7 * 24 * 3600


@pytest.fixture
def storage(postgresql_url: str) -> Iterator[Storage]:
    with connect(postgresql_url, ddl_timeout=5.0) as storage:
        storage.admin.create(ITEMS)
        yield storage


def begin(storage: Storage, batch: int, mode: str = "upsert", stream: str = "s") -> WriteJob:
    return storage.begin_write("items", mode=mode, stream=stream, batch=batch)


def stage(storage: Storage, job: WriteJob, *ids: int) -> StagedWrite:
    rows = [{"id": key, "n": job.batch} for key in ids]
    return storage.stage(job, 0, 0, rows_to_batches(ITEMS, rows, ["id", "n"]))


def fetch(schema: Schema, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(schema.conninfo) as connection:
        connection.execute(f"set search_path = {schema.name}".encode())
        return connection.execute(query.encode()).fetchall()


def records(schema: Schema) -> list[tuple[str, int]]:
    return fetch(schema, "select stream, batch from _structable_streams order by 1, 2")


def staging(schema: Schema) -> list[str]:
    query = "select relname from pg_class where relnamespace = '{}'::regnamespace and relname ~ '^_stage' order by 1"
    return [name for (name,) in fetch(schema, query.format(schema.name))]


def test_batches_leave_one_row_of_their_stream(storage: Storage, postgresql_schema: Schema) -> None:
    """However many batches there were, a stream is one row, and no job is recorded; an abort leaves no staged row."""
    for number in range(20):
        job = begin(storage, number, stream="s" if number % 2 else "'\"")
        storage.commit_write(job, [stage(storage, job, number)])
        storage.abort_write(begin(storage, number + 1, stream="never"))
    assert records(postgresql_schema) == [("'\"", 18), ("never", -1), ("s", 19)]
    assert fetch(postgresql_schema, "select count(*) from _structable_jobs") == [(0,)]
    assert staging(postgresql_schema) == []
    storage.admin.drop("items")
    assert records(postgresql_schema) == []


def test_aborted_batches_are_forgotten(storage: Storage, postgresql_schema: Schema) -> None:
    """A stream's row has each aborted batch once, until it begins again or a higher one is committed."""
    aborted = "select aborted from _structable_streams"
    for number in (1, 2, 4, 2, 1, 5):
        storage.abort_write(begin(storage, number))
    assert fetch(postgresql_schema, aborted) == [([4, 2, 1, 5],)]
    begin(storage, 1)
    job = begin(storage, 3)
    assert fetch(postgresql_schema, aborted) == [([4, 2, 5],)]
    storage.abort_write(job)
    storage.commit_write(begin(storage, 3), [])
    assert fetch(postgresql_schema, aborted) == [([4, 5],)]
    storage.abort_write(job)
    assert fetch(postgresql_schema, aborted) == [([4, 5],)]
    storage.admin.drop("items")
    storage.abort_write(job)


def test_records_of_before_the_first_release(storage: Storage, postgresql_schema: Schema) -> None:
    """Records without the aborted batches get them with the next batch."""
    storage.commit_write(begin(storage, 1), [])
    with psycopg.connect(postgresql_schema.conninfo) as connection:
        connection.execute(f"alter table {postgresql_schema.name}._structable_streams drop column aborted".encode())
    assert begin(storage, 1).committed
    job = begin(storage, 2)
    storage.abort_write(job)
    with pytest.raises(TransactionClosedError, match="aborted"):
        storage.commit_write(job, [])
    assert storage.commit_write(begin(storage, 2), [])


@pytest.mark.parametrize("number", [0, 5], ids=["first batch", "later batch"])
@pytest.mark.parametrize("spec", [ITEMS, LOG], ids=["key", "no key"])
def test_abort_waits_for_a_commit(
    storage: Storage, postgresql_schema: Schema, number: int, spec: TableSpecification
) -> None:
    """Once an abort has returned, no commit that began before makes the rows visible."""
    storage.admin.drop("items")
    storage.admin.create(spec)
    if number:
        storage.commit_write(begin(storage, number - 1, "insert"), [])
    job = begin(storage, number, "insert")
    staged = stage(storage, job, 1)
    with psycopg.connect(postgresql_schema.conninfo) as blocking, ThreadPoolExecutor(2) as pool:
        blocking.execute(f"set search_path = {postgresql_schema.name}".encode())
        blocking.execute(b"lock table items in share row exclusive mode")
        waiting = (
            "select from pg_stat_activity where wait_event_type = 'Lock' and cardinality(pg_blocking_pids(pid)) > 0"
        )
        commit = pool.submit(storage.commit_write, job, [staged])
        while not fetch(postgresql_schema, waiting):
            assert not commit.done()
        abort = pool.submit(storage.abort_write, job)
        while len(fetch(postgresql_schema, waiting)) < 2:
            assert not abort.done()
        blocking.rollback()
        assert commit.result()
        abort.result()
    assert begin(storage, number, "insert").committed
    assert storage.table("items").count() == 1


def test_names_of_staging_tables(storage: Storage, postgresql_schema: Schema) -> None:
    """The longest name fits, and batches whose numbers begin alike have nothing to do with each other."""
    jobs = {number: begin(storage, number) for number in (1, 16, 0x1F, (1 << 63) - 1)}
    for job in jobs.values():
        stage(storage, job, 1)
    names = staging(postgresql_schema)
    assert len(names) == 4
    assert all(len(name.encode()) <= 63 for name in names)
    storage.abort_write(jobs[1])
    assert len(staging(postgresql_schema)) == 3
    storage.abort_write(jobs[16])
    assert len(staging(postgresql_schema)) == 2


def test_sweeps_leave_living_batches(storage: Storage, postgresql_schema: Schema) -> None:
    """What a batch staged is kept for a week, or until it is committed; the number of a stream for good."""
    first = begin(storage, 1)
    storage.commit_write(first, [stage(storage, first, 1)])
    living = begin(storage, 2)
    kept = stage(storage, living, 2)
    now = int(time.time())
    (name,) = staging(postgresql_schema)
    prefix, *_, end = name.removeprefix("_stage_").split("_")
    names = {
        "young and committed": f"_stage_{prefix}_1_{now:08x}_{end}",
        "old and committed": f"_stage_{prefix}_1_{now - 3_600:08x}_{end}",
        "old and living": f"_stage_{prefix}_2_{now - WEEK + 3_600:08x}_{end}",
        "forgotten": f"_stage_{prefix}_2_{now - WEEK - 3_600:08x}_{end}",
        "old, of a stream without a batch": f"_stage_s{'0' * 16}_0_{now - WEEK + 3_600:08x}_{end}",
        "forgotten, of a stream without a batch": f"_stage_s{'0' * 16}_0_{now - WEEK - 3_600:08x}_{end}",
    }
    with psycopg.connect(postgresql_schema.conninfo) as connection:
        connection.execute(f"set search_path = {postgresql_schema.name}".encode())
        for one in names.values():
            connection.execute(f"create table {one} (i int)".encode())
        connection.execute("update _structable_streams set changed = now() - interval '1 year'")
    with connect(postgresql_schema.url) as sweeping:
        sweeping.begin_write("items", mode="upsert", job_id="another")
    left = {what for what, one in names.items() if one in staging(postgresql_schema)}
    assert left == {"young and committed", "old and living", "old, of a stream without a batch"}
    assert begin(storage, 1).committed
    assert storage.commit_write(living, [kept])
    assert [row["id"] for row in storage.table("items").scan()] == [1, 2]


@pytest.mark.parametrize("spec", [ITEMS, LOG], ids=["key", "no key"])
@pytest.mark.parametrize("number", [0, 5], ids=["first batch", "later batch"])
@pytest.mark.parametrize("cut", list(Cut))
def test_commit_whose_answer_was_lost(
    postgresql_schema: Schema, cut: Cut, number: int, spec: TableSpecification
) -> None:
    """The outcome is found by the stream's record, whether or not it had one before."""
    with Proxy(postgresql_schema.conninfo) as proxy, connect(proxy.url(postgresql_schema.url)) as storage:
        storage.admin.create(spec)
        if number:
            storage.commit_write(begin(storage, number - 1, "insert"), [])
        job = begin(storage, number, "insert")
        staged = stage(storage, job, 1)
        trap = proxy.trap(statement(r"^\s*commit\b"), cut)
        if cut is Cut.BEFORE:
            with pytest.raises(StorageUnavailableError):
                storage.commit_write(job, [staged])
            assert storage.table("items").count() == 0
            assert not begin(storage, number, "insert").committed
        else:
            assert storage.commit_write(job, [staged])
        trap.wait()
        assert storage.commit_write(job, [staged]).applied is (cut is Cut.BEFORE)
        assert begin(storage, number, "insert").committed
        assert storage.table("items").count() == 1


def test_ended_backend(storage: Storage, postgresql_schema: Schema) -> None:
    """A driver whose server process is ended in the commit has written nothing, and may commit again."""
    job = begin(storage, 1)
    staged = stage(storage, job, 1)
    with psycopg.connect(postgresql_schema.conninfo) as blocking, ThreadPoolExecutor(1) as pool:
        blocking.execute(f"set search_path = {postgresql_schema.name}".encode())
        blocking.execute("insert into items (id) values (1)")
        commit = pool.submit(storage.commit_write, job, [staged])
        waiting = f"{blocking.info.backend_pid} = any(pg_blocking_pids(pid))"
        end = f"select pg_terminate_backend(pid) from pg_stat_activity where {waiting}"
        while not fetch(postgresql_schema, end):
            assert not commit.done()
        with pytest.raises(StorageUnavailableError):
            commit.result()
        blocking.rollback()
    assert not begin(storage, 1).committed
    assert storage.commit_write(job, [staged])
    assert [row["n"] for row in storage.table("items").scan()] == [1]


def test_lost_commit_of_which_another_driver_did_the_work(postgresql_schema: Schema) -> None:
    """A driver loses its answer, and another commits the batch: the first gets the result that it wrote nothing."""
    with Proxy(postgresql_schema.conninfo) as proxy, connect(proxy.url(postgresql_schema.url)) as lost:
        lost.admin.create(ITEMS)
        job = begin(lost, 1)
        staged = stage(lost, job, 1)
        proxy.trap(statement(r"^\s*commit\b"), Cut.BEFORE)
        with pytest.raises(StorageUnavailableError):
            lost.commit_write(job, [staged])
        with connect(postgresql_schema.url) as other:
            again = begin(other, 1)
            assert other.commit_write(again, [stage(other, again, 2)])
        assert not lost.commit_write(job, [staged])
        assert [row["id"] for row in lost.table("items").scan()] == [2]


@pytest.mark.parametrize("number", [0, 5], ids=["first batch", "later batch"])
@pytest.mark.parametrize(("outcome", "applied"), [("rollback", True), ("commit", False)])
def test_commit_waits_for_one_that_hangs(
    storage: Storage, postgresql_schema: Schema, number: int, outcome: str, applied: bool
) -> None:
    """A batch that another driver is committing is decided by what becomes of that, with a record or without."""
    if number:
        storage.commit_write(begin(storage, number - 1), [])
    job = begin(storage, number)
    staged = stage(storage, job, 1)
    with psycopg.connect(postgresql_schema.conninfo) as hanging, ThreadPoolExecutor(1) as pool:
        hanging.execute(f"set search_path = {postgresql_schema.name}".encode())
        hanging.execute(
            f"insert into _structable_streams select id, 's', {number} from _structable_tables "
            "on conflict (table_id, stream) do update set batch = excluded.batch".encode()
        )
        commit = pool.submit(storage.commit_write, job, [staged])
        waiting = f"select from pg_stat_activity where {hanging.info.backend_pid} = any(pg_blocking_pids(pid))"
        while not fetch(postgresql_schema, waiting):
            assert not commit.done()
        hanging.execute(outcome.encode())
        assert commit.result().applied is applied
    assert storage.table("items").count() == applied


@pytest.mark.parametrize("spec", [ITEMS, LOG], ids=["key", "no key"])
def test_drivers_of_several_processes_at_once(postgresql_url: str, spec: TableSpecification) -> None:
    """Each batch is in the table once, whichever driver of whichever storage committed it."""
    with connect(postgresql_url) as first, connect(postgresql_url) as second, ThreadPoolExecutor(4) as pool:
        first.admin.create(spec)

        def drive(place: int) -> int:
            storage, applied = (first, second)[place % 2], 0
            for number in range(25):
                while not (job := begin(storage, number, "insert")).committed:
                    try:
                        done = storage.commit_write(job, [stage(storage, job, 10 * number + place)])
                    except (TransactionConflictError, TransactionClosedError):
                        continue  # another driver's commit dropped what this one had staged
                    applied += done.applied
            return applied

        assert sum(pool.map(drive, range(4))) == 25
        assert sorted(int(str(row["id"])) // 10 for row in first.table("items").scan()) == list(range(25))


def test_streams_begun_by_several_processes_at_once(postgresql_url: str) -> None:
    """The table of the records is made once."""
    with connect(postgresql_url) as storage:
        storage.admin.create(ITEMS)

    def write(number: int) -> bool:
        with connect(postgresql_url) as storage:
            job = begin(storage, 0, stream=f"s{number}")
            return storage.commit_write(job, [stage(storage, job, number)]).applied

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(write, range(8)))
    with connect(postgresql_url) as storage:
        assert storage.table("items").count() == 8


def test_tables_dropped_under_a_stream(postgresql_url: str, postgresql_schema: Schema) -> None:
    """A table that comes and goes leaves no record, and a batch is written whole or refused."""
    with connect(postgresql_url) as storage, connect(postgresql_url) as admin, ThreadPoolExecutor(1) as pool:
        admin.admin.create(ITEMS)

        def write() -> set[str]:
            seen = set()
            for number in range(40):
                try:
                    job = begin(storage, number)
                    seen.add("committed" if storage.commit_write(job, [stage(storage, job, number)]) else "known")
                except (TableNotFoundError, TransactionConflictError) as error:
                    seen.add(type(error).__name__)
            return seen

        writing = pool.submit(write)
        while not writing.done():
            admin.admin.drop("items")
            admin.admin.create(ITEMS)
        assert writing.result() <= {"committed", "TableNotFoundError", "TransactionConflictError"}
        admin.admin.drop("items")
    assert records(postgresql_schema) == []


def test_crash_of_the_server(postgresql_server: Server) -> None:
    """A crash leaves the numbers; what was staged is gone, so that the batch is refused until it is staged again."""
    with connect(postgresql_server.url("s")) as storage:
        storage.admin.create(ITEMS)
        first = begin(storage, 1)
        storage.commit_write(first, [stage(storage, first, 1)])
        job = begin(storage, 2)
        staged = stage(storage, job, 2)
        postgresql_server.kill()
        postgresql_server.start()
        assert begin(storage, 1).committed
        with pytest.raises(TransactionClosedError, match="gone"):
            storage.commit_write(job, [staged])
        again = begin(storage, 2)
        assert not again.committed
        assert storage.commit_write(again, [stage(storage, again, 2)])
        assert storage.table("items").count() == 2


def test_dump_and_restore(start_postgresql: StartServer) -> None:
    """A schema that was dumped and restored knows its streams, and drops them with their tables."""
    old, new = start_postgresql(fsync=False), start_postgresql(fsync=False)
    with connect(old.url("app_store")) as storage:
        storage.admin.create(ITEMS)
        job = begin(storage, 7)
        storage.commit_write(job, [stage(storage, job, 7)])
        stage(storage, begin(storage, 8), 8)
    binaries = find_binaries()
    assert binaries is not None
    dump = [str(binaries / "pg_dump"), "--schema=app_store", "--exclude-table=app_store._stage_*", old.conninfo]
    text = subprocess.run(dump, capture_output=True, check=True).stdout
    load = [str(binaries / "psql"), "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--quiet", new.conninfo]
    subprocess.run(load, input=text, capture_output=True, check=True)
    with connect(new.url("app_store")) as storage:
        assert begin(storage, 7).committed
        job = begin(storage, 8)
        assert storage.commit_write(job, [stage(storage, job, 8)])
        assert [row["id"] for row in storage.table("items").scan()] == [7, 8]
        storage.admin.drop("items")
        storage.admin.create(ITEMS)
        assert not begin(storage, 0).committed


def test_roles_with_few_rights(start_postgresql: StartServer) -> None:
    """A role that may not create the table of streams gets an error with the grant; with it, the role writes."""
    server = start_postgresql(fsync=False)
    with connect(server.url("s")) as storage:
        storage.admin.create(ITEMS)
    with psycopg.connect(server.superuser_conninfo, autocommit=True) as superuser:
        superuser.execute("create role writer login password 'w'")
    parts = urlsplit(server.url("s"))
    url = urlunsplit(parts._replace(netloc=f"writer:w@{parts.netloc.rpartition('@')[2]}"))
    with psycopg.connect(server.conninfo, autocommit=True) as owner:
        owner.execute("grant usage, create on schema s to writer")
        owner.execute("grant select, insert, update, delete on all tables in schema s to writer")
    with connect(url) as storage:
        with pytest.raises(StorageUnavailableError, match=r"owner of _structable_tables") as caught:
            begin(storage, 1)
        assert caught.value.lasting
        with connect(server.url("s")) as owning:
            owning.abort_write(begin(owning, 0))
        with pytest.raises(StorageUnavailableError, match="lacks a privilege"):
            begin(storage, 1)
        with psycopg.connect(server.conninfo, autocommit=True) as owner:
            owner.execute("grant select, insert, update on s._structable_streams to writer")
        job = begin(storage, 1)
        assert storage.commit_write(job, [stage(storage, job, 1)])
        assert begin(storage, 1).committed
