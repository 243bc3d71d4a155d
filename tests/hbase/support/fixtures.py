"""Fixtures for all tests that need HBase; tests/conftest.py makes them known.

Without a server, the tests are skipped with the reason, and fail where STRUCTABLE_REQUIRE_ALL_BACKENDS is 1.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol

import pytest

from tests.servers.availability import NoServerError, unavailable

from . import jars
from .server import Server
from .shared import Place, Sweeper, fresh_prefix, shared_server


class StartHBase(Protocol):
    """Starts an HBase of the test's own."""

    def __call__(self, **settings: str) -> Server:
        """Start a server with further settings of hbase-site.xml, such as `**{"hbase.rpc.timeout": "500"}`."""


@pytest.fixture(scope="session")
def hbase_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Return the HBase shared by all processes of the run; no test may stop it."""
    base = tmp_path_factory.getbasetemp()
    # A process of xdist has its own folder in that of the run.
    run = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with ExitStack() as stack:
        try:
            place = stack.enter_context(shared_server(run))
        except NoServerError as error:
            unavailable(str(error))
        yield place


@pytest.fixture(scope="session")
def hbase_sweeper(hbase_server: Place) -> Iterator[Sweeper]:
    """Return the sweeper, which drops the tables of finished tests while the next ones run."""
    with Sweeper(hbase_server) as sweeper:
        yield sweeper


@pytest.fixture
def hbase_prefix(hbase_server: Place, hbase_sweeper: Sweeper) -> Iterator[str]:
    """Return a prefix without tables, of which a server that outlives the run keeps none."""
    hbase_server.require_alive()
    with fresh_prefix(hbase_sweeper) as prefix:
        yield prefix
    hbase_server.require_alive()


@pytest.fixture
def hbase_url(hbase_server: Place, hbase_prefix: str) -> str:
    """Return structable's URL of a fresh prefix."""
    return hbase_server.url(hbase_prefix)


@pytest.fixture
def start_hbase() -> Iterator[StartHBase]:
    """Start servers for the test alone, which may stop, restart and kill them; they end with it."""
    lack = jars.missing()
    if lack is not None:
        unavailable(f"a server to stop and kill needs {lack}")
    with ExitStack() as stack:

        def start(**settings: str) -> Server:
            return stack.enter_context(Server.create(settings=settings))

        yield start
