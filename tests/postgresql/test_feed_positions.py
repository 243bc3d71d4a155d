"""Positions of PostgreSQL's feeds: stable and exact, while commits are slow, stuck, or lost with their connections."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest
from psycopg import sql

from structable.backends.postgresql.feeds import gate
from structable.spi import (
    Change,
    ChangesLostError,
    FeedPosition,
    Field,
    Isolation,
    Storage,
    StorageUnavailableError,
    TableSpecification,
    UnsupportedOperationError,
    Value,
    connect,
)
from tests.waiting import until

from .support.fixtures import StartServer
from .support.server import Server
from .support.shared import Schema

SPEC = TableSpecification("t", [Field.int("k"), Field.int("v")], ["k"], options={"changelog-producer": "lookup"})
OTHER = SPEC.evolve(name="u")
State = dict[Value, Value]
WRITERS = 8
ROUNDS = 15


@pytest.fixture
def storage(postgresql_url: str) -> Iterator[Storage]:
    with connect(postgresql_url) as storage:
        storage.admin.create(SPEC)
        storage.admin.create(OTHER)
        yield storage


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up a stuck commit soon."""
    monkeypatch.setattr(gate, "_PATIENCE", 0.3)
    monkeypatch.setattr(gate, "_SHORT_PATIENCE", 0.1)


def session(schema: Schema) -> psycopg.Connection:
    """Return a connection of a program that does not know structable."""
    connection = psycopg.connect(schema.conninfo, autocommit=True)
    connection.execute(sql.SQL("set search_path = {}").format(sql.Identifier(schema.name)))
    return connection


def holds_gate(server: psycopg.Connection) -> None:
    """Leave a transaction in the state of a commit that has drawn its version and does not end."""
    server.execute("begin")
    server.execute("insert into t values (-1, 0)")
    server.execute("set constraints all immediate")


def changed(storage: Storage, since: FeedPosition, until_: FeedPosition | None = None) -> list[Change]:
    with storage.changes("t").read(since, until_) as found:
        return list(found)


def applied(state: State, changes: list[Change]) -> State:
    """Return a state after changes; each must begin where the one before it ended."""
    state = dict(state)
    for change in changes:
        key, value = change.row["k"], change.row["v"]
        if change.kind.retracts:
            assert state.pop(key) == value
        else:
            assert key not in state
            state[key] = value
    return state


def test_newest_known_position_serves_while_a_commit_is_stuck(
    storage: Storage, postgresql_schema: Schema, postgresql_url: str, impatient: None
) -> None:
    feed = storage.changes("t")
    storage.table("t").upsert({"k": 1, "v": 1})
    known = feed.latest()
    with session(postgresql_schema) as server, connect(postgresql_url) as other:
        holds_gate(server)
        storage.table("t").upsert({"k": 2, "v": 1})  # commits go on
        assert feed.latest() == known
        assert other.changes("t").latest() == other.changes("t").earliest()
        assert [change.row["k"] for change in feed.read()] == [1]
        with pytest.raises(StorageUnavailableError, match=f"server process {server.info.backend_pid} "):
            storage.plan_scan("t")
        with storage.transaction() as transaction:
            with pytest.raises(StorageUnavailableError, match=f"server process {server.info.backend_pid} "):
                transaction.position("t")
            transaction.rollback()
        with pytest.raises(StorageUnavailableError, match="does not end"):
            other.changes("t").read(known)
        with pytest.raises(StorageUnavailableError, match="does not end"):
            other.changes("t").position(known.version)
        server.execute("commit")
        assert [change.row["k"] for change in other.changes("t").read(known)] in ([-1, 2], [2, -1])
    assert feed.latest() > known
    with storage.plan_scan("t") as plan:
        assert plan.position == feed.latest()


