"""Behind PgBouncer: a pooler of transactions or statements is refused before it does harm; one of sessions serves."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import psycopg
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from structable.backends.postgresql.driver.statement import BEGIN, COMMIT, command
from structable.backends.postgresql.storage import PostgreSQLStorage
from structable.backends.postgresql.txn.receipts import Receipts
from structable.cli.app import app
from structable.spi import (
    Field,
    Isolation,
    Range,
    RowKind,
    Storage,
    StorageUnavailableError,
    TableSpecification,
    Transaction,
    Value,
    connect,
    read_split,
)
from tests.waiting import until

from .support import pgbouncer
from .support.fixtures import StartPgBouncer
from .support.shared import Schema
from .support.waiting_commits import process_that_waits

FIELDS = [Field.int("k"), Field.long("n"), Field.string("s")]
TABLE = TableSpecification("t", FIELDS, ["k"], ["s"])
FED = TableSpecification("f", FIELDS, ["k"], options={"changelog-producer": "lookup"})
WIDER = TableSpecification("t", [*FIELDS, Field.int("more")], ["k"], ["s", "n"])
ROWS: list[dict[str, Value]] = [{"k": key, "n": 0, "s": "a"} for key in range(300)]
REFUSAL = "the pooler does not pool sessions .* set pool_mode = session"


@pytest.fixture
def direct(postgresql_url: str) -> Iterator[Storage]:
    """Connect past the pooler."""
    with connect(postgresql_url) as storage:
        for spec in (TABLE, FED):
            storage.admin.create(spec)
            storage.table(spec.name).upsert_many(ROWS)
        yield storage


@pytest.fixture
def pooler(start_pgbouncer: StartPgBouncer) -> pgbouncer.Server:
    settings = {"max_prepared_statements": "0"} if pgbouncer.renames_statements() else {}
    return start_pgbouncer("transaction", **settings)


@pytest.fixture
def storage(pooler: pgbouncer.Server, postgresql_url: str, direct: Storage) -> Iterator[Storage]:
    """Connect through the pooler; what its operations send is prepared, in the pooler's only session so far."""
    with connect(pooler.url(postgresql_url)) as storage:
        for table in (storage.table("t"), storage.table("f")):
            for key in range(3):
                table.upsert({"k": key, "n": 0})
                table.increment((key,), "n", 0)
                assert table.read((key,)) is not None
            assert len(list(table.scan(limit=5))) == 5
            assert len(list(table.scan())) == len(ROWS)
            storage.run(rewrite)
        yield storage


def rewrite(tx: Transaction) -> None:
    """Read a row and write it."""
    table = tx.table("t")
    row = table.read((1,))
    assert row is not None
    table.upsert({**row, "n": row.n})


@pytest.fixture
def foreign(pooler: pgbouncer.Server, postgresql_schema: Schema, storage: Storage) -> Iterator[psycopg.Connection]:
    """Return the connection of another program, which the pooler gives the session of `storage`."""
    with psycopg.connect(pooler.url(postgresql_schema.conninfo), autocommit=True) as connection:
        yield connection


def refused(use: Callable[[], object]) -> None:
    with pytest.raises(StorageUnavailableError, match=REFUSAL) as refusal:
        use()
    assert refusal.value.lasting


def batch(*rows: dict[str, object]) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pylist(list(rows), pa.schema([("k", pa.int32()), ("n", pa.int64())]))]


def job_of(step: str, storage: Storage, direct: Storage) -> object:
    """Take one step of a write job, of which the steps before were taken past the pooler."""
    if step == "begin":
        return storage.begin_write("t", mode="upsert", job_id="j")
    job = direct.begin_write("t", mode="upsert", job_id="j")
    if step == "stage":
        return storage.stage(job, 0, 0, batch({"k": 1, "n": 5}))
    if step == "abort":
        return storage.abort_write(job)
    return storage.commit_write(job, [direct.stage(job, 0, 0, batch({"k": 1, "n": 5}))])


def serializable(storage: Storage) -> None:
    with storage.transaction(Isolation.SERIALIZABLE) as tx:
        tx.table("t").upsert({"k": 1, "n": 5})


