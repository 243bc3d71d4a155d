"""A storage with `read_only=True` writes nothing into the database, and needs no right to."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from structable.backends.postgresql.driver.statement import command
from structable.backends.postgresql.storage import PostgreSQLStorage
from structable.spi import (
    Field,
    Isolation,
    Range,
    Storage,
    StoreNotFoundError,
    TableSpecification,
    col,
    connect,
    read_split,
)

from .support.fixtures import StartServer
from .support.server import Server

TABLE = TableSpecification("t", [Field.int("k"), Field.string("s"), Field.int("n")], ["k"], ["s"])


@pytest.fixture
def server(start_postgresql: StartServer) -> Server:
    """Start a server for this test alone, without background work of its own."""
    server = start_postgresql(fsync=False, autovacuum="off")
    with connect(server.url("structable")) as storage:
        storage.admin.create(TABLE)
        storage.table("t").upsert_many({"k": k, "s": "ab"[k % 2], "n": k} for k in range(500))
    return server


def state(server: Server) -> list[tuple[object, ...]]:
    """Return the number of the next writing transaction, and the names and sizes of everything in the database."""
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        return [
            *connection.execute("select pg_snapshot_xmax(pg_current_snapshot())::text"),
            *connection.execute("select oid, relname, pg_relation_size(oid) from pg_class order by oid"),
            *connection.execute("select oid, nspname from pg_namespace order by oid"),
        ]


def read_everything(url: str) -> None:
    with connect(url, read_only=True) as storage:
        assert storage.admin.list() == ["t"]
        assert storage.admin.get_specification("t") == TABLE
        view = storage.table("t")
        assert view.read((1,)) is not None
        assert len(view.multi_read([(1,), (2,)])) == 2
        assert view.count(where=col("n") < 10) == 10
        assert len(list(view.scan(order_by="s", reverse=True))) == 500
        assert len(list(view.scan_index("s", "a"))) == 250
        for isolation in Isolation:
            with storage.transaction(isolation) as transaction:
                assert transaction.table("t").count([Range.prefix((5,))]) == 1
                assert len(list(transaction.table("t").scan())) == 500
        with storage.plan_scan("t", splits=3) as plan:
            assert sum(batch.num_rows for split in plan.splits for batch in storage.read_split(split)) == 500
            assert sum(batch.num_rows for s in plan.splits for batch in read_split(url, s, read_only=True)) == 500
        list(storage.diagnose())


def test_nothing_is_written(server: Server) -> None:
    """No statement is given a transaction number, and no relation or schema comes, goes or grows."""
    read_everything(server.url("structable"))  # the server's own one-time writes
    before = state(server)
    read_everything(server.url("structable"))
    with pytest.raises(StoreNotFoundError):
        connect(server.url("missing"), read_only=True)
    with pytest.raises(StoreNotFoundError):
        connect(server.url("missing"), create=False)
    assert state(server) == before


def test_a_role_that_may_only_read(server: Server) -> None:
    """The rights to use the schema and to select from its tables are enough."""
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        connection.execute("revoke create, temporary on database app from public")
        connection.execute("grant usage on schema structable to public")
        connection.execute("grant select on all tables in schema structable to public")
    with psycopg.connect(server.superuser_conninfo, autocommit=True) as connection:
        connection.execute("create role watcher login password 'watching'")
    read_everything(with_role(server.url("structable"), "watcher:watching"))


def test_a_schema_without_tables_of_structable(server: Server) -> None:
    """A schema that others made is no store."""
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        connection.execute("create schema other")
    for options in ({"create": False}, {"read_only": True}):
        with pytest.raises(StoreNotFoundError, match="'other'"):
            connect(server.url("other"), **options)
    with connect(server.url("other")) as made:
        assert made.admin.list() == []


def test_connections_are_read_only_at_the_server(server: Server) -> None:
    """Every connection is set to read only, so that the server itself refuses any write."""
    with connect(server.url("structable"), read_only=True) as storage, connect(server.url("structable")) as writer:
        assert setting(storage) == "on"
        assert setting(writer) == "off"


def setting(storage: Storage) -> str:
    """Return the server's setting for the connections of a storage."""
    storage = getattr(storage, "_storage", storage)

    assert isinstance(storage, PostgreSQLStorage)
    with storage.pool.connection() as connection:
        return str(connection.rows(connection.pipeline((command("show default_transaction_read_only"),))[0])[0][0])


def with_role(url: str, role: str) -> str:
    """Return a URL with another user and password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}"))
