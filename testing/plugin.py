"""The fixtures that pytest offers wherever structable is installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from structable.spi import Storage

# pytest imports this module at each start, whether or not the tests use a fixture of it. Hence the fixture imports
# structable.spi.


@pytest.fixture
def structable_url() -> str:
    """The store of `structable_storage`: `memory://`. Override it in a conftest.py to test on another store."""
    return "memory://"


@pytest.fixture
def structable_storage(structable_url: str) -> Iterator[Storage]:
    """An empty store for one test, closed after it: `memory://`, or the one that `structable_url` names.

    A store that has tables already fails the test and is left as it is. The tables that the test made are dropped after
    it, even if it closed the storage.
    """
    from structable.spi import connect

    with connect(structable_url) as storage:
        if tables := storage.admin.list():
            listed = ", ".join(tables)
            pytest.fail(f"{storage.url} has tables already: {listed}. structable_url must name an empty store")
        yield storage
    with connect(structable_url) as storage:
        for table in storage.admin.list():
            storage.admin.drop(table)
