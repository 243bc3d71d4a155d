"""Logs: what SQL by hand does to them, the places of their records, and that nothing is stored beside the feed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import errors, sql

from structable.spi import Change, Field, FieldType, Storage, TableSpecification, connect
from tests.waiting import until

from .support.shared import Schema

LOG = TableSpecification("log", [Field.int("n"), Field.string("ctid")], options={"write-mode": "log"})


@pytest.fixture
def storage(postgresql_url: str) -> Iterator[Storage]:
    with connect(postgresql_url) as storage:
        storage.admin.create(LOG)
        storage.admin.create(TableSpecification("t", [Field.int("k")], ["k"], options={"changelog-producer": "lookup"}))
        yield storage


@pytest.fixture
def server(postgresql_schema: Schema, storage: Storage) -> Iterator[psycopg.Connection]:
    """Return a connection of a program that does not know structable."""
    with psycopg.connect(postgresql_schema.conninfo, autocommit=True) as connection:
        connection.execute(sql.SQL("set search_path = {}").format(sql.Identifier(postgresql_schema.name)))
        yield connection


def seen(storage: Storage) -> list[tuple[object, object]]:
    return [(change.number, change.row["n"]) for change in storage.changes("log").read()]


def test_inserts_by_hand_go_to_the_feed_alone(storage: Storage, server: psycopg.Connection) -> None:
    server.execute("insert into log (n, _ctid) values (1, 'a'), (2, null), (1, 'a')")
    with server.cursor().copy("copy log (n) from stdin") as copy:
        copy.write("3\n4\n")
    with server.transaction():
        server.execute("insert into log (n) select n from generate_series(5, 7) n")
        server.execute("insert into t values (1)")
        server.execute("savepoint a")
        server.execute("insert into log (n) values (98), (99)")
        server.execute("rollback to a")
        server.execute("with given as (insert into log (n) values (8)) insert into log (n) values (9)")
        server.execute("insert into log (n) values (10) on conflict do nothing")
    storage.table("log").insert_many([{"n": 11}, {"n": 12}])
    found = seen(storage)
    assert [n for _, n in found[:8]] == [1, 2, 1, 3, 4, 5, 6, 7]
    assert {n for _, n in found[8:10]} == {8, 9}
    assert [n for _, n in found[10:]] == [10, 11, 12]
    assert [number for number, _ in found] == [0, 1, 2, 0, 1, 0, 1, 2, 3, 4, 5, 0, 1]
    assert server.execute("select count(*) from log").fetchone() == (0,)
    (first, *_) = storage.changes("log").read()
    assert dict(first.row) == {"n": 1, "ctid": "a"}


@pytest.mark.parametrize(
    "statement",
    [
        "update log set n = 1",
        "delete from log",
        "truncate log",
        "insert into log (n) values (1) on conflict (_id) do update set n = 2",
    ],
)
def test_other_statements_raise(storage: Storage, server: psycopg.Connection, statement: str) -> None:
    storage.table("log").insert({"n": 0})
    with pytest.raises(errors.FeatureNotSupported, match="a log keeps no rows: read its changes"):
        server.execute(statement)
    assert seen(storage) == [(0, 0)]


def test_several_tickets_of_a_commit(storage: Storage, server: psycopg.Connection) -> None:
    """Constraints that are checked early divide a commit, which has one version and one row of numbers still."""
    with server.transaction():
        for begin in (0, 10, 20):
            server.execute(f"insert into log (n) select n from generate_series({begin}, {begin + 2}) n")
            server.execute("set constraints all immediate")
    everything = list(storage.changes("log").read())
    assert seen(storage) == [*enumerate([0, 1, 2, 10, 11, 12, 20, 21, 22])]
    version = everything[0].version
    assert version is not None
    since = storage.changes("log").position(version)
    for number in range(10):
        assert list(storage.changes("log").read(since, after=number)) == everything[number + 1 :]


def test_records_are_numbered_through_all_statements(storage: Storage, server: psycopg.Connection) -> None:
    """So that the place of a number is found by the index, however many statements there were."""
    with storage.transaction() as transaction:
        for n in range(600):
            transaction.table("log").insert({"n": n})
            if n % 200 == 0:
                transaction.table("t").read((1,))
    assert seen(storage) == [*zip(range(600), range(600), strict=True)]
    feed = server.execute("select relname from pg_class where relname ~ '^_feed_[0-9a-f]+$' order by 1").fetchall()
    found = server.execute(f"select again, n from {feed[0][0]} order by n").fetchall()
    assert found == [(0, n) for n in range(600)]


def test_long_values_are_read_in_parts(storage: Storage) -> None:
    """A reader behind a number does not make the server collect all that is left of a commit with long values."""
    storage.admin.create(TableSpecification("bodies", [Field("body", FieldType.BYTES)], options={"write-mode": "log"}))
    body = bytes(range(256)) * 4_000
    generated = [number.to_bytes(2) + body for number in range(40)]
    with storage.transaction() as transaction:
        for one in generated:
            transaction.table("bodies").insert({"body": one})
    feed = storage.changes("bodies")
    with feed.read() as changes:
        found: list[Change] = [next(changes)]
    version = found[0].version
    assert version is not None
    while len(found) < len(generated):
        with feed.read(feed.position(version), after=found[-1].number) as changes:
            found += [change for change, _ in zip(changes, range(7), strict=False)]
    assert [change.row["body"] for change in found] == generated
    assert [change.number for change in found] == [*range(40)]


def test_writers_of_a_log_wait_for_nobody(storage: Storage, server: psycopg.Connection) -> None:
    """An open transaction that has written a log holds up neither another writer nor a reader."""
    with server.transaction():
        server.execute("insert into log (n) values (1)")
        done = threading.Thread(target=storage.table("log").insert, args=({"n": 2},))
        done.start()
        done.join(30)
        assert not done.is_alive()
        assert seen(storage) == [(0, 2)]
    assert seen(storage) == [(0, 2), (0, 1)]


def test_a_restart_outlasts_the_commits_that_go_on(storage: Storage, server: psycopg.Connection) -> None:
    """One that has its version already is in the feed that ends; what is committed after the call is in the new one."""
    feed = storage.changes("log")
    before = feed.earliest()
    with ThreadPoolExecutor(1) as threads:
        with server.transaction():
            server.execute("insert into log (n) values (1)")
            server.execute("set constraints all immediate")  # draws the version, as the commit does
            restarting = threads.submit(feed.restart)
            until(lambda: feed.earliest().feed != before.feed)
            with pytest.raises(TimeoutError):
                restarting.result(0.5)
        begin = restarting.result(30)
    storage.table("log").insert({"n": 2})
    assert begin == feed.earliest()
    assert seen(storage) == [(0, 2)]
