"""`structable system`: the commands of the datasets."""

import datetime as dt
import json
from dataclasses import replace
from pathlib import Path

import pytest

from structable.datasets import SystemData
from structable.migrations import MigrationLockedError, lease
from structable.migrations.schema_calls import SchemaCalls
from structable.spi import Field, FieldType, TableSpecification, connect
from tests.cli.conftest import Command


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"leveldb://{tmp_path}/store"


def test_init_makes_all_tables_once(structable: Command, url: str) -> None:
    first = structable("system", "init", url, "--format", "json")
    assert (first.code, first.err) == (0, "")
    assert json.loads(first.out)["created"] == sorted(spec.name for spec in SystemData.SPECIFICATIONS)
    again = structable("system", "init", url)
    assert again.code == 0
    assert again.out.endswith("0 tables created\n")


def test_tables_of_a_later_release_are_kept(structable: Command, url: str) -> None:
    """A release of before starts on them: `init`, `create` and `open` accept more fields, indexes, wider numbers."""
    structable("system", "init", url)
    with connect(url) as storage:
        for spec in SystemData.SPECIFICATIONS:
            wide = {one.name: replace(one, type=FieldType.LONG) for one in spec.value_fields if one.type.integer_bits}
            fields = [*(wide.get(one.name, one) for one in spec.fields), Field.string("later")]
            storage.admin.create_or_update(spec.evolve(fields=fields, indexes=[*spec.indexes, "later"]))
        extended = [storage.admin.get_specification(spec.name) for spec in SystemData.SPECIFICATIONS]
        SystemData.create(storage)
        with SystemData.open(storage) as system, system.transaction() as s:
            s.namespaces.create("sales")
    assert structable("system", "init", url).code == 0
    assert structable("system", "check", url).code == 0
    with connect(url) as storage:
        assert [storage.admin.get_specification(spec.name) for spec in SystemData.SPECIFICATIONS] == extended


def test_check_lists_what_lacks(structable: Command, url: str) -> None:
    structable("system", "init", url)
    assert structable("system", "check", url) == (0, "complete\n", "")
    with connect(url) as storage:
        storage.admin.drop("sys_namespaces")
        storage.admin.drop_index("sys_runs", "active")
    lacking = structable("system", "check", url)
    assert (lacking.code, lacking.out) == (1, "missing table sys_namespaces\nmissing index sys_runs.active\n")
    shown = json.loads(structable("system", "check", url, "--format", "json").out)
    assert shown == {"missing_tables": ["sys_namespaces"], "missing_fields": ["index sys_runs.active"]}


def test_counts_are_of_each_table(structable: Command, url: str) -> None:
    structable("system", "init", url, "--prefix", "p_")
    shown = structable("system", "counts", url, "--prefix", "p_", "--format", "json")
    counted = json.loads(shown.out)
    assert counted["p_namespaces"] == 2
    assert len(counted) == len(SystemData.SPECIFICATIONS)
    lines = structable("system", "counts", url, "--prefix", "p_").out.splitlines()
    assert [line.split() for line in lines if line.startswith("p_namespaces ")] == [["p_namespaces", "2"]]


@pytest.mark.parametrize("command", ["check", "counts"])
def test_absent_store_is_not_made(structable: Command, url: str, tmp_path: Path, command: str) -> None:
    absent = structable("system", command, url)
    assert (absent.code, absent.out) == (3, "")
    assert not (tmp_path / "store").exists()


def test_counts_of_a_store_without_the_tables(structable: Command, url: str) -> None:
    connect(url).close()
    failed = structable("system", "counts", url)
    assert (failed.code, failed.out) == (1, "")
    assert "the store lacks" in failed.err


def test_mistyped_urls_are_misuse(structable: Command) -> None:
    failed = structable("system", "check", "memory://x?unknown=1")
    assert failed.code == 2
    assert "unknown" in failed.err


def test_upgrade_makes_the_same_tables_as_init(structable: Command, url: str, tmp_path: Path) -> None:
    other = f"leveldb://{tmp_path}/other"
    assert structable("system", "upgrade", url).code == 3
    connect(url).close()
    upgraded = structable("system", "upgrade", url, "--prefix", "p_")
    assert (upgraded.code, upgraded.err) == (0, "")
    structable("system", "init", other, "--prefix", "p_")
    with connect(url) as one, connect(other) as two:
        names = two.admin.list()
        assert {name: one.admin.get_specification(name) for name in names} == {
            name: two.admin.get_specification(name) for name in names
        }
        assert {"structable_p_revisions", "structable_p_tasks"} <= set(one.admin.list())
    assert structable("system", "upgrade", other, "--prefix", "p_").out == upgraded.out
    assert structable("system", "check", other, "--prefix", "p_").code == 0


def test_an_interrupted_upgrade_goes_on(structable: Command, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the same command, which `doctor` names by what it is."""
    connect(url).close()
    create = SchemaCalls.create

    def interrupted(self: SchemaCalls, spec: TableSpecification) -> None:
        if spec.name == "sys_runs":
            raise KeyboardInterrupt
        create(self, spec)

    with monkeypatch.context() as patch:
        patch.setattr(SchemaCalls, "create", interrupted)
        assert structable("system", "upgrade", url).code == 130
    sick = structable("doctor", url)
    assert "tables is paused: interrupted; mend that, then run the command again that began it" in sick.out
    assert structable("system", "upgrade", url).code == 0
    assert structable("system", "check", url).code == 0


def test_an_upgrade_beside_another_may_be_tried_again(
    structable: Command, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(url).close()

    def locked(self: lease.RunnerLease) -> None:
        raise MigrationLockedError("host:1", dt.datetime(2026, 1, 1, tzinfo=dt.UTC))

    monkeypatch.setattr(lease.RunnerLease, "acquire", locked)
    assert structable("system", "upgrade", url).code == 4
