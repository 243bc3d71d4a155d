"""Stores and folders of revisions for the tests of migrations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from structable.spi import Storage, connect
from tests.datasets.support.stores import url_of
from tests.migrations.support.folders import Scripts

every_store = pytest.mark.parametrize(
    "store",
    [
        "memory",
        "leveldb",
        "postgresql",
        pytest.param("hbase", marks=pytest.mark.xdist_group("datasets_on_hbase")),
    ],
    indirect=True,
)


@pytest.fixture
def scripts(tmp_path: Path) -> Scripts:
    """Return a folder of revisions."""
    return Scripts(tmp_path / "program")


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    """Return a fresh store: in memory, or of another kind with `every_store`."""
    with url_of(getattr(request, "param", "memory"), tmp_path, request) as url, connect(url) as storage:
        yield storage