def test_a_prepared_transaction_is_named(start_postgresql: StartServer, impatient: None) -> None:
    server = start_postgresql(max_prepared_transactions="2")
    with connect(server.url("s")) as storage, psycopg.connect(server.conninfo, autocommit=True) as program:
        storage.admin.create(SPEC)
        feed = storage.changes("t")
        program.execute("begin")
        program.execute("insert into s.t values (1, 1)")
        program.execute("prepare transaction 'stuck'")
        known = feed.latest()
        storage.table("t").upsert({"k": 2, "v": 2})
        assert feed.latest() == known
        with pytest.raises(StorageUnavailableError, match="the prepared transaction 'stuck'"):
            storage.plan_scan("t")
        program.execute("commit prepared 'stuck'")
        assert sorted(change.row["k"] for change in feed.read(known)) == [1, 2]  # type: ignore[type-var]


def test_a_snapshot_leaves_nothing_behind(storage: Storage, postgresql_schema: Schema) -> None:
    """The gate is open, and writes wait for others as ever."""
    for read_only in (False, True):
        with storage.transaction(read_only=read_only) as transaction:
            transaction.position("t")
            transaction.position("u")
            with session(postgresql_schema) as server:
                server.execute("set lock_timeout = '10s'")
                with server.transaction():
                    server.execute("lock table _structable_gate in share mode")
            assert transaction.table("t").count() == 0
    locker = session(postgresql_schema)
    storage.table("t").insert({"k": 1, "v": 1})
    with locker, storage.transaction() as transaction:
        transaction.position("t")
        locker.execute("begin")
        locker.execute("select from t where k = 1 for no key update")
        timer = threading.Timer(0.3, locker.execute, ["rollback"])  # far longer than the gate's own limit
        timer.start()
        table = transaction.table("t")
        table.upsert({"k": 1, "v": 2})
    timer.join()
    assert storage.table("t").read((1,)) == {"k": 1, "v": 2}


def test_idle_transactions_and_plans_hold_nothing_back(storage: Storage) -> None:
    feed = storage.changes("t")
    with ExitStack() as stack:
        idle = stack.enter_context(storage.transaction())
        idle.table("t").upsert({"k": 1, "v": 1})
        idle.table("t").count()  # written
        stack.enter_context(storage.plan_scan("t"))
        reading = stack.enter_context(storage.transaction(read_only=True))
        reading.position("t")
        storage.table("t").upsert({"k": 2, "v": 2})
        assert [change.row["k"] for change in feed.read()] == [2]
        feed.expire(feed.latest())
        assert list(feed.read()) == []
        assert feed.earliest() == feed.latest()
        idle.rollback()


def test_positions_are_exact_under_writers(storage: Storage) -> None:
    """A snapshot and the changes after its position are the table, for every kind of transaction and plan."""
    feed = storage.changes("t")
    stop = threading.Event()
    failures: list[BaseException] = []

    def write(number: int) -> None:
        chance = random.Random(number)
        try:
            while not stop.is_set():
                keys = [number * 100 + chance.randrange(10) for _ in range(chance.randint(1, 3))]
                storage.table("t").upsert_many({"k": key, "v": chance.randrange(1000)} for key in keys)
                if chance.random() < 0.3:
                    storage.table("t").delete((keys[0],))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    found: list[tuple[FeedPosition, State]] = []
    try:
        for number in range(ROUNDS):
            for isolation in Isolation:

                def snapshot(number: int = number, isolation: Isolation = isolation) -> None:
                    with storage.transaction(isolation, read_only=number % 2 == 0) as transaction:
                        position = transaction.position("t")
                        state = {row["k"]: row["v"] for row in transaction.table("t").scan()}
                        if number % 2:
                            transaction.table("u").upsert({"k": number, "v": 0})
                    found.append((position, state))

                storage.run(lambda _: snapshot())
            with storage.plan_scan("t") as plan:
                rows = [
                    row for split in plan.splits for batch in storage.read_split(split) for row in batch.to_pylist()
                ]
                assert plan.position is not None
                found.append((plan.position, {row["k"]: row["v"] for row in rows}))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    final = {row["k"]: row["v"] for row in storage.table("t").scan()}
    end = feed.latest()
    for position, state in found:
        assert applied(state, changed(storage, position, end)) == final
    found.sort(key=lambda one: one[0])
    assert applied(found[0][1], changed(storage, found[0][0], found[-1][0])) == found[-1][1]