Use = Callable[[Storage, Storage], object]
READS: dict[str, Use] = {
    "read": lambda storage, _: storage.table("t").read((1,)),
    "multi_read": lambda storage, _: storage.table("t").multi_read([(1,), (2,)]),
    "few rows": lambda storage, _: list(storage.table("t").scan(limit=5)),
    "all rows": lambda storage, _: list(storage.table("t").scan()),
    "count": lambda storage, _: storage.table("t").count(),
    "explain": lambda storage, _: storage.table("t").explain(),
    "statistics": lambda storage, _: storage.statistics("t"),
    "list": lambda storage, _: storage.admin.list(),
    "plan_scan": lambda storage, _: storage.plan_scan("t", splits=2),
    "plan_scan with a feed": lambda storage, _: storage.plan_scan("f"),
    "share_snapshot": lambda storage, _: storage.share_snapshot().plan_scan("t"),
    "latest": lambda storage, _: storage.changes("f").latest(),
    "changes": lambda storage, _: list(storage.changes("f").read()),
}
WRITES: dict[str, Use] = {
    "upsert": lambda storage, _: storage.table("t").upsert({"k": 1, "n": 5}),
    "upsert with a feed": lambda storage, _: storage.table("f").upsert({"k": 1, "n": 5}),
    "insert": lambda storage, _: storage.table("t").insert({"k": 1_000, "n": 5}),
    "increment": lambda storage, _: storage.table("t").increment((1,), "n", 5),
    "delete": lambda storage, _: storage.table("t").delete((1,)),
    "upsert_many": lambda storage, _: storage.table("t").upsert_many([{"k": key, "n": 5} for key in range(200)]),
    "delete_many": lambda storage, _: storage.table("t").delete_many([(1,), (2,)]),
    "apply_changes": lambda storage, _: storage.table("t").apply_changes([(RowKind.DELETE, {"k": 1})]),
    "update_all": lambda storage, _: storage.table("t").update_all(Range.all(), {"n": 5}),
    "delete_all": lambda storage, _: storage.table("t").delete_all(Range.all()),
    "transaction": lambda storage, _: storage.run(rewrite),
    "serializable": lambda storage, _: serializable(storage),
    "create": lambda storage, _: storage.admin.create(TableSpecification("u", FIELDS, ["k"])),
    "create_or_update": lambda storage, _: storage.admin.create_or_update(WIDER),
    "drop": lambda storage, _: storage.admin.drop("t"),
    "drop_index": lambda storage, _: storage.admin.drop_index("t", "s"),
    "expire": lambda storage, _: storage.changes("f").expire(),
    **{f"{step} a job": partial(job_of, step) for step in ("begin", "stage", "commit", "abort")},
    "stream": lambda storage, _: storage.begin_write("t", mode="upsert", stream="s", batch=1),
}


def contents(direct: Storage) -> object:
    return [
        (name, direct.admin.get_specification(name), list(direct.table(name).scan())) for name in direct.admin.list()
    ]


@pytest.mark.parametrize("name", [*READS, *WRITES])
def test_session_of_the_server_is_another(
    storage: Storage, direct: Storage, foreign: psycopg.Connection, name: str
) -> None:
    """An operation that reaches another session of the server than the one before is refused, and does nothing."""
    before = contents(direct)
    with foreign.transaction():  # has the session that the storage used
        refused(lambda: {**READS, **WRITES}[name](storage, direct))
    assert contents(direct) == before


@pytest.mark.parametrize("name", ["read", "upsert", "transaction"])
@pytest.mark.parametrize(
    "change", ["set search_path = public", "set synchronous_commit = off", "reset all", "deallocate all", "discard all"]
)
def test_session_was_changed_by_another(
    storage: Storage, direct: Storage, foreign: psycopg.Connection, change: str, name: str
) -> None:
    """An operation in a session that another client has changed is refused, and does nothing."""
    before = contents(direct)
    foreign.execute(change.encode())
    refused(lambda: {**READS, **WRITES}[name](storage, direct))
    assert contents(direct) == before


def test_second_connection(
    storage: Storage, direct: Storage, pooler: pgbouncer.Server, postgresql_url: str, foreign: psycopg.Connection
) -> None:
    """A connection that gets a session which another one has used is refused, and leaves that as it is."""
    url = pooler.url(postgresql_url)
    refused(lambda: connect(url, durability="process", read_only=True))
    with direct.plan_scan("t") as plan:
        (split,) = [pickle.loads(pickle.dumps(split)) for split in plan.splits]
        refused(lambda: list(storage.read_split(split)))
        refused(lambda: list(read_split(url, split)))
    shown = [foreign.execute(f"show {name}".encode()).fetchone() for name in ("synchronous_commit", "search_path")]
    assert shown == [("on",), ("pg_catalog",)]
    storage.table("t").upsert({"k": 1, "n": 5})
    assert direct.table("t").read((1,), ["n"]) == {"k": 1, "n": 5}
    result = CliRunner().invoke(app, ["doctor", url])
    assert result.exit_code == 1
    assert "set pool_mode = session" in result.stdout


def test_names_of_statements(direct: Storage) -> None:
    """No two connections prepare a statement under one name: none can run another's, wherever a pooler sends it."""
    assert isinstance(direct, PostgreSQLStorage)
    found = Counter[str]()
    with direct.pool.connection() as one, direct.pool.connection() as another:
        for connection in (one, another):
            for call in BEGIN.values():
                connection.pipeline((call, COMMIT))
            names = connection.ask(command("select name from pg_prepared_statements where not from_sql"))
            assert len(names) > len(BEGIN)
            found.update(str(name) for (name,) in names)
    assert set(found.values()) == {1}


