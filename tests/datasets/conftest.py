"""The datasets on every store, under both isolation levels, with a clock that is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from structable.datasets import Session, SystemData
from structable.spi import Isolation, Storage, connect

from .support.clock import Clock
from .support.stores import STORES, emptied, url_of

Begin = Callable[[], AbstractContextManager[Session]]


@pytest.fixture(scope="session", params=STORES)
def shared_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a store of each kind, which the tests of a process share."""
    with url_of(request.param, tmp_path_factory.mktemp(request.param), request) as url:
        yield url


@pytest.fixture(scope="session")
def shared_store(shared_url: str) -> Iterator[Storage]:
    """Return the shared store with the tables of the datasets."""
    with connect(shared_url) as storage:
        SystemData.create(storage)
        yield storage


@pytest.fixture(params=list(Isolation), ids=lambda isolation: isolation.value)
def isolation(request: pytest.FixtureRequest) -> Isolation:
    """Return each isolation level in turn."""
    level: Isolation = request.param
    return level


@pytest.fixture
def clock() -> Clock:
    """Return a clock that only the test sets."""
    return Clock()


@pytest.fixture
def system(shared_store: Storage, clock: Clock) -> Iterator[SystemData]:
    """Return the datasets of a store that holds the namespaces `default` and `system` alone."""
    with SystemData.open(shared_store, clock=clock) as system:
        yield system
    emptied(shared_store)


@pytest.fixture
def begin(system: SystemData, isolation: Isolation) -> Begin:
    """Return a function that begins a transaction of the isolation level: `with begin() as s:`."""
    return lambda: system.transaction(isolation)
