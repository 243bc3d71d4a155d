"""A transaction that no frame could hold is refused before anything of it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from structable.backends.ordered import transaction
from structable.spi import Field, Storage, TableSpecification, UnsupportedOperationError, connect, transaction_size

TABLE = TableSpecification("t", [Field.int("k"), Field.bytes("b")], ["k"])


@pytest.fixture(params=["memory", "leveldb"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    """Open a store whose transactions may write 100,000 bytes."""
    monkeypatch.setattr(transaction_size, "MAX_TRANSACTION_SIZE", 100_000)
    monkeypatch.setattr(transaction, "CERTAINLY_SMALL_ENOUGH", 5)
    url = "memory://" if request.param == "memory" else f"leveldb://{tmp_path}/store?durability=process"
    with connect(url) as storage:
        storage.admin.create(TABLE)
        yield storage


def test_too_much_is_refused_and_the_transaction_goes_on(storage: Storage) -> None:
    """Nothing is written by the refused commit; a part of it can be taken back, and the rest committed."""
    tx = storage.transaction()
    table = tx.table("t")
    for k in range(11):
        table.upsert({"k": k, "b": bytes(10_000)})
    with pytest.raises(UnsupportedOperationError, match="over the limit of 100,000"):
        tx.commit()
    assert storage.table("t").count() == 0
    assert not tx.closed
    table.delete((0,))
    table.upsert({"k": 1, "b": b""})
    tx.commit()
    assert storage.table("t").count() == 10


def test_left_by_its_block(storage: Storage) -> None:
    """The `with` block and `run` end the transaction with the refusal, once."""
    bodies: list[int] = []

    def body(tx: object) -> None:
        bodies.append(1)
        many(tx)

    def many(tx: object) -> None:
        tx.table("t").upsert_many({"k": k, "b": bytes(10_000)} for k in range(11))  # type: ignore[attr-defined]

    with pytest.raises(UnsupportedOperationError), storage.transaction() as left:
        many(left)
    assert left.closed
    with pytest.raises(UnsupportedOperationError):
        storage.run(body)
    assert bodies == [1]
    assert storage.table("t").count() == 0


def test_sum_of_all_tables(storage: Storage) -> None:
    """What counts is the sum of what all tables get, and not what a job writes."""
    storage.admin.create(TableSpecification("u", TABLE.fields, ["k"]))
    tx = storage.transaction()
    for name in ("t", "u"):
        tx.table(name).upsert_many({"k": k, "b": bytes(10_000)} for k in range(6))
    with pytest.raises(UnsupportedOperationError):
        tx.commit()
    tx.rollback()
    with storage.transaction() as tx:
        tx.table("t").upsert_many({"k": k, "b": bytes(10_000)} for k in range(9))
    assert storage.table("t").count() == 9