@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_renamed_statements(start_pgbouncer: StartPgBouncer, postgresql_url: str, direct: Storage, mode: str) -> None:
    """A pooler that finds prepared statements in every session is refused when the first connection is made."""
    if not pgbouncer.renames_statements():
        pytest.skip("this PgBouncer is older than 1.21")
    refused(lambda: connect(start_pgbouncer(mode, max_prepared_statements="200").url(postgresql_url)))


PROGRAM = """
import json, sys
from structable.spi import Field, StructableError, TableSpecification, connect

url, name = sys.argv[1:]
spec = TableSpecification(name, [Field.int("k"), Field.string("s")], ["k"])
storage, written, refusals = None, [], []
for key in range(300):
    try:
        if storage is None:
            storage = connect(url)
            storage.admin.create_or_update(spec)
        storage.table(name).upsert({"k": key, "s": name})
        written.append(key)
        found = storage.table(name).read((key,))
        assert found == {"k": key, "s": name}, found
    except StructableError as error:
        refusals.append([type(error).__name__, str(error)])
        if len(refusals) == 30:
            break
        if storage is not None:
            storage.close()
        storage = None
print(json.dumps([written, refusals]))
"""


@pytest.mark.parametrize(
    ("mode", "size"), [("transaction", 1), ("transaction", 2), ("transaction", 3), ("statement", 2), ("session", 2)]
)
def test_two_programs(
    start_pgbouncer: StartPgBouncer, postgresql_url: str, direct: Storage, mode: str, size: int
) -> None:
    """Two programs that share a few sessions write each into its own table what they were told, and no more."""
    url = start_pgbouncer(mode, default_pool_size=str(size)).url(postgresql_url)
    names = ["a", "b"]
    programs = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, url, name], stdout=subprocess.PIPE, text=True)
        for name in names
    ]
    for name, printed in zip(names, [program.communicate()[0] for program in programs], strict=True):
        written, refusals = json.loads(printed)
        assert {kind for kind, _ in refusals} <= {"StorageUnavailableError"}
        unexplained = [message for _, message in refusals if "pool_mode = session" not in message]
        if mode == "statement":  # where the pooler's end of the connection may overtake its reason
            assert len(unexplained) < len(refusals)
            unexplained = [message for message in unexplained if "connection to PostgreSQL was lost" not in message]
        assert unexplained == []
        assert mode != "session" or not refusals
        found = list(direct.table(name).scan()) if direct.admin.exists(name) else []
        assert found == [{"k": key, "s": name} for key in written]


def lock_row(holder: psycopg.Connection, schema: Schema) -> None:
    holder.execute(f'update "{schema.name}".t set n = 100 where k = 1'.encode())


def test_pooler_ends_a_commit(
    start_pgbouncer: StartPgBouncer, postgresql_url: str, postgresql_schema: Schema, direct: Storage
) -> None:
    """A commit whose connection the pooler has ended is looked up: it happens once."""
    url = start_pgbouncer("session", query_timeout="1").url(postgresql_url)
    with (
        connect(f"{url}&application_name=waiting") as storage,
        psycopg.connect(postgresql_schema.conninfo) as holder,
        psycopg.connect(postgresql_schema.conninfo, autocommit=True) as watch,
        ThreadPoolExecutor(1) as threads,
    ):
        for _ in range(3):
            storage.table("t").increment((1,), "n", 0)
        lock_row(holder, postgresql_schema)
        adding = threads.submit(storage.table("t").increment, (1,), "n", 5)
        until(lambda: process_that_waits(watch))
        first = process_that_waits(watch)
        until(lambda: process_that_waits(watch) not in (0, first) or adding.done())
        holder.commit()
        adding.result()
    assert direct.table("t").read((1,), ["n"]) == {"k": 1, "n": 105}


def test_session_of_the_next_client(
    start_pgbouncer: StartPgBouncer, postgresql_url: str, postgresql_schema: Schema, direct: Storage
) -> None:
    """A look-up of a lost commit does not end the session that the pooler has given to the next client meanwhile."""
    pooler = start_pgbouncer("session", default_pool_size="1")
    with (
        connect(pooler.url(postgresql_url)) as storage,
        psycopg.connect(pooler.url(postgresql_schema.conninfo), autocommit=True) as other,
    ):
        assert isinstance(storage, PostgreSQLStorage)
        assert isinstance(direct, PostgreSQLStorage)
        receipts = Receipts(postgresql_schema.name)
        with storage.pool.connection() as lost:
            receipts.next(lost)
            receipt = receipts.next(lost)
            assert receipt is not None
            lost.close()
        ours = other.execute("select pg_backend_pid()").fetchone()
        assert ours == (lost.process,)
        assert receipt.is_there(direct.pool) is False
        assert other.execute("select pg_backend_pid()").fetchone() == ours
