"""Stores that threads and processes share, and datasets that begin empty for each test."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from structable.datasets import SystemData
from structable.spi import Storage, connect
from tests.datasets.support.stores import STORES, emptied, url_of

from .support.ledger import LEDGER
from .support.workers import Processes


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A store of a kind, with the tables of the datasets and the ledger."""

    kind: str
    url: str
    storage: Storage


@pytest.fixture(scope="session", params=[store for store in STORES if store != "leveldb_client"])
def shared_place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Return a store of each kind, which the tests of a process share."""
    folder = tmp_path_factory.mktemp(request.param)
    with url_of(request.param, folder, request) as url, connect(url) as storage:
        SystemData.create(storage)
        storage.admin.create(LEDGER.specification)
        yield Place(request.param, url, storage)


@pytest.fixture
def place(shared_place: Place) -> Iterator[Place]:
    """Return a store that holds the namespaces `default` and `system` alone."""
    yield shared_place
    emptied(shared_place.storage)


@pytest.fixture(scope="session")
def processes(shared_place: Place) -> Iterator[Processes]:
    """Return four processes that are connected to the store."""
    with Processes(shared_place.url, 4) as running:
        yield running
