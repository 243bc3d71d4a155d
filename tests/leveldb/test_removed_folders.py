"""Folders that are removed or replaced while storages have them open: every later call fails, and says why."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from structable.spi import (
    Field,
    Storage,
    StorageUnavailableError,
    StructableError,
    StructuredTable,
    TableSpecification,
    Value,
    connect,
)
from tests.waiting import until

from .support.processes import Process

TABLE = TableSpecification("t", [Field.long("k"), Field.string("v")], ["k"])
OTHER = TableSpecification("t", [Field.string("w"), Field.long("k")], ["k"])
LOST = r"was removed or replaced while it was open; connect again"
Run = Callable[[str], Process]

OWN = """
from structable.spi import connect
storage = connect(f"leveldb://{folder}")
storage.table("t").upsert({"k": 1, "v": "one"})
send("ready")
receive()
storage.close()
"""


def filled(folder: Path, spec: TableSpecification = TABLE, **row: Value) -> None:
    with connect(f"leveldb://{folder}") as storage:
        storage.admin.create(spec)
        storage.table("t").upsert({"k": 0, **row})


def remove(folder: Path) -> None:
    shutil.rmtree(folder)


def replace(folder: Path) -> None:
    """Put another database in its place: with as many changes of its schema, and other fields in the same table."""
    filled(folder.with_name("other"), OTHER, w="another")
    folder.rename(folder.with_name("old"))
    folder.with_name("other").rename(folder)


def replace_files(folder: Path) -> None:
    """Put another database's files into the same folder, as a backup is restored."""
    filled(folder.with_name("other"), OTHER, w="another")
    shutil.rmtree(folder / "database")
    shutil.copytree(folder.with_name("other") / "database", folder / "database")


def empty(folder: Path) -> None:
    for file in os.scandir(folder / "database"):
        os.unlink(file.path)


def wait_for_error(call: Callable[[], object]) -> None:
    """Return when a call has failed."""

    def fails() -> bool:
        try:
            call()
        except StructableError:
            return True
        return False

    until(fails)


def assert_lost(storage: Storage, table: StructuredTable) -> None:
    assert storage.closed
    for call in (
        lambda: storage.table("t"),
        lambda: table.upsert({"k": 2}),
        lambda: table.read((0,)),
        lambda: list(table.scan()),
        lambda: storage.run(lambda tx: tx.table("t").upsert({"k": 2})),
        lambda: storage.admin.create(TableSpecification("u", TABLE.fields, ["k"])),
        lambda: storage.plan_scan("t"),
    ):
        with pytest.raises(StorageUnavailableError, match=LOST) as refused:
            call()
        assert refused.value.lasting


@pytest.mark.parametrize("change", [remove, replace, replace_files, empty])
def test_owner_gives_up_a_folder_that_is_gone(folder: Path, change: Callable[[Path], None]) -> None:
    filled(folder, v="zero")
    with connect(f"leveldb://{folder}") as storage, connect(f"leveldb://{folder}") as twin:
        table, of_twin = storage.table("t"), twin.table("t")
        open_before = storage.transaction()
        assert open_before.table("t").read((0,)) is not None
        change(folder)
        wait_for_error(lambda: table.upsert({"k": 1}))
        wait_for_error(open_before.table("t").count)
        with pytest.raises(StorageUnavailableError):
            open_before.commit()
        assert_lost(storage, table)
        assert_lost(twin, of_twin)
        with connect(f"leveldb://{folder}") as again:
            tables = again.admin.list()
            assert tables == ([] if change in (remove, empty) else ["t"])
            if tables:
                assert [dict(row) for row in again.table("t").scan()] == [{"w": "another", "k": 0}]
            again.admin.create(TableSpecification("u", TABLE.fields, ["k"]))
            again.table("u").upsert({"k": 7})
            assert_lost(storage, table)
            storage.close()
            twin.close()
            assert again.table("u").read((7,)) is not None
    with connect(f"leveldb://{folder}", create=False) as again:
        assert [row["k"] for row in again.table("u").scan()] == [7]


@pytest.mark.parametrize("change", [remove, replace, replace_files])
def test_clients_lose_it_with_the_owner(folder: Path, run: Run, change: Callable[[Path], None]) -> None:
    filled(folder, v="zero")
    owner = run(OWN)
    assert owner.receive() == "ready"
    url = f"leveldb://{folder}"
    with connect(url) as storage, connect(url, read_only=True) as reader:
        table, read_only = storage.table("t"), reader.table("t")
        assert [row["v"] for row in table.scan()] == [row["v"] for row in read_only.scan()] == ["zero", "one"]
        change(folder)
        wait_for_error(lambda: table.upsert({"k": 2, "v": "two"}))
        assert_lost(storage, table)
        with pytest.raises(StorageUnavailableError, match=LOST):
            read_only.read((0,))
        with connect(url) as again:
            assert again.admin.list() == ([] if change is remove else ["t"])
    owner.send()
    assert owner.end() == 0


def test_client_does_not_take_over_another_database(folder: Path, run: Run) -> None:
    """The folder is replaced after its owner has closed it, so that only the client can notice."""
    filled(folder, v="zero")
    owner = run(OWN)
    assert owner.receive() == "ready"
    with connect(f"leveldb://{folder}") as storage:
        table = storage.table("t")
        assert table.read((1,)) == {"k": 1, "v": "one"}
        owner.send()
        assert owner.end() == 0
        replace(folder)
        with pytest.raises(StorageUnavailableError, match=LOST):
            table.read((0,))
        assert_lost(storage, table)
        with connect(f"leveldb://{folder}") as again:
            assert again.table("t").read((0,)) == {"w": "another", "k": 0}


def test_folder_that_cannot_be_looked_at_is_not_given_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a folder that is missing is gone: a file system may fail to answer for a while."""
    filled(folder, v="zero")
    failed: list[Path] = []
    lstat, database = os.lstat, folder.resolve() / "database"

    def fail(path: Path) -> os.stat_result:
        if path == database:
            failed.append(path)
            raise OSError(5, "Input/output error")
        return lstat(path)

    with connect(f"leveldb://{folder}") as storage:
        monkeypatch.setattr(os, "lstat", fail)
        until(lambda: len(failed) > 2)
        storage.table("t").upsert({"k": 1})
        monkeypatch.undo()
        assert storage.table("t").read((1,)) is not None
