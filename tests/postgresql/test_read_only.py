"""A storage with `read_only=True` writes nothing into the database, and needs no right to."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from structable.backends.postgresql.driver.statement import command
from structable.backends.postgresql.storage import PostgreSQLStorage
from structable.spi import Storage, StoreNotFoundError, connect
from tests.servers.read_only import fill, read_everything

from .support.fixtures import StartServer
from .support.server import Server


@pytest.fixture
def server(start_postgresql: StartServer) -> Server:
    """Start a server for this test alone, without background work of its own."""
    server = start_postgresql(fsync=False, autovacuum="off")
    with connect(server.url("structable")) as storage:
        fill(storage)
    return server


def state(server: Server) -> list[tuple[object, ...]]:
    """Return the number of the next writing transaction, and the names and sizes of everything in the database."""
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        return [
            *connection.execute("select pg_snapshot_xmax(pg_current_snapshot())::text"),
            *connection.execute("select oid, relname, pg_relation_size(oid) from pg_class order by oid"),
            *connection.execute("select oid, nspname from pg_namespace order by oid"),
        ]


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
