"""A message that is over the limit of a frame is refused, and the connection and the database go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from structable.backends.leveldb.protocol import channel
from structable.spi import Field, Isolation, Storage, TableSpecification, UnsupportedOperationError, connect
from structable.testing.conformance.clients import StoreProcess

TABLE = TableSpecification("t", [Field.string("k"), Field.bytes("b")], ["k"])
OVER = "100,000 bytes at most, and this one has 1[0-9]{2},[0-9]{3}"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"leveldb://{tmp_path}/store?durability=process"


@pytest.fixture
def storage(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    """Return a client of another process, with messages of at most 100,000 bytes."""
    owner = StoreProcess(url, "obey")
    try:
        assert owner.next() == "ready"
        with connect(url) as storage:
            storage.admin.create(TABLE)
            monkeypatch.setattr(channel, "_LARGEST", 100_000)
            yield storage
    finally:
        owner.close()


def test_commit_that_is_too_large_was_not_sent(storage: Storage) -> None:
    """It certainly did not happen, and is not retried."""
    bodies: list[int] = []

    def body(tx: object) -> None:
        bodies.append(1)
        tx.table("t").upsert({"k": "a", "b": bytes(110_000)})  # type: ignore[attr-defined]

    with pytest.raises(UnsupportedOperationError, match=OVER):
        storage.run(body)
    assert bodies == [1]
    assert storage.table("t").count() == 0
    storage.table("t").upsert({"k": "a", "b": b"small"})
    assert storage.table("t").count() == 1


def test_reads_of_a_transaction_count_for_its_message(storage: Storage) -> None:
    """Under SERIALIZABLE a commit contains its reads."""
    tx = storage.transaction(Isolation.SERIALIZABLE)
    for number in range(60):
        tx.table("t").read((f"{number:02}{1_900 * 'k'}",))
    tx.table("t").upsert({"k": "a", "b": b""})
    with pytest.raises(UnsupportedOperationError, match=OVER):
        tx.commit()
    tx.rollback()
    assert storage.table("t").count() == 0


def test_answer_that_is_too_large(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner replies with an error, and the client continues."""
    with connect(url) as storage:
        storage.admin.create(TABLE)
        keys = [f"{number:02}" for number in range(12)]
        storage.table("t").upsert_many({"k": k, "b": bytes(10_000)} for k in keys)
        monkeypatch.setattr(channel, "_LARGEST", 100_000)
        client = StoreProcess(url, "obey")
        try:
            assert client.next() == "ready"
            with pytest.raises(UnsupportedOperationError, match=OVER):
                client.ask("multi_read", "t", [(k,) for k in keys])
        finally:
            client.close()
        assert storage.table("t").count() == 12
