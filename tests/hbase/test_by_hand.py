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
    TransactionConflictError,
    connect,
)
from tests.hbase.support.internals import drained
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


@pytest.mark.usefixtures("brief_retries")
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


@pytest.mark.usefixtures("brief_retries")
def test_a_dropped_table_of_a_feed(storage: Storage, shell: happybase.Connection, hbase_prefix: str) -> None:
    """The table is read without its feed, and written again once it has another one."""
    fed = RUNS.evolve(options={"changelog-producer": "lookup"})
    storage.admin.create_or_update(fed)
    view, feed = storage.table("runs"), storage.changes("runs")
    view.upsert({"id": 1, "name": "old"})
    position, plan = feed.latest(), feed.plan()
    drained(storage)
    shell.delete_table(f"{hbase_prefix}_00000002", disable=True)
    assert view.count() == 3
    with pytest.raises(TransactionConflictError, match="dropped"):
        view.upsert({"id": 1, "name": "new"})
    for use in (
        feed.latest,
        feed.expire,
        lambda: list(feed.read(position)),
        lambda: [list(storage.read_split(split)) for split in plan.splits],
        lambda: storage.plan_scan("runs"),
    ):
        with pytest.raises(DataCorruptionError, match="_00000002 is missing"):
            use()
    storage.admin.create_or_update(fed.evolve(options={"changelog-producer": "none"}))
    storage.admin.create_or_update(fed)
    view.upsert({"id": 1, "name": "new"})
    assert [change.row["name"] for change in feed.read()] == ["old", "new"]


@pytest.mark.usefixtures("brief_retries")
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
