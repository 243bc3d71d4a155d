"""Fixtures for all tests that need PostgreSQL; tests/conftest.py makes them known.

Without a server, the tests are skipped with the reason, and fail where STRUCTABLE_REQUIRE_ALL_BACKENDS is 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol

import pytest

from tests.servers.availability import NoServerError, unavailable

from . import pgbouncer
from .binaries import MINIMUM, find_binaries
from .server import Server
from .shared import Place, Schema, fresh_schema, shared_server


class StartServer(Protocol):
    """Starts a server of the test's own."""

    def __call__(self, *, fsync: bool = True, **settings: str) -> Server:
        """Start a server with further settings of postgresql.conf, such as `max_connections="12"`."""


class StartPgBouncer(Protocol):
    """Starts a PgBouncer of the test's own."""

    def __call__(self, mode: str, **settings: str) -> pgbouncer.Server:
        """Start it before the shared server; `mode` is what it pools, and `settings` are others of its own."""


@pytest.fixture(scope="session")
def postgresql_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Return the server that the tests of one process share.

    Several processes cannot: an index built without locks waits for all old snapshots of its database, even those of
    other tests.
    """
    with ExitStack() as stack:
        try:
            place = stack.enter_context(shared_server(tmp_path_factory.getbasetemp()))
        except NoServerError as error:
            unavailable(str(error))
        yield place


@pytest.fixture(scope="session")
def postgresql_conninfo(postgresql_place: Place) -> str:
    """Return libpq's URL of the database that the tests of one process share."""
    return postgresql_place.conninfo


@pytest.fixture
def postgresql_schema(postgresql_place: Place) -> Iterator[Schema]:
    """Return a schema that does not exist yet, dropped afterwards."""
    postgresql_place.require_alive()
    with ExitStack() as stack:
        yield stack.enter_context(fresh_schema(postgresql_place.conninfo))
        postgresql_place.require_alive()  # before the schema is dropped


@pytest.fixture
def postgresql_url(postgresql_schema: Schema) -> str:
    """Return structable's URL of a fresh schema."""
    return postgresql_schema.url


@pytest.fixture
def start_postgresql() -> Iterator[StartServer]:
    """Start servers for the test alone, which may stop, restart and kill them; they end with it."""
    if find_binaries() is None:
        unavailable(
            f"a server to stop and kill needs PostgreSQL's binaries, version {MINIMUM} or later, on this machine"
        )
    with ExitStack() as stack:

        def start(*, fsync: bool = True, **settings: str) -> Server:
            return stack.enter_context(Server.create(fsync=fsync, settings=settings))

        yield start


@pytest.fixture
def postgresql_server(start_postgresql: StartServer) -> Server:
    """Return a server of the test's own, on which a commit survives a crash."""
    return start_postgresql()


def _require_pgbouncer() -> None:
    if pgbouncer.find_pgbouncer() is None:
        unavailable("PgBouncer is not on this machine (Debian: pgbouncer)")


@pytest.fixture
def start_pgbouncer(postgresql_place: Place) -> Iterator[StartPgBouncer]:
    """Start poolers for the test alone."""
    _require_pgbouncer()
    with ExitStack() as stack:

        def start(mode: str, **settings: str) -> pgbouncer.Server:
            return stack.enter_context(pgbouncer.Server.create(postgresql_place.conninfo, mode, **settings))

        yield start


@pytest.fixture(scope="session")
def session_pooler(postgresql_place: Place) -> Iterator[pgbouncer.Server]:
    """Return the pooler of sessions that the tests of one process share."""
    _require_pgbouncer()
    with pgbouncer.Server.create(postgresql_place.conninfo, "session", default_pool_size="150") as pooler:
        yield pooler
