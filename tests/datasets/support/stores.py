"""The stores that the datasets are tested on, each with the tables made once for all tests of a process."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from structable.datasets import SystemData
from structable.datasets.system.messages import TOPIC_TABLES
from structable.spi import Storage, connect
from tests.conformance.support.owner import owned, owner_process
from tests.hbase.support.shared import fresh_prefix
from tests.postgresql.support.shared import fresh_schema

STORES = [
    "memory",
    "leveldb",
    "leveldb_client",
    "postgresql",
    # Making its tables takes longest; one process makes them.
    pytest.param("hbase", marks=pytest.mark.xdist_group("datasets_on_hbase")),
]


@contextmanager
def url_of(store: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the URL of a store of this kind, new and empty, for as long as the context."""
    match store:
        case "memory":
            yield f"memory://{uuid.uuid4().hex}"
        case "leveldb":
            yield f"leveldb://{folder}/store"
        case "leveldb_client":
            with owner_process() as owner, owned(owner, f"leveldb://{folder}/owned") as url:
                yield url
        case "postgresql":
            place = request.getfixturevalue("postgresql_place")
            with fresh_schema(place.conninfo) as schema:
                yield schema.url
        case "hbase":
            server = request.getfixturevalue("hbase_server")
            with fresh_prefix(request.getfixturevalue("hbase_sweeper")) as prefix:
                yield server.url(prefix)
        case _:
            raise ValueError(f"unknown store {store!r}")


@contextmanager
def opened(store: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[Storage]:
    """Return a store with the tables of the datasets."""
    with url_of(store, folder, request) as url, connect(url) as storage:
        SystemData.create(storage)
        yield storage


def emptied(storage: Storage) -> None:
    """Delete every row and every topic, and make the first namespaces again."""

    def empty(table: str) -> None:
        if TOPIC_TABLES in table:
            storage.admin.drop(table)
            return
        with storage.table(table).scan() as rows:
            keys = [row.key for row in rows]
        if keys:
            storage.run(lambda tx: tx.table(table).delete_many(keys))

    for table in storage.admin.list():
        empty(table)
    with SystemData.open(storage) as system, system.transaction() as s:
        for name in ("default", "system"):
            s.namespaces.create(name)
