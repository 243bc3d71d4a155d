"""The proxy loses connections at its traps, and only there."""

from collections.abc import Iterator

import psycopg
import pytest

from tests.postgresql.support.proxy import ANYTHING, COMMIT, Cut, Proxy, statement
from tests.postgresql.support.shared import Schema

Connection = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def proxy(postgresql_conninfo: str) -> Iterator[Proxy]:
    with Proxy(postgresql_conninfo) as proxy:
        yield proxy


@pytest.fixture
def table(postgresql_schema: Schema) -> str:
    name = f"{postgresql_schema.name}.t"
    with psycopg.connect(postgresql_schema.conninfo) as connection:
        connection.execute(f"CREATE SCHEMA {postgresql_schema.name} CREATE TABLE t (k int)".encode())
    return name


def rows(schema: Schema, table: str) -> int:
    with psycopg.connect(schema.conninfo) as connection:
        return len(connection.execute(f"SELECT * FROM {table}".encode()).fetchall())


def commit(connection: Connection, way: str, insert: bytes) -> None:
    if way == "simple":
        connection.execute(insert)
        connection.commit()
    elif way == "prepared":
        connection.execute(insert, prepare=True)
        connection.execute("COMMIT", prepare=True)
    else:
        with connection.pipeline():
            connection.execute("BEGIN")
            connection.execute(insert)
            connection.execute("COMMIT")


@pytest.mark.parametrize("way", ["simple", "prepared", "pipelined"])
@pytest.mark.parametrize(("cut", "committed"), [(Cut.BEFORE, 0), (Cut.AFTER, 1)])
def test_connection_is_lost_before_or_after_commit(
    proxy: Proxy, postgresql_schema: Schema, table: str, way: str, cut: Cut, committed: int
) -> None:
    connection = psycopg.connect(proxy.url(postgresql_schema.conninfo), autocommit=way == "pipelined")
    trap = proxy.trap(COMMIT, cut)
    with pytest.raises(psycopg.OperationalError):
        commit(connection, way, f"INSERT INTO {table} VALUES (1)".encode())
    trap.wait()
    assert rows(postgresql_schema, table) == committed
    assert connection.closed
    connection.close()
    proxy.wait_until_open(0)


def test_trap_takes_the_next_message_after_it_is_set(proxy: Proxy, postgresql_conninfo: str) -> None:
    with psycopg.connect(proxy.url(postgresql_conninfo), autocommit=True) as connection:
        connection.execute("SELECT 1")
        trap = proxy.trap(ANYTHING, Cut.BEFORE)
        assert not trap.sprung
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 2")
        assert trap.sprung


def test_trap_cuts_one_connection_at_its_own_statement(proxy: Proxy, postgresql_conninfo: str) -> None:
    url = proxy.url(postgresql_conninfo)
    trap = proxy.trap(statement("select 'poison'"), Cut.AFTER)
    with psycopg.connect(url) as one, psycopg.connect(url) as other:
        one.execute("SELECT 'harmless'")
        with pytest.raises(psycopg.OperationalError):
            other.execute("SELECT 'poison'")
        assert trap.sprung
        assert one.execute("SELECT 'poison'").fetchone() == ("poison",)


def test_refused_connections_are_accepted_again(proxy: Proxy, postgresql_conninfo: str) -> None:
    url = proxy.url(postgresql_conninfo)
    with psycopg.connect(url) as connection:
        proxy.refuse()
        with pytest.raises(psycopg.OperationalError, match="refused"):
            psycopg.connect(url)
        assert connection.execute("SELECT 1").fetchone() == (1,)
        proxy.accept()
        psycopg.connect(url).close()


def test_open_connections_are_counted_and_cut(proxy: Proxy, postgresql_conninfo: str) -> None:
    url = proxy.url(postgresql_conninfo)
    connections = [psycopg.connect(url) for _ in range(3)]
    assert proxy.open == proxy.accepted == 3
    connections.pop().close()
    proxy.wait_until_open(2)
    proxy.cut_all()
    proxy.wait_until_open(0)
    for connection in connections:
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
        connection.close()
    assert proxy.accepted == 3


def test_large_messages_pass(proxy: Proxy, postgresql_conninfo: str) -> None:
    with psycopg.connect(proxy.url(postgresql_conninfo)) as connection:
        large = "x" * 5_000_000
        assert connection.execute("SELECT %s::text", [large]).fetchone() == (large,)
