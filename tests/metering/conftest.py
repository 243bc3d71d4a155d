"""Stores whose storages are measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from structable.spi import Field, Storage, TableSpecification, connect
from structable.testing.conformance.clients import StoreProcess

from .sdk import Metrics, measured

ITEMS = TableSpecification("items", [Field.long("id"), Field.long("n")], ["id"])


@pytest.fixture
def metrics(monkeypatch: pytest.MonkeyPatch) -> Iterator[Metrics]:
    """Give the program an SDK before anything connects."""
    with measured(monkeypatch) as metrics:
        yield metrics


@pytest.fixture(params=["memory", "leveldb", "leveldb of another process", "postgresql", "hbase"])
def storage_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return the URL of a fresh store of each kind."""
    name = request.param
    if name == "memory":
        yield f"memory://{uuid4().hex}"
    elif name == "leveldb":
        yield f"leveldb://{tmp_path}/store"
    elif name == "leveldb of another process":
        url = f"leveldb://{tmp_path}/store"
        owner = StoreProcess(url, "obey")
        assert owner.next() == "ready"
        yield url
        owner.close()
    else:
        yield request.getfixturevalue(f"{name}_url")


@pytest.fixture
def storage(metrics: Metrics, storage_url: str) -> Iterator[Storage]:
    """Connect to it, with the table `items` of a row 1."""
    with connect(storage_url) as storage:
        storage.admin.create(ITEMS)
        with storage.transaction() as transaction:
            transaction.table("items").upsert({"id": 1, "n": 0})
        yield storage
