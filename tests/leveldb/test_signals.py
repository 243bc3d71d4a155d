"""Signals in the memory that the processes of a folder share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from structable.spi import Field, Storage, TableSpecification, connect
from structable.testing.conformance.clients import StoreProcess
from structable.testing.conformance.feed_case import LONGEST

FED = TableSpecification("t", [Field.int("k")], ["k"], options={"changelog-producer": "input"})


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"leveldb://{tmp_path}/store"


@pytest.fixture
def owner(url: str) -> Iterator[StoreProcess]:
    """Another process, which owns the database."""
    client = StoreProcess(url, "obey")
    assert client.next() == "ready"
    yield client
    client.close()


@pytest.fixture
def storage(url: str, owner: StoreProcess) -> Iterator[Storage]:
    """A client of the owner."""
    with connect(url) as storage:
        storage.admin.create(FED)
        yield storage


def test_clients_signal_through_the_owner(url: str, owner: StoreProcess, storage: Storage) -> None:
    with storage.listen(["a"]) as listener:
        with storage.transaction() as transaction:
            transaction.signal("a")
        assert listener.wait(LONGEST)
    with connect(url, read_only=True) as reader, reader.listen(["feed/t"]) as listener:
        job = storage.begin_write("t", mode="insert", job_id="j")
        assert not listener.wait(0)
        storage.commit_write(job, [owner.ask("stage", job, 0, [{"k": 1}])])
        assert listener.wait(LONGEST)


def test_the_next_owner_of_a_killed_one_wakes_everybody(owner: StoreProcess, storage: Storage) -> None:
    with storage.listen(["a"]) as listener, storage.listen(["feed/t"]) as other:
        owner.kill()
        assert not listener.wait(0)
        storage.table("t").upsert({"k": 1})  # this process is the owner now
        assert listener.wait(LONGEST)
        assert other.wait(LONGEST)
        assert not listener.wait(0)
        with storage.transaction() as transaction:
            transaction.signal("a")
        assert listener.wait(LONGEST)


def test_a_folder_of_software_without_signals_gets_them(url: str, tmp_path: Path) -> None:
    connect(url).close()
    (shared,) = (path for path in (tmp_path / "store").rglob("epoch"))
    shared.write_bytes(shared.read_bytes()[:16])
    with connect(url) as storage, storage.listen(["a"]) as listener:
        with storage.transaction() as transaction:
            transaction.signal("a")
        assert listener.wait(LONGEST)
