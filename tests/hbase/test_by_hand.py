"""The effects of manual edits are those that docs/hbase.md describes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import happybase
import pytest

from structable.spi import (
    DataCorruptionError,
    Field,
    Storage,
    StorageUnavailableError,
    StructableError,
    TableSpecification,
    connect,
)
from tests.hbase.support.shared import Place

RUNS = TableSpecification("runs", [Field.long("id"), Field.string("name")], ["id"], ["name"])


@pytest.fixture
def storage(hbase_url: str) -> Iterator[Storage]:
    with connect(hbase_url, timeout=5, ddl_timeout=5) as storage:
        storage.admin.create(RUNS)
        storage.table("runs").upsert_many({"id": n, "name": f"n{n}"} for n in range(3))
        yield storage


@pytest.fixture
def shell(hbase_server: Place) -> Iterator[happybase.Connection]:
    with closing(hbase_server.connection()) as connection:
        yield connection


@pytest.fixture
def table(storage: Storage, hbase_prefix: str) -> str:
    """Return the HBase table of `runs`."""
    return f"{hbase_prefix}_00000001"


def test_a_dropped_table(storage: Storage, shell: happybase.Connection, table: str) -> None:
    shell.delete_table(table, disable=True)
    view = storage.table("runs")
    for use in (lambda: view.read((1,)), lambda: list(view.scan()), lambda: view.upsert({"id": 1})):
        with pytest.raises(StructableError):
            use()
    shell.create_table(table, {"x": {"max_versions": 2**31 - 1}})
    storage.admin.drop("runs")
    storage.admin.create(RUNS)
    view.upsert({"id": 1, "name": "new"})
    assert [row.name for row in view.scan()] == ["new"]


def test_a_disabled_table(storage: Storage, shell: happybase.Connection, table: str) -> None:
    view = storage.table("runs")
    shell.disable_table(table)
    for use in (lambda: list(view.scan()), lambda: view.upsert({"id": 1})):
        with pytest.raises(StorageUnavailableError, match="disabled"):
            use()
    shell.enable_table(table)
    assert view.count() == 3
    view.upsert({"id": 1, "name": "new"})


def test_deletes_reach_no_version(storage: Storage, shell: happybase.Connection, table: str) -> None:
    for row, _ in list(shell.table(table).scan()):
        shell.table(table).delete(row)
    assert storage.table("runs").count() == 3
    assert [row.id for row in storage.table("runs").scan_index("name", "n1")] == [1]


def test_a_put_is_older_than_every_version(storage: Storage, shell: happybase.Connection, table: str) -> None:
    rows = [row for row, _ in shell.table(table).scan(row_prefix=b"\x01")]
    shell.table(table).put(rows[0], {b"x:v": b"by hand"})
    assert storage.table("runs").count() == 3
    shell.table(table).put(rows[2] + b"\x01", {b"x:v": b"by hand"})
    with pytest.raises(DataCorruptionError):
        list(storage.table("runs").scan())
