"""A backup of all tables, made and restored as docs/hbase.md describes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import happybase
import pytest

from structable.spi import Field, FindingLevel, StorageUnavailableError, TableSpecification, connect

from .support.administration import Administration
from .support.bank import open_bank, quick, require_sound, transfer
from .support.bank_killing import killed, write_on
from .support.shared import Place

_ACCOUNTS = 12
_LATER = TableSpecification("later", [Field.int("id")], ["id"])


@pytest.fixture
def administration(hbase_server: Place) -> Administration:
    if hbase_server.server is None:
        pytest.skip("snapshots are taken by a program that needs the jars of a local server")
    return hbase_server.server.administration


@pytest.fixture
def shell(hbase_server: Place) -> Iterator[happybase.Connection]:
    with closing(hbase_server.connection()) as connection:
        yield connection


def tables(shell: happybase.Connection, prefix: str) -> set[str]:
    return {name.decode() for name in shell.tables() if name.startswith(f"{prefix}_".encode())}


@pytest.mark.parametrize("repaired", [True, False], ids=["repaired", "as it was left"])
def test_a_restored_backup(
    administration: Administration, shell: happybase.Connection, hbase_prefix: str, hbase_url: str, repaired: bool
) -> None:
    """All tables are as they were, whatever was written, collected, created and dropped since; writes continue."""
    url = quick(hbase_url, lease=0.5)
    before = {"before", "doomed"}
    with connect(url) as storage:
        open_bank(storage, _ACCOUNTS)
        storage.run(lambda transaction: transfer(transaction, "before", 0, 1, 5))
    killed("transfer", url, "before_finalise", 1)
    if repaired:
        with connect(url) as storage:
            assert FindingLevel.PROBLEM not in {finding.level for finding in storage.repair()}
    backup = tables(shell, hbase_prefix)
    with administration.snapshots(backup) as restore:
        with connect(url) as storage:
            storage.admin.create(_LATER)
            storage.table("later").upsert({"id": 1})
            write_on(storage, _ACCOUNTS)  # and collects the replaced versions
            storage.admin.drop("ledger")
        restore()
        for table in tables(shell, hbase_prefix) - backup:
            shell.delete_table(table, disable=True)
        with connect(url) as storage:
            assert require_sound(storage, _ACCOUNTS) == before
            assert storage.admin.list() == ["accounts", "ledger"]
            write_on(storage, _ACCOUNTS)
            storage.admin.create(_LATER)
            assert storage.table("later").count() == 0
            storage.table("later").upsert({"id": 2})
            assert [row.id for row in storage.table("later").scan()] == [2]
            assert {finding.level for finding in storage.diagnose()} <= {FindingLevel.OK, FindingLevel.NOTE}


def test_a_table_that_is_not_in_the_backup(
    administration: Administration, shell: happybase.Connection, hbase_prefix: str, hbase_url: str
) -> None:
    """If it is not dropped when the backup is restored, it is not taken for a new one: its rows do not come back."""
    with connect(hbase_url) as storage:
        open_bank(storage, _ACCOUNTS)
    backup = tables(shell, hbase_prefix)
    with administration.snapshots(backup) as restore:
        with connect(hbase_url) as storage:
            storage.admin.create(_LATER)
            storage.table("later").upsert({"id": 1})
        restore()
        [left] = tables(shell, hbase_prefix) - backup
    with connect(hbase_url, ddl_timeout=1) as storage:
        with pytest.raises(StorageUnavailableError, match="has rows, but the catalog has no table of its number"):
            storage.admin.create(_LATER)
        assert not storage.admin.exists("later")
        problems = [found for found in storage.diagnose() if found.level == FindingLevel.PROBLEM]
        assert [found.subject for found in problems] == [f"HBase table {left}"]
        shell.delete_table(left, disable=True)
        storage.admin.create(_LATER)
        assert storage.table("later").count() == 0
