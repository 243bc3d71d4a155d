"""The gateway user's rights that docs/hbase.md names suffice, under HBase's own access control."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

import pytest

from structable.spi import Field, Storage, StorageUnavailableError, TableSpecification, connect

from .support.administration import Administration
from .support.connections import READY
from .support.fixtures import StartHBase
from .support.server import Gateway, Server

_CONTROLLER = "org.apache.hadoop.hbase.security.access.AccessController"
_GUARDED = {
    "hbase.security.authorization": "true",
    "hbase.coprocessor.master.classes": _CONTROLLER,
    "hbase.coprocessor.region.classes": _CONTROLLER,
}
_GUEST = "guest"
_RUNS = TableSpecification("runs", [Field.long("id"), Field.string("name")], ["id"], ["name"])
_WIDER = TableSpecification("runs", [*_RUNS.fields, Field.int("more")], ["id"], ["name"])
_OTHER = TableSpecification("other", [Field.long("id")], ["id"])


Result = TypeVar("Result")


def refused(act: Callable[[], object]) -> None:
    with pytest.raises(StorageUnavailableError, match="the gateway's user lacks a permission in HBase"):
        act()


def granted(act: Callable[[], Result]) -> Result:
    """Return the result of an action whose right was just granted; region servers learn of it a moment later."""
    end = time.monotonic() + 60
    while True:
        try:
            return act()
        except StorageUnavailableError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def cells(server: Server) -> dict[str, object]:
    """Return the rows of all tables."""
    with closing(server.gateway.connection()) as connection:
        return {
            name.decode(): list(connection.table(name).scan(include_timestamp=True)) for name in connection.tables()
        }


@pytest.fixture
def server(start_hbase: StartHBase) -> Server:
    server = start_hbase(**_GUARDED)
    server.administration.grant(READY, _GUEST, "RW")
    return server


@pytest.fixture
def guest(server: Server) -> Gateway:
    return server.start_gateway(user=_GUEST)


@pytest.mark.usefixtures("brief_retries")
def test_rights_of_the_gateway(server: Server, guest: Gateway) -> None:
    """A missing right is reported and nothing is written; the rights of the manual suffice for everything."""
    administration = server.administration
    before = cells(server)
    refused(lambda: connect(guest.url("p"), timeout=5))
    assert cells(server) == before
    with connect(server.url("p")) as storage:
        storage.admin.create(_RUNS)
        storage.table("runs").upsert({"id": 1, "name": "a"})
    _with_less_than_needed(administration, server, guest)
    administration.grant("default:", _GUEST, "RWC")
    with connect(guest.url("p")) as storage:
        granted(lambda: storage.admin.create(_OTHER))
        granted(lambda: storage.table("runs").upsert({"id": 1, "name": "a"}))
        storage.table("other").upsert({"id": 1})
        with storage.transaction() as tx:
            tx.table("runs").upsert_many({"id": n, "name": "b"} for n in range(100))
            tx.table("other").delete((1,))
        assert len(list(storage.table("runs").scan_index("name", "b"))) == 100
        storage.admin.drop("other")
        storage.admin.drop("runs")
        assert storage.admin.list() == []


def _with_less_than_needed(administration: Administration, server: Server, guest: Gateway) -> None:
    for rights in ("", "R"):
        administration.grant("p_tx", _GUEST, rights)
        before = cells(server)
        refused(lambda: connect(guest.url("p"), timeout=5))
        assert cells(server) == before
    administration.grant("p_tx", _GUEST, "RW")
    administration.grant("p_00000001", _GUEST, "R")
    with granted(lambda: connect(guest.url("p"), timeout=5)) as storage, connect(server.url("p")) as owner:
        assert granted(lambda: [row.name for row in storage.table("runs").scan()]) == ["a"]
        for act in (
            lambda: storage.table("runs").upsert({"id": 1, "name": "b"}),
            lambda: storage.table("runs").upsert_many({"id": n, "name": "b"} for n in range(20)),
            lambda: storage.table("runs").delete((1,)),
            lambda: storage.admin.create(_OTHER),
            lambda: storage.admin.create_or_update(_WIDER),
            lambda: storage.admin.drop_index("runs", "name"),
            lambda: storage.admin.drop("runs"),
        ):
            refused(act)
            _require_unchanged(storage)
            _require_unchanged(owner)


def _require_unchanged(storage: Storage) -> None:
    assert [(row.id, row.name) for row in storage.table("runs").scan()] == [(1, "a")]
    assert storage.admin.list() == ["runs"]
    assert storage.admin.get_specification("runs") == _RUNS
