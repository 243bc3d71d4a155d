"""The one server that all tests of a run share: a given one, a container's, or one from local binaries."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from tests.servers.availability import NoServerError, containers_run
from tests.servers.held import joined_or_created
from tests.servers.revival import require_alive, require_reachable

from .binaries import MINIMUM, VERSION_VARIABLE, find_binaries
from .server import Server

URL_VARIABLE = "STRUCTABLE_TEST_POSTGRESQL_URL"
"""Names a database to test on, `postgresql://user:password@host:port/database`. The role may make schemas in it."""

_IMAGE = "postgres:16-alpine"
DROP_TIMEOUT = 10.0  # seconds that the drop of a schema waits for its users


class LeakedTransactionError(AssertionError):
    """A test left a transaction open, in this process or in one that it started."""


@dataclass(frozen=True, slots=True)
class Schema:
    """The schema of one test, not made yet, and libpq's URL of its database."""

    conninfo: str = field(repr=False)
    name: str

    @property
    def url(self) -> str:
        return f"{self.conninfo}{'&' if urlsplit(self.conninfo).query else '?'}schema={self.name}"


@dataclass(frozen=True, slots=True)
class Place:
    """The PostgreSQL of a test process: libpq's URL, and the server if it runs from local binaries."""

    conninfo: str = field(repr=False)
    server: Server | None = None

    def require_alive(self) -> None:
        """Return if the server is there; else raise ServerDiedError, at once where it is known to be gone.

        A server of the run's own is started again first.
        """
        parts = urlsplit(self.conninfo)
        if self.server is not None:
            require_alive(self.server, "the PostgreSQL of this test run")
        elif parts.hostname:
            require_reachable(parts.hostname, parts.port or 5432, f"the PostgreSQL of {URL_VARIABLE}")


@contextmanager
def shared_server(folder: Path) -> Iterator[Place]:
    """Give the server of all processes with this folder; the last one to leave stops it."""
    given = os.environ.get(URL_VARIABLE)
    if given:
        yield Place(given)
    elif VERSION_VARIABLE not in os.environ and containers_run():
        with _container() as conninfo:
            yield Place(conninfo)
    elif find_binaries() is not None:
        with joined_or_created(folder, "postgresql", Server, Server.create) as server:
            yield Place(server.conninfo, server)
    else:
        raise NoServerError(
            f"no PostgreSQL server: set {URL_VARIABLE}=postgresql://user:password@host:port/database, or install "
            f"server binaries of version {MINIMUM} or later (Debian: postgresql), or `pip install testcontainers` "
            "where a Docker daemon runs"
        )


@contextmanager
def fresh_schema(conninfo: str) -> Iterator[Schema]:
    """Give a schema of a unique name, and drop it with its contents afterwards.

    A transaction that still uses it then is ended, and a LeakedTransactionError.
    """
    schema = Schema(conninfo, f"test_{uuid.uuid4().hex[:20]}")
    try:
        yield schema
    finally:
        _drop(schema)


def _drop(schema: Schema) -> None:
    drop = sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema.name))
    with psycopg.connect(schema.conninfo, autocommit=True) as connection:
        connection.execute(f"SET lock_timeout = {int(DROP_TIMEOUT * 1000)}; SET client_min_messages = warning")
        try:
            connection.execute(drop)
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
            users = connection.execute(_USERS, {"schema": schema.name}).fetchall()
            connection.execute(drop)
            what = "; ".join(f"{name or 'a connection'}, {state}: {query}" for name, state, query, _ended in users)
            raise LeakedTransactionError(f"the test left transactions open: {what}") from error


_USERS = """
    SELECT application_name, state, query, pg_terminate_backend(pid, 5000)
    FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND pid IN (
        SELECT l.pid
        FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = %(schema)s
    )
"""


@contextmanager
def _container() -> Iterator[str]:
    """Run a container for this process alone: testcontainers ends it with the process that started it."""
    from testcontainers.postgres import PostgresContainer

    container = PostgresContainer(_IMAGE, driver=None).with_command("-c fsync=off -c max_connections=200")
    with container:
        yield container.get_connection_url()