def test_serializable_positions_add_no_conflict(storage: Storage) -> None:
    storage.table("t").upsert_many({"k": key, "v": 0} for key in range(4))
    first, second = storage.transaction(Isolation.SERIALIZABLE), storage.transaction(Isolation.SERIALIZABLE)
    with first, second:
        assert first.position("t") == second.position("t")
        first.table("t").upsert({"k": 10, "v": 1})
        second.table("u").upsert({"k": 20, "v": 1})
    assert len(changed(storage, storage.changes("t").earliest())) == 5


def test_ended_backends_of_the_storage(storage: Storage, postgresql_schema: Schema) -> None:
    """A connection that ends between two calls is replaced; one of a transaction ends it, and nothing is left."""
    feed = storage.changes("t")
    storage.table("t").upsert({"k": 1, "v": 1})

    def end_all() -> None:
        with session(postgresql_schema) as server:
            server.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'structable'"
            )
            gone = "select from pg_stat_activity where application_name = 'structable'"
            until(lambda: server.execute(gone).rowcount == 0)

    end_all()
    assert len(list(feed.read())) == 1
    with storage.transaction() as transaction:
        transaction.position("t")
        end_all()
        with pytest.raises(StorageUnavailableError):
            transaction.table("t").count()
        transaction.rollback()
    with feed.read() as changes:
        end_all()
        assert len(list(changes)) == 1
    with storage.plan_scan("t") as plan:
        assert plan.position == feed.latest()


def test_rights_of_readers(start_postgresql: StartServer, impatient: None) -> None:
    """Reading a feed takes SELECT alone; an exact snapshot while others commit takes UPDATE on the gate."""
    server = start_postgresql()
    with connect(server.url("s")) as owner, psycopg.connect(server.conninfo, autocommit=True) as program:
        owner.admin.create(SPEC)
        owner.table("t").upsert({"k": 1, "v": 1})
        with psycopg.connect(server.superuser_conninfo, autocommit=True) as superuser:
            superuser.execute("create role reader login password 'r'")
        program.execute("grant usage on schema s to reader; grant select on all tables in schema s to reader")
        url = server.url("s").replace(server.conninfo.split("//")[1].split("@")[0], "reader:r")
        with connect(url, create=False) as reader:
            assert [change.row["k"] for change in reader.changes("t").read()] == [1]
            with reader.plan_scan("t") as plan:
                assert plan.position == owner.changes("t").latest()
            program.execute("set search_path = s")
            holds_gate(program)
            with pytest.raises(StorageUnavailableError, match="grant update on table"):
                reader.plan_scan("t")
            program.execute("rollback")
            with pytest.raises(StorageUnavailableError, match="lacks a privilege"):
                reader.changes("t").expire(reader.changes("t").latest())
        with connect(url, create=False, read_only=True) as reader:
            assert reader.changes("t").latest() == owner.changes("t").latest()
            with pytest.raises(UnsupportedOperationError):
                reader.changes("t").expire()


def test_standbys_know_no_positions(postgresql_server: Server) -> None:
    server = postgresql_server
    with connect(server.url("s")) as storage:
        storage.admin.create(SPEC)
        storage.table("t").upsert({"k": 1, "v": 1})
    server.stop()
    server.become_standby()
    with connect(server.url("s"), create=False, read_only=True) as storage:
        feed = storage.changes("t")
        assert feed.earliest().version > 0
        for call in (feed.latest, feed.read, feed.plan):
            with pytest.raises(UnsupportedOperationError, match="standby"):
                call()
        with storage.transaction(read_only=True) as transaction:
            with pytest.raises(UnsupportedOperationError, match="standby"):
                transaction.position("t")
            assert transaction.table("t").count() == 1
        with storage.plan_scan("t") as plan:
            assert plan.position is None


def test_a_position_beyond_the_newest_is_lost(storage: Storage) -> None:
    latest = storage.changes("t").latest()
    with pytest.raises(ChangesLostError, match="beyond the newest"):
        storage.changes("t").read(FeedPosition(latest.feed, latest.version + 1))
